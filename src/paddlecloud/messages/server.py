"""Sentences about the server's own settings, its certificate and its door, by stable code."""

from __future__ import annotations

SERVER_TEXTS: dict[str, tuple[str, str]] = {
    "auth_cross_site": (
        "a page of {origin} made this request, and only this server's own pages may; open this "
        "server's address itself",
        "该请求由 {origin} 的网页发出，只接受本服务器自身网页的请求，请直接访问本服务器",
    ),
    "check_certificate": (
        "{path} is for {names} and is good until {ends}, {days} days",
        "证书 {path} 适用于 {names}，有效期至 {ends}，还有 {days} 天",
    ),
    "check_database_failed": (
        "the database does not answer: {reason}; check database.url",
        "数据库没有应答：{reason}，请检查 database.url",
    ),
    "check_directory": (
        "files can be written to {path}",
        "{path} 可以写入",
    ),
    "check_exposed": (
        "others may read {path}, which holds a secret (mode {mode}); chmod 600 it",
        "其他用户可以读取 {path}，其中含有机密信息（权限 {mode}），请执行 chmod 600",
    ),
    "check_file": (
        "{path} is in order",
        "{path} 没有问题",
    ),
    "check_insecure": (
        "{host} port {port} is open without TLS, so everybody on the way can read along; set "
        "http.tls_cert and http.tls_key, unless a proxy in front has the certificate",
        "{host} 端口 {port} 没有使用 TLS，传输途中的任何人都可以读取内容；"
        "请设置 http.tls_cert 和 http.tls_key，除非前端代理已配置证书",
    ),
    "check_key_file": (
        "the server's key is kept in {path}",
        "服务器密钥保存在 {path}",
    ),
    "check_key_own": (
        "the server's key is kept in {path}; several servers on one database need the same one: "
        "set key",
        "服务器密钥保存在 {path}；共用一个数据库的多台服务器必须使用同一个密钥，请设置 key",
    ),
    "check_key_set": (
        "the server's key is set",
        "已设置服务器密钥",
    ),
    "check_mail": (
        "{host} port {port} takes mail from us",
        "{host} 端口 {port} 可以发送邮件",
    ),
    "check_no_name": (
        "the server knows no name of its own and will refuse people who use one; set "
        "http.public_url",
        "服务器不知道自己的名字，会拒绝使用名字访问的请求，请设置 http.public_url",
    ),
    "check_no_file": (
        "there is no {path}; everything is as it is by default",
        "没有 {path}，全部使用默认值",
    ),
    "check_no_mail": (
        "there is no mail server, so gen_token cannot send tokens; set [mail], or hand them out "
        "with paddlecloud admin token",
        "没有邮件服务器，gen_token 无法发送密钥，请设置 [mail]，或用 paddlecloud admin token 发放",
    ),
    "check_no_memory_limit": (
        "no control group can be written to here, so jobs of this machine have no memory limit; "
        "run the server as root, or delegate the memory controller to it",
        "此处没有可写的控制组，本机任务的内存无法限制；请以 root 运行服务器，"
        "或将 memory 控制器委派给它",
    ),
    "check_not_writable": (
        "{path} cannot be written to; give it to the user that runs the server",
        "无法写入 {path}，请将其授权给运行服务器的用户",
    ),
    "check_plain": (
        "{host} port {port}, this machine alone",
        "{host} 端口 {port}，仅限本机访问",
    ),
    "check_plain_url": (
        "http.public_url is {url}, but the server speaks TLS; write https://",
        "http.public_url 为 {url}，但服务器使用 TLS，请改为 https://",
    ),
    "check_postgres": (
        "PostgreSQL {version} answers",
        "PostgreSQL {version} 应答正常",
    ),
    "field_above": (
        "{field} is {value}, and {limit} is the most; give less",
        "{field} 为 {value}，最大为 {limit}，请减小",
    ),
    "field_below": (
        "{field} is {value}, and {limit} is the least; give more",
        "{field} 为 {value}，最小为 {limit}，请增大",
    ),
    "field_choice": (
        "{field} is {value}, and it has to be one of: {known}",
        "{field} 为 {value}，只能是以下之一：{known}",
    ),
    "field_entries_least": (
        "{field} has {size} entries, and {limit} are the least; give more",
        "{field} 有 {size} 项，至少需要 {limit} 项，请增加",
    ),
    "field_entries_most": (
        "{field} has {size} entries, and {limit} are the most; give fewer at once",
        "{field} 有 {size} 项，最多允许 {limit} 项，请分批给出",
    ),
    "field_letters_least": (
        "{field} has {size} letters, and {limit} are the least; give a longer one",
        "{field} 有 {size} 个字符，至少需要 {limit} 个，请加长",
    ),
    "field_letters_most": (
        "{field} has {size} letters, and {limit} are the most; give a shorter one",
        "{field} 有 {size} 个字符，最多允许 {limit} 个，请缩短",
    ),
    "field_missing": (
        "{field} is missing; give it",
        "缺少 {field}，请给出",
    ),
    "field_not_less": (
        "{field} is {value}, and it has to be less than {limit}",
        "{field} 为 {value}，必须小于 {limit}",
    ),
    "field_not_more": (
        "{field} is {value}, and it has to be more than {limit}",
        "{field} 为 {value}，必须大于 {limit}",
    ),
    "field_rule": (
        "{field} is {value}, and it has to be {rule}",
        "{field} 为 {value}，应为{rule}",
    ),
    "field_twice": (
        "{field} is given twice; give it once",
        "{field} 给出了两次，请只保留一个",
    ),
    "field_unknown": (
        "there is no {field}; leave it out, or use a server that knows it",
        "没有 {field} 这一项，请去掉，或使用支持它的服务器",
    ),
    "head_too_large": (
        "the head of the request has more than {limit} bytes; send fewer or shorter headers",
        "请求头超过 {limit} 字节，请减少或缩短请求头",
    ),
    "health_agent_silent": (
        "no word from the agent for over {seconds} s: {agents}; look at its log and that its "
        "machine runs",
        "超过 {seconds} 秒没有代理的消息：{agents}，请查看其日志并确认机器在运行",
    ),
    "health_apart": (
        "kept apart by uid",
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
        "no agent was ever seen, so no job can run; start one, or wait if the server has just "
        "started",
        "从未收到代理的消息，任务无法运行；请启动代理，若服务器刚刚启动请稍候",
    ),
    "health_no_memory_limit": (
        "{agents}; jobs have no memory limit on {names}: let its agent write to control groups",
        "{agents}；{names} 上的任务没有内存限制，请允许其代理写入控制组",
    ),
    "health_unsent_deleted": (
        "{agents}; for lack of space here outputs that could not be sent were deleted before their "
        "time, {times} times, last on {at}: free disk space",
        "{agents}；因本机磁盘空间不足，未能上传的输出被提前删除，共 {times} 次，"
        "最近一次在 {at}，请清理磁盘",
    ),
    "health_store": (
        "{wrote} was written to {path} and {found} was read back; look at the disk of the store",
        "向 {path} 写入 {wrote}，读回的却是 {found}，请检查存储所在的磁盘",
    ),
    "kind_bool": ("true or false", "true 或 false"),
    "kind_integer": ("a whole number", "整数"),
    "kind_list": ("a list", "列表"),
    "kind_nothing": ("nothing", "空"),
    "kind_number": ("a number", "数字"),
    "kind_object": ("names with values", "键值对"),
    "kind_text": ("text", "文本"),
    "rule_hex": ("hex digits", "十六进制数字"),
    "rule_no_nul": ("text without a NUL character", "不含空字符（NUL）的文本"),
    "rule_printable": (
        "text without line ends and other control characters",
        "不含换行等控制字符的文本",
    ),
    "rule_sha256": ("a sha256: 64 hex digits", "sha256（64 位十六进制数字）"),
    "rule_user_id": (
        "letters, digits, _ . and -, with a letter or digit in front",
        "由字母、数字、_ . - 组成且以字母或数字开头的名称",
    ),
    "rule_word": ("letters, digits, _ . and -", "由字母、数字、_ . - 组成的名称"),
    "server_cert_expired": (
        "the certificate of {address} is out of date; its admin has to renew it (and check this "
        "machine's clock)",
        "{address} 的证书不在有效期内，请联系管理员更新证书，并检查本机时钟",
    ),
    "server_cert_issuer": (
        "the certificate of {address} comes from an issuer that this machine does not know "
        "({reason}); write the issuer's certificate as ca_file into [openapi] of client.conf, or "
        "set PADDLECLOUD_CA_FILE",
        "{address} 的证书由本机不认识的机构签发（{reason}），请在 client.conf 的 [openapi] 中用 "
        "ca_file 指定签发机构的证书，或设置 PADDLECLOUD_CA_FILE",
    ),
    "server_cert_name": (
        "the certificate of {address} is for another name ({reason}); use the name that is in it",
        "{address} 的证书属于另一个名字（{reason}），请使用证书中的名字",
    ),
    "server_no_tls": (
        "{address} does not speak TLS as this client does ({reason}); check the port, or write "
        "http:// if the server has no certificate",
        "{address} 的 TLS 与本客户端不兼容（{reason}），请检查端口；如果服务器没有证书，请使用 http://",
    ),
    "ca_file_unusable": (
        "the file {path} with the issuer's certificate cannot be used: {reason}; correct ca_file",
        "签发机构的证书文件 {path} 无法使用：{reason}，请更正 ca_file",
    ),
    "database_lost": (
        "the database {database} is missing or empty, but keys and files of its jobs are still "
        "there; restore it from a backup, or start without its jobs: paddlecloud server start "
        "--fresh (moves the old keys and files aside, deletes nothing)",
        "数据库 {database} 不存在或为空，但其任务的密钥和文件仍在；请从备份恢复，"
        "或放弃其中的任务重新开始：paddlecloud server start --fresh"
        "（原有的密钥和文件会移到一旁，不会删除）",
    ),
    "fresh_agent_runs": (
        "the agent that holds {path} does not end; end it, then start again with --fresh",
        "占用 {path} 的执行端（Agent）没有结束，请结束它，然后再用 --fresh 启动",
    ),
    "fresh_bucket_used": (
        "--fresh cannot move the objects of {place} aside; set another store.prefix or "
        "store.bucket first",
        "--fresh 无法移走 {place} 中的对象，请先设置其他的 store.prefix 或 store.bucket",
    ),
    "fresh_cannot_move": (
        "{path} cannot be moved to {target} ({reason}); move it yourself, then start again with "
        "--fresh",
        "无法把目录或文件 {path} 移到 {target}（{reason}），请自行将其移走，然后再用 --fresh 启动",
    ),
    "fresh_jobs_run": (
        "jobs of the lost database are still running ({replicas}); wait until they have ended, or "
        "end their processes, then start again with --fresh",
        "丢失的数据库中仍有任务在运行（{replicas}）；请等待其结束或结束其进程，"
        "然后再用 --fresh 启动",
    ),
    "fresh_not_lost": (
        "the database {database} is not lost, so there is nothing to start without it for; leave "
        "--fresh out",
        "数据库 {database} 没有丢失，无需重新开始，请去掉 --fresh",
    ),
    "server_key_damaged": (
        "{path} does not hold a server key (64 hexadecimal digits; it has {size} bytes); restore "
        "it from a backup, or delete it: a new key is made then, and all tokens have to be made "
        "again",
        "{path} 中不是服务器密钥（应为 64 位十六进制数字，实际 {size} 字节）；请从备份恢复，"
        "或删除该文件：服务器会生成新密钥，此后所有密钥对都需要重新申请",
    ),
    "server_key_unreadable": (
        "the server key {path} cannot be read ({reason}); make it a file that the server may read, "
        "or restore it from a backup",
        "无法读取服务器密钥 {path}（{reason}），请使其成为服务器可读的文件，或从备份恢复",
    ),
    "database_of_team": (
        "{database} belongs to a team server, and these settings do not say team = true: its "
        "users' jobs would run with the rights of the server; start it with the team's settings: "
        "paddlecloud server start --config FILE",
        "{database} 属于团队服务器，但当前设置中没有 team = true，"
        "其用户的任务会以服务器的权限运行；请使用团队的设置启动："
        "paddlecloud server start --config FILE",
    ),
    "replica_key_differs": (
        "the server {url} on the same database has another key; give all of them the same `key`",
        "同一数据库上的服务器 {url} 使用了不同的密钥，请为所有服务器设置相同的 key",
    ),
    "replica_node_person": (
        "this machine is to be called {node} (replica.node), and so is a user of this server; set"
        " another replica.node",
        "本机名称 {node}（replica.node）与本服务器的一个用户同名；请设置不同的 replica.node",
    ),
    "replica_node_taken": (
        "the server {url} on the same database has the node {node} too; set another replica.node,"
        " or replica.agent = false if both are on one machine",
        "同一数据库上的服务器 {url} 也使用机器名称 {node}；请设置不同的 replica.node，"
        "若两者在同一台机器上，请将其中一个设为 replica.agent = false",
    ),
    "settings_exposed": (
        "{path}: {key} is a secret, and others may read this file (mode {mode}); chmod 600 it, or "
        'write {key} = {{ env = "NAME" }} or {{ file = "path" }}',
        "{path}：{key} 是机密信息，而其他用户可以读取该文件（权限 {mode}），"
        "请执行 chmod 600，或写成 "
        '{key} = {{ env = "变量名" }} 或 {{ file = "路径" }}',
    ),
    "settings_no_secret_file": (
        "{path}: the file {file} that {key} is to be read from cannot be used: {reason}",
        "{path}：{key} 所指的文件 {file} 无法使用：{reason}",
    ),
    "settings_no_variable": (
        "{path}: the variable {name} that {key} is to be read from is not set; set it",
        "{path}：{key} 所指的环境变量 {name} 没有设置，请设置",
    ),
    "tls_expired": (
        "the certificate {path} ended on {ends}; renew it",
        "证书 {path} 已于 {ends} 过期，请更新",
    ),
    "tls_mismatch": (
        "the certificate {cert} and the key {key} do not belong together; name a pair in "
        "http.tls_cert and http.tls_key",
        "证书 {cert} 与私钥 {key} 不匹配，请检查 http.tls_cert 和 http.tls_key",
    ),
    "tls_not_yet": (
        "the certificate {path} begins only on {begins}; check this machine's clock",
        "证书 {path} 从 {begins} 起才有效，请检查本机时钟",
    ),
    "tls_passphrase": (
        "the key {path} has a passphrase, and nobody is there to type it; write it without one",
        "私钥 {path} 带有口令，服务器无法输入，请改用不带口令的私钥",
    ),
    "tls_unusable": (
        "{path} cannot be used for TLS: {reason}; check http.tls_cert and http.tls_key",
        "{path} 不能用于 TLS：{reason}，请检查 http.tls_cert 和 http.tls_key",
    ),
}
