"""client.conf as printed in the documents of 2020."""

from __future__ import annotations

# Comments of both kinds, both separators, `[bos]:`.
PUBLISHED = """\
// user_id：用户id，是用户的唯一身份表示
// sk: Secret Key
[main]
debug = 0
userid: u-1
ak: AK1
sk = SK//1#2;3

[openapi]
host = paddlecloud.baidu.com
port = 80

      [bcc]
      host = bcc.gz.baidubce.com
      ak: // 私人的百度云虚拟化计算资源Access Key
      sk =
[bos]:
ak = AKB ; mine
"""
