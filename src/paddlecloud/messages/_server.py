"""Messages about the server: settings, certificates, request validation, proxies."""

from __future__ import annotations

SERVER_TEXTS: dict[str, tuple[str, str]] = {
    "auth_cross_site": (
        "the request was made by a page of {origin}, and only this server's own pages may "
        "make it; open this server's URL directly",
        "该请求由 {origin} 的网页发出，只接受本服务器自身网页的请求，请直接访问本服务器",
    ),
    "check_certificate": (
        "{path} is for {names} and valid until {ends}, {days} days",
        "证书 {path} 适用于 {names}，有效期至 {ends}，还有 {days} 天",
    ),
    "check_database_failed": (
        "the database does not respond: {reason}; check database.url",
        "数据库没有响应：{reason}，请检查 database.url",
    ),
    "check_directory": (
        "{path} is writable",
        "{path} 可以写入",
    ),
    "check_exposed": (
        "{path} holds a secret and is readable by others (mode {mode}); run chmod 600 on it",
        "其他用户可以读取 {path}，其中含有机密信息（权限 {mode}），请执行 chmod 600",
    ),
    "check_file": (
        "{path} is valid",
        "{path} 没有问题",
    ),
    "check_insecure": (
        "{host} port {port} is open without TLS, so traffic can be read on the network; set "
        "http.tls_cert and http.tls_key, unless a proxy in front has the certificate",
        "{host} 端口 {port} 没有使用 TLS，传输途中的任何人都可以读取内容；请设置 "
        "http.tls_cert 和 http.tls_key，除非前端代理已配置证书",
    ),
    "check_key_file": (
        "the server key is stored in {path}",
        "服务器密钥保存在 {path}",
    ),
    "check_key_own": (
        "the server key is stored in {path}; several servers on one database need the same "
        "key: set `key`",
        "服务器密钥保存在 {path}；共用一个数据库的多台服务器必须使用同一个密钥，请设置 key",
    ),
    "check_key_set": (
        "the server key is set",
        "已设置服务器密钥",
    ),
    "check_mail": (
        "{host} port {port} accepts mail",
        "{host} 端口 {port} 可以发送邮件",
    ),
    "check_no_name": (
        "the server has no public name and rejects requests that use one; set http.public_url",
        "服务器不知道自己的名字，会拒绝使用名字访问的请求，请设置 http.public_url",
    ),
    "check_no_file": (
        "{path} does not exist; all settings have their defaults",
        "没有 {path}，全部使用默认值",
    ),
    "check_no_mail": (
        "no mail server is configured, so gen_token cannot send tokens; set [mail], or create "
        "tokens with paddlecloud admin token",
        "没有邮件服务器，gen_token 无法发送密钥，请设置 [mail]，或用 paddlecloud admin token 发放",
    ),
    "check_no_memory_limit": (
        "no writable control group, so jobs on this machine have no memory limit; run the "
        "server as root, or delegate the memory controller to it",
        "此处没有可写的控制组，本机任务的内存无法限制；请以 root 运行服务器，或将 memory "
        "控制器委派给它",
    ),
    "check_not_writable": (
        "{path} is not writable; give it to the user that runs the server",
        "无法写入 {path}，请将其授权给运行服务器的用户",
    ),
    "server_package_missing": (
        "the server lacks the package {package}; its admin can install it and restart the server: "
        "pip install 'paddlecloud[server]', in a checkout make install",
        "服务器缺少依赖 {package}；请管理员安装后重启服务器：pip install 'paddlecloud[server]'"
        "（源码目录中用 make install）",
    ),
    "check_zone": (
        "times are shown in {zone}, and the day of a quota ends at midnight there",
        "时间以 {zone} 显示，配额的一天在该时区的零点结束",
    ),
    "check_zone_machine": (
        "times are shown in the zone of this machine, now {zone}, and the day of a quota ends at "
        "midnight there; time_zone in the settings chooses another one",
        "时间以本机时区（当前为 {zone}）显示，配额的一天在该时区的零点结束；"
        "可用设置 time_zone 更改",
    ),
    "check_zone_shared": (
        "time_zone is not set, so it is that of each machine, here {zone}; set it, so that all "
        "servers of this database agree on when a day ends",
        "未设置 time_zone，各台机器使用自己的时区，本机为 {zone}；请设置该项，使同一数据库的所有"
        "服务器对一天的结束时间一致",
    ),
    "check_plain": (
        "{host} port {port}, only this machine",
        "{host} 端口 {port}，仅限本机访问",
    ),
    "check_plain_url": (
        "http.public_url is {url}, but the server uses TLS; write https://",
        "http.public_url 为 {url}，但服务器使用 TLS，请改为 https://",
    ),
    "check_postgres": (
        "PostgreSQL {version} responds",
        "PostgreSQL {version} 响应正常",
    ),
    "field_above": (
        "{field} is {value}, the maximum is {limit}; give less",
        "{field} 为 {value}，最大为 {limit}，请减小",
    ),
    "field_below": (
        "{field} is {value}, the minimum is {limit}; give more",
        "{field} 为 {value}，最小为 {limit}，请增大",
    ),
    "field_choice": (
        "{field} is {value}, it must be one of: {known}",
        "{field} 为 {value}，只能是以下之一：{known}",
    ),
    "field_entries_least": (
        "{field} has {size} entries, the minimum is {limit}; give more",
        "{field} 有 {size} 项，至少需要 {limit} 项，请增加",
    ),
    "field_entries_most": (
        "{field} has {size} entries, the maximum is {limit}; give fewer at once",
        "{field} 有 {size} 项，最多允许 {limit} 项，请分批给出",
    ),
    "field_letters_least": (
        "{field} has {size} characters, the minimum is {limit}; give a longer one",
        "{field} 有 {size} 个字符，至少需要 {limit} 个，请加长",
    ),
    "field_letters_most": (
        "{field} has {size} characters, the maximum is {limit}; give a shorter one",
        "{field} 有 {size} 个字符，最多允许 {limit} 个，请缩短",
    ),
    "field_missing": (
        "{field} is missing; give it",
        "缺少 {field}，请给出",
    ),
    "field_not_less": (
        "{field} is {value}, it must be less than {limit}",
        "{field} 为 {value}，必须小于 {limit}",
    ),
    "field_not_more": (
        "{field} is {value}, it must be more than {limit}",
        "{field} 为 {value}，必须大于 {limit}",
    ),
    "field_rule": (
        "{field} is {value}, it must be {rule}",
        "{field} 为 {value}，应为{rule}",
    ),
    "field_twice": (
        "{field} is given twice; give it once",
        "{field} 给出了两次，请只保留一个",
    ),
    "field_unknown": (
        "unknown field {field}; remove it, or use a server that supports it",
        "没有 {field} 这一项，请去掉，或使用支持它的服务器",
    ),
    "head_too_large": (
        "the request head has more than {limit} bytes; send fewer or shorter headers",
        "请求头超过 {limit} 字节，请减少或缩短请求头",
    ),
    "health_agent_silent": (
        "no contact with the agent for over {seconds} s: {agents}; check its log and that its "
        "machine is running",
        "超过 {seconds} 秒未收到执行端（Agent）的消息：{agents}，请查看其日志并确认机器在运行",
    ),
    "health_apart": (
        "isolated by uid",
        "以各自的 uid 隔离",
    ),
    "health_jobs": (
        "{count} jobs",
        "共 {count} 个任务",
    ),
    "health_jobs_one": (
        "1 job",
        "共 1 个任务",
    ),
    "health_no_agent": (
        "no agent has connected yet, so no job can run; start one, or wait if the server has "
        "just started",
        "尚无执行端（Agent）连接，任务无法运行；请启动执行端，若服务器刚刚启动请稍候",
    ),
    "health_no_memory_limit": (
        "{agents}; jobs have no memory limit on {names}: give its agent write access to "
        "control groups",
        "{agents}；{names} 上的任务没有内存限制，请允许其执行端（Agent）写入控制组",
    ),
    "health_unsent_deleted": (
        "{agents}; unsent outputs were deleted early for lack of disk space, {times} times, "
        "last on {at}: free disk space",
        "{agents}；因本机磁盘空间不足，未能上传的输出被提前删除，共 {times} 次，最近一次在 "
        "{at}，请清理磁盘",
    ),
    "health_store": (
        "wrote {wrote} to {path} but read back {found}; check the disk of the store",
        "向 {path} 写入 {wrote}，读回的却是 {found}，请检查存储所在的磁盘",
    ),
    "kind_bool": ("true or false", "true 或 false"),
    "kind_integer": ("a whole number", "整数"),
    "kind_list": ("a list", "列表"),
    "kind_nothing": ("nothing", "空"),
    "kind_number": ("a number", "数字"),
    "kind_object": (
        "an object",
        "键值对",
    ),
    "kind_text": ("text", "文本"),
    "rule_hex": ("hex digits", "十六进制数字"),
    "rule_no_nul": ("text without a NUL character", "不含空字符（NUL）的文本"),
    "rule_printable": (
        "text without line breaks and other control characters",
        "不含换行等控制字符的文本",
    ),
    "rule_sha256": ("a sha256: 64 hex digits", "sha256（64 位十六进制数字）"),
    "rule_user_id": (
        "letters, digits, _ . and -, starting with a letter or digit",
        "由字母、数字、_ . - 组成且以字母或数字开头的名称",
    ),
    "rule_word": ("letters, digits, _ . and -", "由字母、数字、_ . - 组成的名称"),
    "server_cert_expired": (
        "the certificate of {address} has expired; its admin must renew it (also check this "
        "machine's clock)",
        "{address} 的证书不在有效期内，请联系管理员更新证书，并检查本机时钟",
    ),
    "server_cert_issuer": (
        "the certificate of {address} is from an issuer that this machine does not trust "
        "({reason}); set ca_file in [openapi] of client.conf to the issuer's certificate, or "
        "set PADDLECLOUD_CA_FILE",
        "{address} 的证书由本机不认识的机构签发（{reason}），请在 client.conf 的 [openapi] "
        "中用 ca_file 指定签发机构的证书，或设置 PADDLECLOUD_CA_FILE",
    ),
    "server_cert_name": (
        "the certificate of {address} is for another name ({reason}); use the name in the "
        "certificate",
        "{address} 的证书属于另一个名字（{reason}），请使用证书中的名字",
    ),
    "server_no_tls": (
        "TLS with {address} failed ({reason}); check the port, or write http:// if the server "
        "has no certificate",
        "{address} 的 TLS 与本客户端不兼容（{reason}），请检查端口；如果服务器没有证书，"
        "请使用 http://",
    ),
    "server_plain": (
        "{address} does not use TLS; correct the port, or write http:// if the server has no "
        "certificate and the network can be trusted",
        "{address} 没有使用 TLS，请检查端口；如果服务器没有证书且网络可信，请使用 http://",
    ),
    "server_wants_tls": (
        "{address} expects TLS, and the request was sent without it; write https:// instead of "
        "http://",
        "{address} 要求使用 TLS，而请求未加密，请将 http:// 改为 https://",
    ),
    "proxy_auth": (
        "the proxy {proxy} requires a user name and password, or rejects the given ones; write "
        "them into its URL: HTTPS_PROXY=http://name:password@host:port",
        "代理服务器 {proxy} 要求用户名和密码，或不接受给出的用户名和密码，请写在其 URL 中："
        "HTTPS_PROXY=http://用户名:密码@主机:端口",
    ),
    "proxy_failed": (
        "the proxy {proxy} cannot reach {address} (status {status}); check host and port and that "
        "the server runs, or add the host to NO_PROXY if this machine reaches it directly",
        "代理服务器 {proxy} 无法连接 {address}（状态码 {status}），请检查 host 和 port "
        "以及服务器是否在运行；如果本机可以直接连接，请把该主机加入 NO_PROXY",
    ),
    "proxy_refused": (
        "the proxy {proxy} refuses connections to {address} (status {status}); ask its admin, or "
        "add the host to NO_PROXY if this machine reaches it directly",
        "代理服务器 {proxy} 拒绝连接 {address}（状态码 {status}），请联系其管理员；"
        "如果本机可以直接连接，请把该主机加入 NO_PROXY",
    ),
    "proxy_scheme": (
        "{variable} begins with {scheme}://, but only HTTP proxies can be used; write "
        "http://host:port",
        "{variable} 以 {scheme}:// 开头，但只支持 HTTP 代理，请写成 http://主机:端口",
    ),
    "proxy_unreachable": (
        "cannot connect to the proxy {proxy}: {reason}; check HTTPS_PROXY and HTTP_PROXY, or add "
        "the host to NO_PROXY if this machine reaches it directly",
        "无法连接代理服务器 {proxy}：{reason}，请检查 HTTPS_PROXY 和 HTTP_PROXY；"
        "如果本机可以直接连接，请把该主机加入 NO_PROXY",
    ),
    "proxy_url": (
        "{variable} is not the URL of a proxy; write http://host:port",
        "{variable} 不是代理服务器的 URL，请写成 http://主机:端口",
    ),
    "ca_file_unusable": (
        "cannot use the CA certificate file {path}: {reason}; correct ca_file",
        "签发机构的证书文件 {path} 无法使用：{reason}，请更正 ca_file",
    ),
    "database_damaged": (
        "the database {database} is damaged: {detail}; restore the last backup into a new home: "
        "paddlecloud admin restore",
        "数据库 {database} 已损坏：{detail}；请将最近的备份恢复到新的目录："
        "paddlecloud admin restore",
    ),
    "database_missing": (
        "there is no server database at {database}; run the command on the server's machine, "
        "with its PADDLECLOUD_HOME or its settings file (--config)",
        "{database} 处没有服务器数据库；请在服务器所在机器上运行该命令，并指定其 PADDLECLOUD_HOME "
        "或设置文件（--config）",
    ),
    "postgres_program_failed": (
        "{program} failed: {detail}",
        "{program} 运行失败：{detail}",
    ),
    "postgres_program_missing": (
        "{program} is not installed here; install the client programs of PostgreSQL (Debian: "
        "postgresql-client), at least as new as the database server",
        "本机没有 {program}；请安装 PostgreSQL 客户端程序（Debian：postgresql-client），"
        "版本不低于数据库服务器",
    ),
    "database_lost": (
        "the database {database} is missing or empty, but keys and files of its jobs still "
        "exist; restore it from a backup, or start without its jobs: paddlecloud server start "
        "--fresh (moves the old keys and files aside, deletes nothing)",
        "数据库 {database} 不存在或为空，但其任务的密钥和文件仍在；请从备份恢复，"
        "或放弃其中的任务重新开始：paddlecloud server start --fresh（"
        "原有的密钥和文件会移到一旁，不会删除）",
    ),
    "fresh_agent_runs": (
        "the agent that holds {path} does not exit; end it, then start again with --fresh",
        "占用 {path} 的执行端（Agent）没有结束，请结束它，然后再用 --fresh 启动",
    ),
    "fresh_bucket_used": (
        "--fresh cannot move the objects of {place} aside; set another store.prefix or "
        "store.bucket first",
        "--fresh 无法移走 {place} 中的对象，请先设置其他的 store.prefix 或 store.bucket",
    ),
    "fresh_cannot_move": (
        "cannot move {path} to {target} ({reason}); move it yourself, then start again with "
        "--fresh",
        "无法把目录或文件 {path} 移到 {target}（{reason}），请自行将其移走，然后再用 --fresh 启动",
    ),
    "fresh_jobs_run": (
        "jobs of the lost database are still running ({replicas}); wait until they have "
        "ended, or kill their processes, then start again with --fresh",
        "丢失的数据库中仍有任务在运行（{replicas}）；请等待其结束或结束其进程，然后再用 "
        "--fresh 启动",
    ),
    "fresh_not_lost": (
        "the database {database} is not lost, so --fresh is not needed; remove it",
        "数据库 {database} 没有丢失，无需重新开始，请去掉 --fresh",
    ),
    "server_key_damaged": (
        "{path} is not a server key (64 hexadecimal digits; it has {size} bytes); restore it "
        "from a backup, or delete it: the server then creates a new key, and all tokens must "
        "be issued again",
        "{path} 中不是服务器密钥（应为 64 位十六进制数字，实际 {size} 字节）；请从备份恢复，"
        "或删除该文件：服务器会生成新密钥，此后所有密钥对都需要重新申请",
    ),
    "server_key_unreadable": (
        "cannot read the server key {path} ({reason}); make it readable for the server, or "
        "restore it from a backup",
        "无法读取服务器密钥 {path}（{reason}），请使其成为服务器可读的文件，或从备份恢复",
    ),
    "database_of_team": (
        "{database} belongs to a team server, but these settings do not have team = true: "
        "jobs of its users would run with the server's permissions; start it with the team's "
        "settings: paddlecloud server start --config FILE",
        "{database} 属于团队服务器，但当前设置中没有 team = true，"
        "其用户的任务会以服务器的权限运行；请使用团队的设置启动：paddlecloud server start "
        "--config FILE",
    ),
    "replica_key_differs": (
        "the server {url} on the same database has a different key; set the same `key` on all "
        "of them",
        "同一数据库上的服务器 {url} 使用了不同的密钥，请为所有服务器设置相同的 key",
    ),
    "replica_node_taken": (
        "the server {url} on the same database also uses the node name {node}; set another "
        "replica.node, or replica.agent = false if both are on one machine",
        "同一数据库上的服务器 {url} 也使用机器名称 {node}；请设置不同的 replica.node，"
        "若两者在同一台机器上，请将其中一个设为 replica.agent = false",
    ),
    "settings_exposed": (
        "{path}: {key} is a secret, but others can read this file (mode {mode}); run chmod "
        '600 on it, or write {key} = {{ env = "NAME" }} or {{ file = "path" }}',
        "{path}：{key} 是机密信息，而其他用户可以读取该文件（权限 {mode}），请执行 chmod 600，"
        '或写成 {key} = {{ env = "变量名" }} 或 {{ file = "路径" }}',
    ),
    "settings_no_secret_file": (
        "{path}: cannot read the file {file} of {key}: {reason}",
        "{path}：{key} 所指的文件 {file} 无法使用：{reason}",
    ),
    "settings_no_variable": (
        "{path}: the environment variable {name} of {key} is not set; set it",
        "{path}：{key} 所指的环境变量 {name} 没有设置，请设置",
    ),
    "tls_expired": (
        "the certificate {path} expired on {ends}; renew it",
        "证书 {path} 已于 {ends} 过期，请更新",
    ),
    "tls_mismatch": (
        "the certificate {cert} and the key {key} do not match; check http.tls_cert and "
        "http.tls_key",
        "证书 {cert} 与私钥 {key} 不匹配，请检查 http.tls_cert 和 http.tls_key",
    ),
    "tls_not_yet": (
        "the certificate {path} is only valid from {begins}; check this machine's clock",
        "证书 {path} 从 {begins} 起才有效，请检查本机时钟",
    ),
    "tls_passphrase": (
        "the key {path} has a passphrase, which the server cannot enter; use a key without one",
        "私钥 {path} 带有口令，服务器无法输入，请改用不带口令的私钥",
    ),
    "tls_unusable": (
        "cannot use {path} for TLS: {reason}; check http.tls_cert and http.tls_key",
        "{path} 不能用于 TLS：{reason}，请检查 http.tls_cert 和 http.tls_key",
    ),
}
