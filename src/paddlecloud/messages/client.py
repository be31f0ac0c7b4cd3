"""Sentences of the command line and the client: wrong words, and servers that are not there.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

CLIENT_TEXTS: dict[str, tuple[str, str]] = {
    # -- words of the command line -----------------------------------------------------------
    "command_incomplete": (
        "`paddlecloud {group}` needs a second word, one of: {known}",
        "paddlecloud {group} 之后需要以下之一：{known}",
    ),
    "command_meant": (
        "there is no command {command}; did you mean {meant}?",
        "没有命令 {command}，是否想用 {meant}？",
    ),
    "command_unknown": (
        "there is no command {command}; paddlecloud --help lists them all",
        "没有命令 {command}，paddlecloud --help 列出全部命令",
    ),
    "current_directory_gone": (
        "the directory that you are in was deleted; go to one that exists (cd) and try again",
        "当前所在的目录已被删除，请 cd 到一个存在的目录后重试",
    ),
    "diff_two": (
        "diff compares two jobs, not {count}; name both: paddlecloud diff JOB1 JOB2",
        "diff 需要两个任务 ID，实际给出 {count} 个：paddlecloud diff 任务1 任务2",
    ),
    "flag_bool": (
        "{flag} is {value}, but it can only be 0 or 1",
        "{flag} 的值 {value} 无效，只能是 0 或 1",
    ),
    "flag_choice": (
        "{flag} is {value}, but it can only be one of: {choices}",
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
        "an answer of the server ({size} bytes) was damaged on its way here; try again, and if it "
        "stays so see to the network, or use https",
        "服务器的应答（{size} 字节）在传输中损坏，请重试；如果仍然如此，请检查网络，或使用 https",
    ),
    "flag_needs_flag": (
        "{flag} counts only together with {other}; add {other}, or leave {flag} out",
        "{flag} 只能与 {other} 一起使用，请加上 {other}，或去掉 {flag}",
    ),
    "flag_number": (
        "{flag} is {value}, but it has to be a whole number, 0 or more, of at most 12 digits",
        "{flag} 的值 {value} 无效，应为不超过 12 位的非负整数",
    ),
    "flag_takes_no_value": (
        "{flag} takes no value, but {value} was given; write {flag} alone",
        "{flag} 不需要值，但给出了 {value}，请只写 {flag}",
    ),
    "flag_twice": (
        "{flag} was given twice with different values; keep one",
        "{flag} 给出了两个不同的值，请只保留一个",
    ),
    "flag_unknown": (
        "{command} has no flag {flag}; paddlecloud {command} --help lists them",
        "{command} 没有参数 {flag}，用法见 paddlecloud {command} --help",
    ),
    "operand_second": (
        "{command} takes one {metavar} at a time, and {word} is a second one; put a value with "
        "blanks in quotes, and see paddlecloud {command} --help",
        "{command} 一次只能指定一个 {metavar}，{word} 是多余的；带空格的值请加引号，"
        "用法见 paddlecloud {command} --help",
    ),
    "operand_unexpected": (
        "{command} cannot use the word {word}; put a value with blanks in quotes, and see "
        "paddlecloud {command} --help",
        "{command} 不接受 {word}；带空格的值请加引号，用法见 paddlecloud {command} --help",
    ),
    "job_id_format": (
        "{job_id} is not a job id; it has the form job- and 32 hex digits, "
        "paddlecloud list_jobs shows yours",
        "{job_id} 不是任务 ID；格式为 job- 加 32 位十六进制数字，用 paddlecloud list_jobs 查看",
    ),
    "job_id_missing": (
        "which job? give --job_id=JOB_ID; paddlecloud list_jobs shows yours",
        "缺少任务 ID，请指定 --job_id=任务ID；用 paddlecloud list_jobs 查看",
    ),
    "limit_range": (
        "--limit is {value}, but it has to be between 1 and {high}; --all shows every job",
        "--limit 的值 {value} 应在 1 到 {high} 之间；--all 显示全部任务",
    ),
    "shell_missing": (
        "for which shell? one of: {shells}",
        "请指定 shell：{shells}",
    ),
    # -- the client --------------------------------------------------------------------------
    "keys_missing": (
        "there is no ak and sk for {host}; get them with paddlecloud gen_token --email=ADDRESS, or "
        "write yours into [main] of {path}",
        "没有 {host} 的 ak/sk，请用 paddlecloud gen_token --email=邮箱地址 获取，"
        "或填写到 {path} 的 [main] 中",
    ),
    "response_invalid": (
        "the server's response is not valid: {where} is {value}, expected {want}; the server, or a "
        "proxy before it, may be broken or of another version",
        "服务器的响应无效：{where} 的值为 {value}，应为 {want}；"
        "服务器或其前面的代理可能有故障，或版本不同",
    ),
    "response_large": (
        "the server's response is not valid: it is larger than {limit}; ask for less, or have the "
        "server looked at",
        "服务器的响应无效：超过 {limit}；请缩小查询范围，或检查服务器",
    ),
    "response_any": ("any value", "任意值"),
    "response_at_least": ("at least {least}", "至少 {least}"),
    "response_at_most": ("at most {most} rows", "最多 {most} 行"),
    "response_choice": ("one of {choices}", "{choices} 之一"),
    "response_count": ("a whole number from 0 to {most}", "0 到 {most} 之间的整数"),
    "response_flag": ("true or false", "true 或 false"),
    "response_frame": ("a frame of a log", "日志帧"),
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
    "response_url": ("an address (http or https)", "地址（http 或 https）"),
    "response_whole": ("the whole of it", "整个响应"),
    "stdout_lost": (
        "the answer could not be written to stdout ({reason}); what was asked for may be done "
        "already, look before you repeat it",
        "无法将结果写到标准输出（{reason}）；操作可能已经完成，重试前请先确认",
    ),
    "stdout_lost_job": (
        "the job was accepted as {job_id}, but stdout could not be written ({reason}); do not "
        "submit it again, look at it: paddlecloud query_job {job_id}",
        "任务已提交，ID 为 {job_id}，但无法写到标准输出（{reason}）；请勿重复提交，"
        "可用 paddlecloud query_job {job_id} 查看",
    ),
    "upload_unfinished": (
        "{path} was sent several times and is still not whole on the server (files like that: "
        "{files}); submit again, and have the store of the server looked at if it goes on",
        "{path} 已多次上传，但在服务器上仍不完整（此类文件共 {files} 个）；"
        "请重新提交，若仍然如此，请检查服务器的存储",
    ),
    "wait_timeout": (
        "{job_id} is still {state} after {seconds} s; wait longer, or look at it with query_job",
        "{job_id} 等待 {seconds} 秒后仍为 {state}，可继续等待，或用 query_job 查看",
    ),
    # -- the private server ------------------------------------------------------------------
    "embedded_unsupported": (
        "the private server needs Linux or macOS, this is {system}; set the address of your "
        "server as [openapi] host in client.conf",
        "本机服务器需要 Linux 或 macOS（当前为 {system}），请在 client.conf 的 [openapi] host "
        "中填写服务器地址",
    ),
    "home_unusable": (
        "{home} cannot be used ({reason}); set PADDLECLOUD_HOME to a directory that you may write",
        "无法使用目录 {home}（{reason}），请把 PADDLECLOUD_HOME 设为可写的目录",
    ),
    "server_died": (
        "the private server ended with code {code} before it was ready: {last} (see {log})",
        "本机服务器在就绪前退出（代码 {code}）：{last}（详见 {log}）",
    ),
    "server_died_silently": (
        "the private server ended with code {code} before it was ready and did not say why; "
        "look at {log}, or try: paddlecloud server run",
        "本机服务器在就绪前退出（代码 {code}），没有说明原因；请查看 {log}，"
        "或执行 paddlecloud server run",
    ),
    "server_does_not_stop": (
        "the private server of {home} did not stop within {seconds} s; end it by its pid, which "
        "`paddlecloud server status` shows",
        "{home} 的本机服务器在 {seconds} 秒内没有停止，"
        "请用 paddlecloud server status 查看 pid 并结束它",
    ),
    "server_files_unusable": (
        "the server cannot use its files in {home} ({reason}); make sure that there is space left "
        "and that you may write there",
        "服务器无法读写 {home} 中的文件（{reason}），请确认磁盘有剩余空间且该目录可写",
    ),
    "server_not_installed": (
        "the private server needs the package {package}: pip install 'paddlecloud[server]'; or set "
        "the address of a server as [openapi] host in client.conf",
        "本机服务器缺少依赖 {package}：pip install 'paddlecloud[server]'；或在 client.conf 的 "
        "[openapi] host 中填写服务器地址",
    ),
    "server_not_ready": (
        "the private server does not answer after {seconds} s; see {log}",
        "本机服务器 {seconds} 秒内没有响应，请查看 {log}",
    ),
    "server_runs_already": (
        "a server of {home} runs already; stop it first: paddlecloud server stop",
        "{home} 的服务器已在运行；请先停止：paddlecloud server stop",
    ),
    "server_runs_with": (
        "the server runs already, with {own}; for {path} stop it first: paddlecloud server stop",
        "服务器已使用 {own} 运行；要使用 {path}，请先停止：paddlecloud server stop",
    ),
    "server_runs_without": (
        "the server runs already, without a settings file; for {path} stop it first: "
        "paddlecloud server stop",
        "服务器已在运行，没有使用设置文件；要使用 {path}，请先停止：paddlecloud server stop",
    ),
    "server_settings_gone": (
        "the server of {home} was last started with {path}, which is gone; put it back, or name "
        "another: paddlecloud server start --config FILE",
        "{home} 的服务器上次使用的设置文件 {path} 已不存在；请恢复它，或指定另一个："
        "paddlecloud server start --config FILE",
    ),
    "server_start_blocked": (
        "another command has been starting the private server for too long; it holds {path}",
        "另一条命令启动本机服务器耗时过长，它占用了 {path}",
    ),
    "server_start_in_job": (
        "a job ({replica}) cannot start the private server, because it would end with the job; "
        "start it outside of jobs: paddlecloud server start",
        "任务（{replica}）内不能启动本机服务器，因为它会随任务一起结束；"
        "请在任务之外执行 paddlecloud server start",
    ),
    "server_was_stopped": (
        "the private server was stopped; start it: paddlecloud server start",
        "本机服务器已停止；启动：paddlecloud server start",
    ),
}
