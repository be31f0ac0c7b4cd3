"""The whole documented client.conf, for a user who has none yet.

`gen_token` and the installers write it. The Chinese comments are those of the 2020 documents.
"""

from __future__ import annotations

_TEXT = """\
// 免费使用时需要配置该部分的内容
// 请先执行paddlecloud gen_token --email=xxxx@baidu.com，将收到的邮件内容填入下面对应的部分即可
// Your token: run paddlecloud gen_token --email=your_name@163.com, or fill in what the mail says
// user_id：用户id，是用户的唯一身份表示
// ak：Access Key
// sk: Secret Key
[main]
debug = 0
user_id =
ak =
sk =

// 服务器地址；host 留空时使用本机自带的服务器，无需任何配置
// The address of your server; with an empty host the embedded server of this machine is used
[openapi]
{openapi}
// 付费使用时需要配置该部分的内容
// 请先在百度云实名认证并开通BCC权限，从百度云控制台获取ak/sk
// Only for machines that you rent with your own cloud account
[bcc]
host = bcc.bj.baidubce.com
ak =
sk =

// 配置自己的百度云bos信息，一般情况下该ak/sk跟上面BCC的ak/sk保持一致
// Only for your own cloud storage; usually the same keys as above
[bos]
host = bj.bcebos.com
ak =
sk =
"""


def documented_file(host: str = "", port: str = "", scheme: str = "", ca_file: str = "") -> str:
    """The text of the file, without keys, for the server at this address; "": the embedded one."""
    rows = [("host", host), ("port", port)]
    if scheme and scheme != ("https" if port == "443" else "http"):
        rows.append(("scheme", scheme))
    if ca_file:
        rows.append(("ca_file", ca_file))
    lines = [f"{key} = {value}".rstrip() + "\n" for key, value in rows]
    return _TEXT.format(openapi="".join(lines))


def file_for_server(url: str, ca_file: str = "") -> str:
    """The text of the file for the server at this URL."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - only installers need it

    parts = urlsplit(url)
    port = str(parts.port or (443 if parts.scheme == "https" else 80))
    return documented_file(parts.hostname or "", port, parts.scheme, ca_file)
