"""Messages about `exec` and `top`."""

from __future__ import annotations

LIVE_TEXTS: dict[str, tuple[str, str]] = {
    # -- what was asked for and what was used ------------------------------------------------
    "asked_much_cpu": (
        "{job_id} requested {asked:g} CPU per worker and used at most {used:.2f} on average; "
        "a smaller --cpu is placed sooner",
        "{job_id} 每个实例申请了 {asked:g} 个 CPU，平均最多只用了 {used:.2f} 个；减小 --cpu "
        "可以更快获得资源",
    ),
    "asked_much_memory": (
        "{job_id} requested {asked} MiB of memory per worker and used at most {used} MiB; a "
        "smaller --memory is placed sooner",
        "{job_id} 每个实例申请了 {asked} MiB 内存，最多只用了 {used} MiB；减小 --memory "
        "可以更快获得资源",
    ),
    # -- commands beside a worker ------------------------------------------------------------
    "exec_command_long": (
        "the command has {size} bytes, more than {limit}; put it into a file of the job, or send"
        " it on stdin to a shell",
        "命令有 {size} 字节，超过上限 {limit}；请写进任务的文件，或通过标准输入交给 shell",
    ),
    "exec_command_missing": (
        "exec needs a command after --: paddlecloud exec JOB_ID -- COMMAND [WORD ...]",
        "exec 需要在 -- 之后给出命令：paddlecloud exec JOB_ID -- 命令 [参数 ...]",
    ),
    "exec_command_zero": (
        "an argument of the command contains a NUL byte, which no program can receive; remove it",
        "命令的参数中含有空字节，无法传给程序，请去掉",
    ),
    "exec_ended_failed": (
        "cannot run the command in {worker}: {detail}; try again",
        "命令无法在 {worker} 旁运行：{detail}，请重试",
    ),
    "exec_ended_left": (
        "the command was stopped because its output was not read for {seconds:g} s; keep exec "
        "running as long as you need it",
        "命令的输出已有 {seconds:g} 秒无人读取，命令已结束；需要它时请保持 exec 运行",
    ),
    "exec_ended_output_lost": (
        "{detail} bytes of the command's output could not be written to disk on the machine "
        "of {worker}; free disk space there and run the command again",
        "命令打印的内容有 {detail} 字节无法写入 {worker} 所在机器的磁盘；"
        "请检查磁盘空间后重新运行命令",
    ),
    "exec_ended_replica_over": (
        "the command was stopped because {worker} has ended; see paddlecloud query_job {job_id}",
        "{worker} 已结束，命令随之结束；请查看 paddlecloud query_job {job_id}",
    ),
    "exec_ended_stopped": ("the command was stopped", "命令已被停止"),
    "exec_ended_timeout": (
        "the command was stopped after {seconds:g} s; --timeout allows more",
        "命令运行超过 {seconds:g} 秒，已结束；可用 --timeout 延长",
    ),
    "exec_ended": (
        "command {command} has ended; run it again",
        "命令 {command} 已结束；请重新运行",
    ),
    "exec_json_large": (
        "the command was stopped because it printed more than {limit} MiB, too much for "
        "--json; run it without --json, or write to a file of the job",
        "命令输出超过 {limit} MiB，对 --json 来说过多，命令已被停止；请不加 --json 运行，"
        "或让命令写入任务的文件",
    ),
    "exec_many": (
        "{worker} of {job_id} already runs {count} exec commands, the limit is {limit}; wait "
        "until one ends (a command whose exec has exited ends within three minutes)",
        "{job_id} 的 {worker} 已有 {count} 个命令在运行，上限为 {limit}，请等其中一个结束（"
        "exec 已退出的命令会在三分钟内结束）",
    ),
    "exec_no_terminal": (
        "command {command} was started without a terminal; use paddlecloud exec -it",
        "启动命令 {command} 时没有请求终端；请加上 -t 重新运行",
    ),
    "exec_not_running": (
        "{worker} of {job_id} is not running ({state}); exec and port-forward need a running "
        "one, see paddlecloud query_job {job_id}",
        "{job_id} 的 {worker} 未在运行（{state}）；exec 和 port-forward 只能用于运行中的实例，"
        "请查看 paddlecloud query_job {job_id}",
    ),
    "exec_output_taken": (
        "the output of command {command} before byte {offset} was already read and is no "
        "longer kept; run the command again",
        "命令 {command} 在第 {offset} 字节之前的输出已被读取，不再保留；请重新运行命令",
    ),
    "exec_stdin_large": (
        "stdin has more than {limit} bytes, the limit of a command; put the data into a file "
        "of the job",
        "标准输入超过 {limit} 字节，命令最多接收这么多；请放进任务的文件",
    ),
    "exec_terminal_json": (
        "a terminal has no JSON output; leave out --json or -t",
        "终端没有 JSON 输出；请去掉 --json 或 -t",
    ),
    "exec_terminal_lost": (
        "the connection to the terminal of {worker} was lost and its command was stopped; run it "
        "again",
        "与 {worker} 的终端连接已断开，命令已停止；请重新运行",
    ),
    "exec_terminal_missing": (
        "-t needs a terminal, and stdin or stdout is a pipe or a file; leave out -t",
        "-t 需要终端，而标准输入或标准输出是管道或文件；请去掉 -t",
    ),
    "exec_terminal_windows": (
        "exec -t is not supported on Windows; leave out -t, or run it in WSL",
        "Windows 不支持 exec -t；请去掉 -t，或在 WSL 中运行",
    ),
    "exec_unknown": (
        "{job_id} has no exec command {command}; start one with paddlecloud exec",
        "{job_id} 没有命令 {command}；可用 paddlecloud exec 运行",
    ),
    # -- ports of a worker on this machine ---------------------------------------------------
    "port_forward_address": (
        "cannot listen on {address} port {port}: {reason}; choose another --address or port",
        "无法在 {address} 的端口 {port} 上监听：{reason}；请更换 --address 或端口",
    ),
    "port_forward_forbidden": (
        "you may not listen on port {port} of this machine; choose a port above 1023: "
        "{other}:{remote}",
        "没有权限监听本机端口 {port}；请使用 1023 以上的端口，例如 {other}:{remote}",
    ),
    "port_forward_in_use": (
        "port {port} of this machine is in use; choose another one, for example {other}:{remote}, "
        "or 0:{remote} for any free one",
        "本机端口 {port} 已被占用；请换一个，例如 {other}:{remote}，或用 0:{remote} 任选空闲端口",
    ),
    "port_forward_missing": (
        "port-forward needs a port of the worker: paddlecloud port-forward JOB_ID 8888",
        "port-forward 需要实例的端口：paddlecloud port-forward JOB_ID 8888",
    ),
    "port_forward_ports": (
        "{word} is no port; give the worker's, 1 to 65535, or LOCAL:REMOTE, for example 18888:8888",
        "{word} 不是端口；请填写实例的端口（1 到 65535），或 LOCAL:REMOTE，例如 18888:8888",
    ),
    # -- tunnels to a port or a terminal of a worker -----------------------------------------
    "tunnel_agent_silent": (
        "the agent of machine {node} did not connect to this server ({url}) within {seconds:g} s; "
        "try again, and if it lasts, check that the machine can reach that address",
        "机器 {node} 的执行端（Agent）在 {seconds:g} 秒内没有连接本服务器（{url}）；"
        "请重试，若一直如此，请检查该机器能否访问此地址",
    ),
    "tunnel_failed": (
        "cannot connect to {worker}: {reason}; try again",
        "无法连接到 {worker}：{reason}，请重试",
    ),
    "tunnel_many": (
        "{count} connections into jobs are open, the limit is {limit}; close some, for example "
        "tabs of the browser, and try again",
        "已打开 {count} 个到任务的连接，上限为 {limit}；请关闭一些（例如浏览器标签页）后重试",
    ),
    "tunnel_port_closed": (
        "nothing listens on port {port} of {worker} of {job_id}; start the program there, or wait "
        "until it is ready",
        "{job_id} 的 {worker} 上没有程序监听端口 {port}；请先启动程序，或等它就绪",
    ),
    "tunnel_port_foreign": (
        "port {port} on the machine of {worker} does not belong to a program of {job_id}; choose "
        "the port that the job listens on",
        "{worker} 所在机器的端口 {port} 不属于 {job_id} 的程序；请填写该任务监听的端口",
    ),
    "tunnel_unknown": (
        "no tunnel {tunnel} waits here; open another one",
        "这里没有等待中的隧道 {tunnel}；请重新建立",
    ),
    "tunnel_upgrade_missing": (
        "this address accepts WebSocket connections only (RFC 6455, version 13); if a proxy stands "
        "before the server, let it pass the Upgrade and Connection headers on",
        "此地址只接受 WebSocket 连接（RFC 6455，版本 13）；如果服务器前面有反向代理，"
        "请让它转发 Upgrade 和 Connection 请求头",
    ),
    "tunnel_worker_over": (
        "{worker} of {job_id} is not running any more; see paddlecloud query_job {job_id}",
        "{job_id} 的 {worker} 已不在运行；请查看 paddlecloud query_job {job_id}",
    ),
}
