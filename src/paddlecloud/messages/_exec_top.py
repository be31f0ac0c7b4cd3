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
    "exec_not_running": (
        "{worker} of {job_id} is not running ({state}); exec needs a running worker, see "
        "paddlecloud query_job {job_id}",
        "{job_id} 的 {worker} 未在运行（{state}）；命令只能在运行中的实例上执行，请查看 "
        "paddlecloud query_job {job_id}",
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
    "exec_unknown": (
        "{job_id} has no exec command {command}; start one with paddlecloud exec",
        "{job_id} 没有命令 {command}；可用 paddlecloud exec 运行",
    ),
}
