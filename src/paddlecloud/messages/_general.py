"""Messages of more than one area: authentication, connections, database, client configuration."""

from __future__ import annotations

GENERAL_TEXTS = {
    # -- general -----------------------------------------------------------------------------
    "internal": (
        "internal server error (request {request_id}); see the server log",
        "服务器内部错误（请求 {request_id}），详情见服务器日志",
    ),
    "unknown_answer": (
        "the server responded with status {status}, which this client does not understand",
        "服务器返回了本客户端不理解的状态 {status}",
    ),
    # -- authentication ----------------------------------------------------------------------
    "auth_missing": (
        "the request is not signed; sign it with your ak and sk",
        "请求没有签名，请使用 ak/sk 签名",
    ),
    "auth_malformed": (
        "the Authorization header is not of the form bce-auth-v1/ak/time/seconds/headers/signature",
        "Authorization 头的格式应为 bce-auth-v1/ak/时间/有效秒数/签名头/签名",
    ),
    "auth_unknown_key": (
        "access key {ak} is unknown or was revoked; request a new token with gen_token",
        "access key {ak} 不存在或已被吊销，请用 gen_token 重新申请",
    ),
    "auth_expire_long": (
        "the signature is valid for {expire} s, the maximum is {limit} s; sign each request "
        "separately",
        "签名有效期为 {expire} 秒，最长允许 {limit} 秒，请为每个请求重新签名",
    ),
    "auth_expired": (
        "the signature of {timestamp} expired after {expire} s: the server time is {now}, "
        "{seconds} s later; check this machine's clock",
        "{timestamp} 的签名已超过 {expire} 秒有效期，服务器时间为 {now}（相差 {seconds} 秒），"
        "请检查本机时钟",
    ),
    "auth_future": (
        "the signature is dated {timestamp}, later than the server's clock ({now}, {seconds} "
        "s earlier); check this machine's clock",
        "签名时间 {timestamp} 晚于服务器时间 {now}（相差 {seconds} 秒），请检查本机时钟",
    ),
    "auth_signature": (
        "the signature does not match; check the sk that belongs to access key {ak}",
        "签名不匹配，请检查 access key {ak} 对应的 sk",
    ),
    "auth_body_hash": (
        "the body does not match the signed sha256; it was changed in transit, send it again",
        "请求体与签名中的 sha256 不一致，可能在传输中被修改，请重新发送",
    ),
    "auth_replay": (
        "this signed request was already used; sign a new one",
        "该签名请求已被使用过，请重新签名",
    ),
    "auth_nonce": (
        "the header x-bce-nonce is {nonce}, expected {digits} lower-case hexadecimal digits; "
        "create a new one for each request, in Python with secrets.token_hex(16)",
        "请求头 x-bce-nonce 为 {nonce}，应为 {digits} 位小写十六进制数字，"
        "请为每个请求生成新的值，例如 Python 的 secrets.token_hex(16)",
    ),
    "auth_header_unsigned": (
        "the header {header} must be covered by the signature",
        "请求头 {header} 必须包含在签名中",
    ),
    "auth_host": (
        "the Host header {host} is not a name of this server",
        "Host 头 {host} 不是本服务器的名字",
    ),
    "auth_admin": (
        "only an admin can do this, and {user_id} is not one; ask an admin of this server",
        "只有管理员可以执行此操作，{user_id} 不是管理员，请联系本服务器的管理员",
    ),
    "auth_role": (
        "access key {ak} belongs to a {role}; it cannot use this route",
        "access key {ak} 属于 {role}，不能使用该接口",
    ),
    # -- the way to the server ---------------------------------------------------------------
    "body_shrank": (
        "the body ended after {sent} of {size} bytes; do not change files while they are uploaded",
        "请求体只有 {sent} 字节，应为 {size} 字节，请勿在上传过程中修改文件",
    ),
    "server_closed": (
        "{address} closed the connection before the response was complete; try again",
        "{address} 在响应完成之前关闭了连接，请重试",
    ),
    "server_malformed": (
        "unexpected response from {address} ({detail}): this is not a PaddleCloud server; "
        "check host and port",
        "{address} 的响应不符合 PaddleCloud 服务器的格式（{detail}），请检查 host 和 port",
    ),
    "server_timeout": (
        "{address} did not respond within {seconds:g} s; check host and port, or try again later",
        "{address} 在 {seconds:g} 秒内没有响应，请检查 host 和 port，或稍后再试",
    ),
    "server_unreachable": (
        "cannot connect to {address}: {reason}; check host and port, and that the server is "
        "running",
        "无法连接 {address}：{reason}，请检查 host 和 port 以及服务器是否在运行",
    ),
    # -- database ----------------------------------------------------------------------------
    "database_busy": (
        "no database connection to {path} became free within {seconds} s; try again, and "
        "raise database.connections if it keeps happening",
        "{seconds} 秒内没有空闲的数据库连接（{path}），请重试；若持续出现请调大 "
        "database.connections",
    ),
    "database_clash": (
        "a record conflicts with an existing one ({detail}); check the existing one, then try "
        "again",
        "记录与已有记录冲突（{detail}），请先查看已有内容再重试",
    ),
    "database_closed": (
        "the server is shutting down and accepts no more changes; try again in a moment",
        "服务器正在关闭，不再接受修改，请稍后重试",
    ),
    "database_driver_missing": (
        "a PostgreSQL database needs the package psycopg ({detail}); install paddlecloud[postgres]",
        "使用 PostgreSQL 需要 psycopg（{detail}），请安装 paddlecloud[postgres]",
    ),
    "database_failed": (
        "cannot use the database {path} ({detail}); nothing was changed, try again, and check "
        "the server's disk if it keeps failing",
        "无法使用数据库 {path}（{detail}），未做任何修改，请重试；若持续出现请检查服务器磁盘",
    ),
    "database_full": (
        "no disk space left for the database {path}; nothing was changed, free some space and "
        "try again",
        "数据库 {path} 所在磁盘已满，未做任何修改，请清理空间后重试",
    ),
    "database_migration_edited": (
        "migration {name} of the database differs from the one in this version; use the "
        "version that created the database",
        "数据库的迁移 {name} 与本版本不一致，请使用创建该数据库的版本",
    ),
    "database_migrations_gap": (
        "the migrations in {folder} are not numbered consecutively; install again",
        "{folder} 中的迁移编号不连续，请重新安装",
    ),
    "database_mistake": (
        "internal error: invalid database query ({detail}); see the server log",
        "服务器对数据库的请求有误（{detail}），详情见服务器日志",
    ),
    "database_unsure": (
        "the connection to {path} broke during a commit, so the change may or may not have "
        "been made; check the result, or repeat the same request",
        "提交时与 {path} 的连接中断，修改可能已生效也可能未生效，请查看结果或原样重试",
    ),
    "database_url_wrong": (
        "the database URL is not valid (it is not shown, because it holds a password); write "
        "postgresql://user:password@host:5432/name",
        "无法解析数据库地址（其中含密码，不予显示），格式为 "
        "postgresql://user:password@host:5432/name",
    ),
    "number_out_of_range": (
        "a number is too large to be stored ({detail}); use a smaller one",
        "数值过大，无法保存（{detail}），请使用较小的数值",
    ),
    "text_not_unicode": (
        "a text contains an incomplete character (a lone surrogate) and cannot be stored; "
        "correct it",
        "文本中含有不完整的字符（孤立代理），无法保存，请更正",
    ),
    "text_with_nul": (
        "a text contains a NUL character and cannot be stored; remove it",
        "文本中含有空字符（NUL），无法保存，请将其删除",
    ),
    "database_newer": (
        "the database has version {found}, this program supports versions up to {known}; "
        "install a newer program",
        "数据库版本为 {found}，本程序最高支持 {known}，请安装较新的程序",
    ),
    "job_changed_meanwhile": (
        "job {job_id} was changed by another request after version {version}; query it again",
        "任务 {job_id} 在版本 {version} 之后已被修改，请重新查看",
    ),
    # -- replicas on this machine ------------------------------------------------------------
    "replica_never_started": (
        "replica {replica} could not be started on this machine: {reason}",
        "实例 {replica} 无法在本机启动：{reason}",
    ),
    "replica_not_started": (
        "replica {replica} could not be started on this machine: {reason}; this is retried",
        "实例 {replica} 无法在本机启动：{reason}，稍后会重试",
    ),
    # -- configuration of the client -----------------------------------------------------------
    "config_debug": (
        "{origin}: debug is {value}; it must be 0 or 1",
        "{origin}：debug 为 {value}，只能是 0 或 1",
    ),
    "config_encoding": (
        "{path} is not UTF-8 text (byte {offset}); save it as UTF-8",
        "{path} 不是 UTF-8 文本（第 {offset} 字节），请另存为 UTF-8",
    ),
    "config_exposed": (
        "{path} holds a secret key and is readable by others (mode {mode}); run chmod 600 on it",
        "{path} 含有 sk，但其他用户可读（权限 {mode}），请执行 chmod 600",
    ),
    "config_host": (
        "{origin}: {value} is not a server address; write name, name:port, http://name or "
        "https://name",
        "{origin}：{value} 不是服务器地址，请写 名称、名称:端口、http://名称 或 https://名称",
    ),
    "config_key": (
        "{origin}: the value of {name} contains an invalid character; paste it again",
        "{origin}：{name} 的值含有不允许的字符，请重新粘贴",
    ),
    "config_lang": (
        "{origin}: language {value} is not available; use zh or en",
        "{origin}：没有 {value} 语言的消息，请使用 zh 或 en",
    ),
    "config_line": (
        '{origin}: cannot read "{line}"; write [section] or key = value',
        "{origin}：无法识别“{line}”，请写成 [section] 或 key = value",
    ),
    "config_missing": (
        "the configuration file {path} does not exist (from {origin})",
        "{origin} 指定的配置文件 {path} 不存在",
    ),
    "config_mixed_pair": (
        "ak comes from {ak} and sk from {sk}; they are probably not a pair",
        "ak 来自 {ak}，sk 来自 {sk}，二者很可能不是一对",
    ),
    "config_no_section": (
        "{origin}: {key} is before the first [section]; put [main] above it",
        "{origin}：{key} 出现在第一个 [section] 之前，请在其上方加 [main]",
    ),
    "config_port": (
        "{origin}: port {value} is not a number from 1 to 65535",
        "{origin}：端口 {value} 不是 1 到 65535 的数字",
    ),
    "config_scheme": (
        "{origin}: scheme is {value}; it must be http or https",
        "{origin}：scheme 为 {value}，只能是 http 或 https",
    ),
    "config_too_large": (
        "{path} has more than {limit} bytes; this is not a configuration file",
        "{path} 超过 {limit} 字节，不可能是配置文件",
    ),
    "config_two_values": (
        "{name} is {used} in the host; the other value at {origin} is not used, remove it",
        "host 中的 {name} 为 {used}，{origin} 处的另一个值未被使用，请删除",
    ),
    "config_unknown_key": (
        "{origin}: unknown key {key} in [{section}] is ignored; did you mean {suggestion}?",
        "{origin}：[{section}] 中没有 {key}，已忽略，是否想写 {suggestion}？",
    ),
    "config_unknown_section": (
        "{origin}: unknown section [{section}] is ignored; did you mean {suggestion}?",
        "{origin}：未知的 [{section}]，已忽略，是否想写 {suggestion}？",
    ),
    "config_unreadable": (
        "cannot read the configuration file {path}: {reason}",
        "无法读取配置文件 {path}：{reason}",
    ),
    "config_unwritable": (
        "cannot write the configuration file {path}: {reason}",
        "无法写入配置文件 {path}：{reason}",
    ),
    "config_value": (
        "cannot write the value of {name} to {path}: it is empty, or contains a line break, a "
        "comment mark or a leading or trailing space",
        "{name} 的值无法写入 {path}：为空，或含有换行、注释符号或首尾空格",
    ),
    # -- server ------------------------------------------------------------------------------
    "pool_exists": (
        "there is a pool called {pool} already, in the settings file or the database",
        "设置文件或数据库中已有名为 {pool} 的资源池",
    ),
    "pool_in_use": (
        "jobs run in the pool {pool}; wait for them or end them before it is deleted",
        "资源池 {pool} 中有任务在运行，请等待其结束或终止后再删除",
    ),
    "pool_unknown": (
        "there is no pool called {pool} in the database",
        "数据库中没有名为 {pool} 的资源池",
    ),
    "join_node_taken": (
        "there is a machine called {node} already; give this one another name",
        "已有名为 {node} 的机器，请为本机另取名称",
    ),
    "join_node_unknown": (
        "{node} is not a machine of the attempt that this join token is for: {known}",
        "{node} 不属于该加入令牌对应的运行（{known}）",
    ),
    "join_often": (
        "{limit} requests with a wrong join token within an hour, which is the limit; try again in "
        "{minutes} minutes",
        "一小时内已有 {limit} 次使用了错误的加入令牌，达到上限，请在 {minutes} 分钟后重试",
    ),
    "join_pool": (
        "machines cannot join the pool {pool} with a token",
        "机器不能通过令牌加入资源池 {pool}",
    ),
    "join_token_unknown": (
        "the join token is unknown, used up or expired; create another one",
        "加入令牌未知、已用完或已过期，请重新创建",
    ),
    "agent_name": (
        "the agent identifies itself as {agent}, but its key belongs to {own}",
        "执行端（Agent）自称 {agent}，但其密钥属于 {own}",
    ),
    "area_unknown": (
        "{area} is not an output area; use output or log",
        "{area} 不是输出文件的位置，请使用 output 或 log",
    ),
    "attempt_unknown": (
        "job {job_id} has no attempt {attempt}; it has {attempts}",
        "任务 {job_id} 没有第 {attempt} 次尝试，目前共 {attempts} 次",
    ),
    "backend_later": (
        "pool {pool} cannot start the job yet; this is retried",
        "资源池 {pool} 暂时无法启动任务，稍后会重试",
    ),
    "backend_incomplete": (
        "backend {kind} lacks the method {missing}; install a version that matches this server",
        "后端 {kind} 缺少每个后端都必须有的方法 {missing}，请安装与此服务器匹配的版本",
    ),
    "backend_refused": (
        "pool {pool} refused to start the job; trying the next pool",
        "资源池 {pool} 拒绝启动任务，将尝试下一个资源池",
    ),
    "backend_unknown": (
        "unknown backend {kind}; check the pools in the server's settings",
        "没有名为 {kind} 的后端，请检查服务器设置中的资源池",
    ),
    "body_cut": (
        "the connection ended after {size} bytes of the body; send it again",
        "请求体在 {size} 字节处中断，请重新发送",
    ),
    "body_invalid": (
        "invalid request body: {detail}",
        "无法接受所给的内容：{detail}",
    ),
    "body_too_large": (
        "the request body exceeds the limit of {limit} bytes; send less at once",
        "请求体超过 {limit} 字节的上限，请分批发送",
    ),
    "fence_stale": (
        "the attempt of {replica} is over (fence {fence}); stop it",
        "{replica} 所属的尝试已结束（fence {fence}），请停止它",
    ),
    "file_unknown": (
        "job {job_id} has no file {path}; see get_files",
        "任务 {job_id} 没有文件 {path}，请用 get_files 查看文件列表",
    ),
    "idempotency_key_reused": (
        "idempotency key {key} was used for another submit ({job_id}); use a new one",
        "幂等键 {key} 已用于另一次提交（{job_id}），请换一个",
    ),
    "illegal_transition": (
        "a job in state {state} cannot accept the event {event}",
        "状态为 {state} 的任务不能接受事件 {event}",
    ),
    "job_ambiguous": (
        "{job} is the beginning of several job ids: {candidates}; give more of the id",
        "有多个任务 ID 以 {job} 开头：{candidates}；请多给几位",
    ),
    "job_is_final": (
        "job {job_id} has already ended as {state}; there is nothing to kill",
        "任务 {job_id} 已结束（{state}），无需终止",
    ),
    "job_is_final_why": (
        "job {job_id} has already ended as {state} ({reason}); there is nothing to kill",
        "任务 {job_id} 已结束（{state}：{reason}），无需终止",
    ),
    "job_is_held": (
        "job {job_id} has ended, but its machine is still cleaning up; try again in a moment",
        "任务 {job_id} 已结束，但所在机器仍在收尾，请稍后重试",
    ),
    "job_not_over": (
        "job {job_id} has not ended (state {state}), and only ended jobs can be deleted; end "
        "it with kill_job",
        "任务 {job_id} 的状态为 {state}：只能删除已结束的任务，请先用 kill_job 结束任务",
    ),
    "job_last_none": (
        "you have no job yet, so last means none; submit one with submit_job",
        "您还没有任务，last 没有对应的任务，请先用 submit_job 提交",
    ),
    "job_reference_unknown": (
        "you have no job {job}: no id begins so (give 4 hex digits or more) and no job has this "
        "name; see list_jobs",
        "您没有任务 {job}：没有以它开头的任务 ID（至少 4 位十六进制数字），也没有同名的任务，"
        "请用 list_jobs 查看任务列表",
    ),
    "job_unknown": (
        "you have no job {job_id}; see list_jobs",
        "您没有任务 {job_id}，请用 list_jobs 查看任务列表",
    ),
    "listen_failed": (
        "cannot listen on {host}: {reason}; check http.host and http.port in the server's settings",
        "无法在 {host} 上监听：{reason}，请检查服务器设置中的 http.host 和 http.port",
    ),
    "not_planned_yet": (
        "it was just accepted and is being scheduled",
        "任务刚刚提交，正在为它寻找资源",
    ),
    "lease_lost": (
        "another server has taken over {name}; this server writes nothing more for it",
        "另一台服务器已接管 {name}，本服务器不再为其写入",
    ),
    "query_invalid": (
        "invalid query: {detail}",
        "无法接受所给的查询参数：{detail}",
    ),
    "queue_pool_refused": (
        "pool {pool} refused the job; trying another placement",
        "资源池 {pool} 拒绝了任务，正在寻找其他资源",
    ),
    "queue_starting": (
        "placed in pool {pool}; the job is being started there",
        "已在资源池 {pool} 找到资源，正在启动任务",
    ),
    "replica_unknown": (
        "this agent has no replica {replica}",
        "该执行端（Agent）没有实例 {replica}",
    ),
    "route_unknown": (
        "no route {method} {path}; see /api/v1/openapi.json",
        "没有接口 {method} {path}，请参见 /api/v1/openapi.json",
    ),
    "settings_unknown": (
        "{path}: unknown setting {key}; did you mean {suggestion}?",
        "{path}：没有设置项 {key}，是否指 {suggestion}？",
    ),
    "settings_unreadable": (
        "cannot read the settings file {path}: {reason}",
        "无法读取设置文件 {path}：{reason}",
    ),
    "snapshot_below_file": (
        "{path} is below {above}, which is not a directory",
        "{path} 位于 {above} 之下，但后者不是目录",
    ),
    "snapshot_digest": (
        "the file {path} has no valid size and sha256",
        "文件 {path} 缺少有效的大小和 sha256",
    ),
    "snapshot_elsewhere": (
        "the files {snapshot} are in different storage than this job uses; give the files "
        "themselves, or use the storage where they are",
        "文件 {snapshot} 不在该任务所用的存储中，请直接提交文件，或使用文件所在的存储",
    ),
    "snapshot_kind": (
        "{path} is a {kind}; a snapshot holds files, directories and links",
        "{path} 的类型是 {kind}，快照只能包含文件、目录和链接",
    ),
    "snapshot_link": (
        "the link {path} -> {target} points outside the submitted directory; copy its target "
        "into it",
        "链接 {path} -> {target} 指向提交目录之外，请将其目标复制到目录内",
    ),
    "snapshot_missing": (
        "the files {snapshot} are not uploaded yet; upload them first",
        "文件 {snapshot} 尚未上传，请先上传",
    ),
    "snapshot_name_twice": (
        "{path} appears twice in the list of files",
        "文件列表中 {path} 出现了两次",
    ),
    "snapshot_unknown": (
        "you have no files {snapshot}",
        "您没有文件 {snapshot}",
    ),
    "state_unknown": (
        "{value} is not a job state; the states are: {known}",
        "{value} 不是任务状态，任务状态有：{known}",
    ),
    "worker_unknown": (
        "the job has no worker {worker}; it has: {known}",
        "任务没有名为 {worker} 的实例，现有：{known}",
    ),
}
