"""Messages about the command line and the client: arguments, responses, the embedded server."""

from __future__ import annotations

CLIENT_TEXTS: dict[str, tuple[str, str]] = {
    # -- words of the command line -----------------------------------------------------------
    "command_incomplete": (
        "`paddlecloud {group}` needs a subcommand: {known}",
        "paddlecloud {group} 之后需要以下之一：{known}",
    ),
    "command_meant": (
        "unknown command {command}; did you mean {meant}?",
        "没有命令 {command}，是否想用 {meant}？",
    ),
    "command_unknown": (
        "unknown command {command}; see paddlecloud help all",
        "没有命令 {command}，paddlecloud help all 列出全部命令",
    ),
    "command_unknown_in": (
        "unknown command {command}; `paddlecloud {group}` has: {known}",
        "没有命令 {command}，paddlecloud {group} 之后可以是：{known}",
    ),
    "current_directory_gone": (
        "the current directory was deleted; cd to an existing one and try again",
        "当前所在的目录已被删除，请 cd 到一个存在的目录后重试",
    ),
    "diff_two": (
        "diff compares two jobs, got {count}: paddlecloud diff JOB1 JOB2",
        "diff 需要两个任务 ID，实际给出 {count} 个：paddlecloud diff 任务1 任务2",
    ),
    "flag_bool": (
        "{flag}={value} is not valid; use 0 or 1",
        "{flag} 的值 {value} 无效，只能是 0 或 1",
    ),
    "flag_choice": (
        "{flag}={value} is not valid; use one of: {choices}",
        "{flag} 的值 {value} 无效，可选：{choices}",
    ),
    "flag_meant": (
        "{command} has no flag {flag}; did you mean {meant}?",
        "{command} 没有参数 {flag}，是否想用 {meant}？",
    ),
    "flag_needs_value": (
        "{flag} needs a value: {flag}={metavar}",
        "{flag} 需要一个值：{flag}={metavar}",
    ),
    "answer_damaged": (
        "a server response ({size} bytes) was damaged in transit; try again, and if it "
        "happens again check the network or use https",
        "服务器的响应（{size} 字节）在传输中损坏，请重试；如果仍然如此，请检查网络，或使用 https",
    ),
    "flag_needs_flag": (
        "{flag} only works together with {other}; add {other} or remove {flag}",
        "{flag} 只能与 {other} 一起使用，请加上 {other}，或去掉 {flag}",
    ),
    "flag_number": (
        "{flag}={value} is not valid; use a whole number from 0, at most 12 digits",
        "{flag} 的值 {value} 无效，应为不超过 12 位的非负整数",
    ),
    "flag_takes_no_value": (
        "{flag} takes no value but got {value}; write {flag} alone",
        "{flag} 不需要值，但给出了 {value}，请只写 {flag}",
    ),
    "flag_twice": (
        "{flag} is given twice with different values; keep one",
        "{flag} 给出了两个不同的值，请只保留一个",
    ),
    "flag_unknown": (
        "{command} has no flag {flag}; see paddlecloud {command} --help",
        "{command} 没有参数 {flag}，用法见 paddlecloud {command} --help",
    ),
    "operand_second": (
        "{command} takes one {metavar}, {word} is a second one; quote values with spaces, and "
        "see paddlecloud {command} --help",
        "{command} 一次只能指定一个 {metavar}，{word} 是多余的；带空格的值请加引号，用法见 "
        "paddlecloud {command} --help",
    ),
    "operand_unexpected": (
        "{command} does not take the argument {word}; quote values with spaces, and see "
        "paddlecloud {command} --help",
        "{command} 不接受 {word}；带空格的值请加引号，用法见 paddlecloud {command} --help",
    ),
    "job_id_format": (
        "{job_id} cannot be a job; give its id, the beginning of the id (4 hex digits or more), "
        "its name, or last, see paddlecloud list_jobs",
        "{job_id} 不能表示任务；请给出任务 ID、ID 的开头（至少 4 位十六进制数字）、任务名称或 "
        "last，用 paddlecloud list_jobs 查看",
    ),
    "job_id_missing": (
        "no job given; write its id, the beginning of the id, its name, or last, alone or as "
        "--job_id=JOB, see paddlecloud list_jobs",
        "没有指定任务；请直接或用 --job_id=任务 给出任务 ID、ID 的开头、任务名称或 last，用 "
        "paddlecloud list_jobs 查看",
    ),
    "limit_range": (
        "--limit={value} is not between 1 and {high}; --all shows every job",
        "--limit 的值 {value} 应在 1 到 {high} 之间；--all 显示全部任务",
    ),
    "shell_missing": (
        "no shell given; use one of: {shells}",
        "请指定 shell：{shells}",
    ),
    # -- values that a program gives to the SDK ----------------------------------------------
    "argument_json": (
        "a value cannot be sent as JSON: {reason}; give texts, numbers, lists and dicts",
        "有的值无法以 JSON 发送：{reason}；请使用文本、数字、列表和字典",
    ),
    "argument_number": (
        "{name} is {value}; give a number",
        "{name} 的值为 {value}，应为数字",
    ),
    "argument_text": (
        "{name} is {value}; give a text that is not empty",
        "{name} 的值为 {value}，应为非空文本",
    ),
    "exec_command_words": (
        "the command is {value}; give a list of texts, such as ['ls', '-l']",
        "命令为 {value}，应为文本列表，例如 ['ls', '-l']",
    ),
    "job_without_client": (
        "{job_id} has no connection, because it was copied or read from a pickle; get it with "
        "client.query_job",
        "{job_id} 由复制或 pickle 得到，没有连接，请用 client.query_job 重新获取",
    ),
    "job_without_files": (
        "job {job_id} has no files under {prefix}, so nothing was downloaded",
        "任务 {job_id} 在 {prefix} 下没有文件，没有下载任何内容",
    ),
    "param_not_in_sdk": (
        "{name} has no meaning in a program; use {instead}",
        "{name} 在程序中没有意义，请用 {instead}",
    ),
    # -- the client --------------------------------------------------------------------------
    "keys_missing": (
        "no ak and sk for {host}; get them with paddlecloud gen_token --email=ADDRESS, or put "
        "yours into [main] of {path}",
        "没有 {host} 的 ak/sk，请用 paddlecloud gen_token --email=邮箱地址 获取，或填写到 "
        "{path} 的 [main] 中",
    ),
    "response_invalid": (
        "invalid server response: {where} is {value}, expected {want}; the server, or a proxy "
        "in front of it, may be broken or run another version",
        "服务器的响应无效：{where} 的值为 {value}，应为 {want}；"
        "服务器或其前面的代理服务器可能有故障，或版本不同",
    ),
    "response_large": (
        "invalid server response: larger than {limit}; ask for less, or check the server",
        "服务器的响应无效：超过 {limit}；请缩小查询范围，或检查服务器",
    ),
    "response_any": ("any value", "任意值"),
    "response_at_least": ("at least {least}", "至少 {least}"),
    "response_at_most": ("at most {most} rows", "最多 {most} 行"),
    "response_choice": ("one of {choices}", "{choices} 之一"),
    "response_count": ("a whole number from 0 to {most}", "0 到 {most} 之间的整数"),
    "response_flag": ("true or false", "true 或 false"),
    "response_frame": (
        "a log frame",
        "日志帧",
    ),
    "response_integer": ("a whole number up to {most}", "不超过 {most} 的整数"),
    "response_list": ("a list", "列表"),
    "response_missing": ("missing", "（缺失）"),
    "response_null": ("null, the end of the list", "null（列表结束）"),
    "response_number": ("a number up to {most}", "不超过 {most} 的数"),
    "response_object": ("an object", "对象"),
    "response_ours": ("a file of this submit", "本次提交的文件"),
    "response_positive": ("a whole number above 0", "大于 0 的整数"),
    "response_row": ("a list of {count} values", "含 {count} 个值的列表"),
    "response_scalar": ("text, a number, true, false or null", "文本、数、true、false 或 null"),
    "response_some_list": ("a list", "列表"),
    "response_some_object": ("an object", "对象"),
    "response_text": ("text", "文本"),
    "response_time": ("a time", "时间"),
    "response_job_id": (
        "a job id (job- and 32 hex digits)",
        "任务 ID（job- 加 32 位十六进制数字）",
    ),
    "response_url": (
        "a URL (http or https)",
        "地址（http 或 https）",
    ),
    "response_whole": (
        "the whole response",
        "整个响应",
    ),
    "stdout_lost": (
        "cannot write the result to stdout ({reason}); the operation may already be done, "
        "check before you repeat it",
        "无法将结果写到标准输出（{reason}）；操作可能已经完成，重试前请先确认",
    ),
    "stdout_lost_job": (
        "the job was accepted as {job_id}, but stdout could not be written ({reason}); do not "
        "submit it again, see paddlecloud query_job {job_id}",
        "任务已提交，ID 为 {job_id}，但无法写到标准输出（{reason}）；请勿重复提交，可用 "
        "paddlecloud query_job {job_id} 查看",
    ),
    "upload_unfinished": (
        "{path} is still incomplete on the server after several uploads ({files} such files); "
        "submit again, and check the server's store if it happens again",
        "{path} 已多次上传，但在服务器上仍不完整（此类文件共 {files} 个）；请重新提交，"
        "若仍然如此，请检查服务器的存储",
    ),
    "wait_timeout": (
        "{job_id} is still {state} after {seconds} s; wait longer, or see paddlecloud query_job",
        "{job_id} 等待 {seconds} 秒后仍为 {state}，可继续等待，或用 query_job 查看",
    ),
    # -- the embedded server ------------------------------------------------------------------
    "embedded_unsupported": (
        "the embedded server needs Linux or macOS, this is {system}; set [openapi] host in "
        "client.conf to the address of your server",
        "本机服务器需要 Linux 或 macOS（当前为 {system}），请在 client.conf 的 [openapi] host "
        "中填写服务器地址",
    ),
    "home_unusable": (
        "cannot use {home} ({reason}); set PADDLECLOUD_HOME to a writable directory",
        "无法使用目录 {home}（{reason}），请把 PADDLECLOUD_HOME 设为可写的目录",
    ),
    "server_died": (
        "the embedded server exited with code {code} before it was ready: {last} (see {log})",
        "本机服务器在就绪前退出（代码 {code}）：{last}（详见 {log}）",
    ),
    "server_died_silently": (
        "the embedded server exited with code {code} before it was ready, without a message; "
        "see {log}, or try: paddlecloud server run",
        "本机服务器在就绪前退出（代码 {code}），没有说明原因；请查看 {log}，或执行 "
        "paddlecloud server run",
    ),
    "server_does_not_stop": (
        "the embedded server of {home} did not stop within {seconds} s; end it by the pid "
        "that `paddlecloud server status` shows",
        "{home} 的本机服务器在 {seconds} 秒内没有停止，请用 paddlecloud server status 查看 "
        "pid 并结束它",
    ),
    "server_files_unusable": (
        "the server cannot use its files in {home} ({reason}); check the free disk space and "
        "the permissions",
        "服务器无法读写 {home} 中的文件（{reason}），请确认磁盘有剩余空间且该目录可写",
    ),
    "server_not_installed": (
        "the server needs the package {package}: pip install 'paddlecloud[server]', in a checkout "
        "make install; or set [openapi] host in client.conf to the address of a server",
        "服务器缺少依赖 {package}：pip install 'paddlecloud[server]'（源码目录中用 make install）；"
        "或在 client.conf 的 [openapi] host 中填写服务器地址",
    ),
    "server_not_ready": (
        "the embedded server did not respond within {seconds} s; see {log}",
        "本机服务器 {seconds} 秒内没有响应，请查看 {log}",
    ),
    "server_runs_already": (
        "a server of {home} is already running; stop it first: paddlecloud server stop",
        "{home} 的服务器已在运行；请先停止：paddlecloud server stop",
    ),
    "server_runs_with": (
        "the server is already running with {own}; to use {path}, stop it first: paddlecloud "
        "server stop",
        "服务器已使用 {own} 运行；要使用 {path}，请先停止：paddlecloud server stop",
    ),
    "server_runs_without": (
        "the server is already running without a settings file; to use {path}, stop it first: "
        "paddlecloud server stop",
        "服务器已在运行，没有使用设置文件；要使用 {path}，请先停止：paddlecloud server stop",
    ),
    "server_settings_gone": (
        "the server of {home} was last started with {path}, which no longer exists; restore "
        "it, or give another file: paddlecloud server start --config FILE",
        "{home} 的服务器上次使用的设置文件 {path} 已不存在；请恢复它，或指定另一个："
        "paddlecloud server start --config FILE",
    ),
    "server_start_blocked": (
        "another command has been starting the embedded server for too long; it holds {path}",
        "另一条命令启动本机服务器耗时过长，它占用了 {path}",
    ),
    "server_start_in_job": (
        "a job ({replica}) cannot start the embedded server, because the server would end "
        "with the job; start it outside of jobs: paddlecloud server start",
        "任务（{replica}）内不能启动本机服务器，因为它会随任务一起结束；请在任务之外执行 "
        "paddlecloud server start",
    ),
    "server_was_stopped": (
        "the embedded server is stopped; start it: paddlecloud server start",
        "本机服务器已停止；启动：paddlecloud server start",
    ),
}
