"""Expected values of settings: the end of "server.toml: x = 1 is not ...".

Each is a phrase within one of the `settings_value` messages, whose `reason` it is.
"""

from __future__ import annotations

SETTING_TEXTS: dict[str, tuple[str, str]] = {
    # -- kinds of values -----------------------------------------------------------------------
    "want_bool": ("true or false", "true 或 false"),
    "want_duration": (
        'a number of seconds above 0 and below 100 years, or "10m", "24h"',
        '大于 0 且小于 100 年的秒数，或 "10m"、"24h" 这样的时长',
    ),
    "want_number": ("a number, 0 or more", "不小于 0 的数"),
    "want_path": ("a path in quotes", "加引号的路径"),
    "want_secret": (
        'a text in quotes, {{ env = "NAME" }} or {{ file = "path" }}',
        '加引号的文本、{{ env = "NAME" }} 或 {{ file = "path" }}',
    ),
    "want_secrets": ("a list of secrets", "由机密信息组成的列表"),
    "want_section": (
        "a section: write [{key}] above its keys",
        "一个小节，请在其各设置项之前写 [{key}]",
    ),
    "want_size": (
        'a whole number of bytes, 0 or more, or a text such as "10Gi"',
        '不小于 0 的整数字节数，或 "10Gi" 这样的文本',
    ),
    "want_span": (
        'a number of seconds, 0 or more and below 100 years, or "10m", "400d"',
        '不小于 0 且小于 100 年的秒数，或 "10m"、"400d" 这样的时长',
    ),
    "want_table": ("a table of single values", "由单个值组成的表"),
    "want_text": ("a text in quotes", "加引号的文本"),
    "want_texts": (
        'a list of texts, such as ["a", "b"]',
        '由文本组成的列表，例 ["a", "b"]',
    ),
    "want_whole": ("a whole number, 0 or more", "不小于 0 的整数"),
    # -- rules beyond the kind -----------------------------------------------------------------
    "want_address": (
        "a URL such as {example}",
        "地址，例 {example}",
    ),
    "want_backend": ("a backend such as local", "后端名称，例 local"),
    "want_bucket_part": (
        'a value: store.kind = "s3" needs it',
        '非空的值，store.kind = "s3" 时必须设置',
    ),
    "want_directory": ("a directory such as {example}", "目录，例 {example}"),
    "want_host": ("a host name without a port", "不带端口的主机名"),
    "want_job_types": ('a list of "cpu" and "gpu"', '由 "cpu" 和 "gpu" 组成的列表'),
    "want_key": (
        "a secret of {length} characters or more, such as `openssl rand -hex 32` gives",
        "至少 {length} 个字符的密钥，可用 `openssl rand -hex 32` 生成",
    ),
    "want_kind_s3": (
        "s3, because {given} is set, which only s3 uses",
        "s3（因为设置了 {given}，而目录用不到它）",
    ),
    "want_listening": (
        "an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::",
        "监听地址，例 127.0.0.1、0.0.0.0 或 ::",
    ),
    "want_local_once": (
        "one pool of backend local: a machine provides its resources only once",
        "唯一的 local 后端资源池，一台机器的资源只能提供一次",
    ),
    "want_loopback": (
        "a loopback address, as required without TLS: set http.tls_cert and http.tls_key, or "
        "http.insecure = true on a trusted network",
        "仅限本机的地址，不使用 TLS 时必须如此；请设置 http.tls_cert 和 http.tls_key，"
        "在可信网络中也可设置 http.insecure = true",
    ),
    "want_mail_address": (
        "a mail address, required as the sender",
        "邮箱地址，发送邮件必须有发件人",
    ),
    "want_mail_domain": ("a mail domain such as example.com", "邮箱域名，例 example.com"),
    "want_name": (
        "a name of letters, digits, dots and dashes",
        "由字母、数字、点和短横线组成的名称",
    ),
    "want_name_once": ("a name that only one pool has", "没有其他资源池使用的名称"),
    "want_one_of": ("one of {known}", "{known} 之一"),
    "want_pair": (
        "the other half of the pair: tls_cert and tls_key go together",
        "与另一项成对的值，tls_cert 和 tls_key 必须同时设置",
    ),
    "want_plan": ("one of the plans: {known}", "已有套餐之一：{known}"),
    "want_positive": ("a number above 0", "大于 0 的数"),
    "want_range": ("{least} to {most}", "{least} 至 {most}"),
    "want_port": ("a port, {least} to {most}", "端口，{least} 至 {most}"),
    "want_whole_positive": ("a whole number above 0", "大于 0 的整数"),
    "want_zone_data": (
        "a zone that this machine knows: it has no time zone data, install the package tzdata",
        "本机已知的时区：本机没有时区数据，请安装 tzdata 软件包",
    ),
    "want_zone": ("a zone name such as Asia/Shanghai", "时区名称，例 Asia/Shanghai"),
    # -- the sentences that they end -----------------------------------------------------------
    "settings_file_empty": (
        "{path}: cannot read the file {file} of {key}: it is empty",
        "{path}：{key} 所指的文件 {file} 无法使用：文件为空",
    ),
    "settings_file_no_text": (
        "{path}: cannot read the file {file} of {key}: it is not a text file",
        "{path}：{key} 所指的文件 {file} 无法使用：不是文本文件",
    ),
    "settings_pool_in_use": (
        "the settings no longer have the pool {pool}, but jobs are still placed there: "
        "{jobs}; restore it, and remove it when they have ended or were killed",
        "设置中已没有资源池 {pool}，但仍有任务在其中：{jobs}；请恢复该资源池，"
        "待这些任务结束或终止后再移除",
    ),
    "settings_value": (
        "{path}: {key} = {value} is not {reason}",
        "{path}：{key} = {value} 无效，应为{reason}",
    ),
    "settings_value_hidden": (
        "{path}: {key} = (hidden) is not {reason}",
        "{path}：{key} =（已隐藏）无效，应为{reason}",
    ),
    "settings_value_missing": (
        "{path}: {key} = (not set) is not {reason}",
        "{path}：{key} =（未设置）无效，应为{reason}",
    ),
    # -- the words of `server check` beside its sentences ---------------------------------------
    "word_default": ("default", "默认"),
    "word_failed": ("failed", "失败"),
    "word_file": ("file", "文件"),
    "word_not_set": ("not set", "未设置"),
    "word_ok": ("ok", "正常"),
    "word_set": ("set", "已设置"),
    "word_warning": ("warning", "警告"),
}
