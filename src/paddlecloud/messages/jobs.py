"""Sentences about the life of a job: why it waits, why it ended, and what to do about it.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

JOB_TEXTS: dict[str, tuple[str, str]] = {
    # -- workers -----------------------------------------------------------------------------
    "preflight_no_pserver": (
        "this job runs in PSERVER mode, but PaddlePaddle {version} in {path} has no parameter "
        "server: if it fails, submit it with --distribute_job_type=NCCL2, or install a "
        "PaddlePaddle that has one (2.6.2)",
        "任务使用 PSERVER 模式，但 {path} 中的 PaddlePaddle {version} 不含参数服务器："
        "若任务失败，请加 --distribute_job_type=NCCL2 提交，或安装含参数服务器的版本（2.6.2）",
    ),
    # -- why a job ended ---------------------------------------------------------------------
    "fail_abort": (
        "{worker} aborted itself ({signal}, exit code {exit_code})",
        "{worker} 异常中止（{signal}，退出码 {exit_code}）",
    ),
    "fail_bus": (
        "{worker} was ended by a bus error ({signal}, exit code {exit_code})",
        "{worker} 因总线错误结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_disk_full": (
        "{worker} ended with exit code {exit_code}, and no space was left on a disk: {detail}",
        "{worker} 以退出码 {exit_code} 结束，且磁盘没有剩余空间：{detail}",
    ),
    "fail_exit": (
        "{worker} ended with exit code {exit_code}",
        "{worker} 以退出码 {exit_code} 结束",
    ),
    "fail_fpe": (
        "{worker} was ended by an arithmetic error ({signal}, exit code {exit_code})",
        "{worker} 因算术错误结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_host_memory": (
        "{worker} was ended because the machine ran out of memory (it had used up to {peak})",
        "{worker} 因机器内存耗尽被结束（最多使用过 {peak}）",
    ),
    "fail_hung": (
        "the job hung: no worker printed anything or used the CPU for {quiet}, {worker} for the "
        "longest time, so it was stopped",
        "任务疑似挂起：所有节点超过 {quiet} 没有输出也没有使用 CPU（{worker} 静默最久），已被停止",
    ),
    "fail_ill": (
        "{worker} was ended by an illegal instruction ({signal}, exit code {exit_code})",
        "{worker} 因非法指令结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_lost": (
        "the machine {node} that ran {worker} was not heard of any more",
        "运行 {worker} 的机器 {node} 失去联系",
    ),
    "fail_memory": (
        "{worker} was ended because it used more than its memory limit of {limit}",
        "{worker} 使用的内存超过上限 {limit}，被结束",
    ),
    "fail_memory_default": (
        "{worker} was ended because it used more than {limit} of memory, the limit of jobs without "
        "--memory on this server",
        "{worker} 使用的内存超过 {limit}（本服务器对未指定 --memory 的任务的上限），被结束",
    ),
    "fail_missing": (
        "{worker} could not find {command} (exit code {exit_code})",
        "{worker} 找不到 {command}（退出码 {exit_code}）",
    ),
    "fail_no_paddle": (
        "{worker} ended with exit code {exit_code}: PaddlePaddle is not installed in its Python",
        "{worker} 以退出码 {exit_code} 结束：其 Python 中没有安装 PaddlePaddle",
    ),
    "fail_no_pserver": (
        "{worker} ended with exit code {exit_code}: the job runs in PSERVER mode, and the "
        "PaddlePaddle that it uses has no parameter server",
        "{worker} 以退出码 {exit_code} 结束：任务使用 PSERVER 模式，"
        "而它使用的 PaddlePaddle 不含参数服务器",
    ),
    "fail_not_executable": (
        "{worker} may not execute {command} (exit code {exit_code})",
        "{worker} 无法执行 {command}（退出码 {exit_code}）",
    ),
    "fail_outputs_lost": (
        "{worker} ended well, but its bucket did not take these outputs: {message}",
        "{worker} 正常结束，但存储桶未接收以下输出：{message}",
    ),
    "fail_outputs_untaken": (
        "{worker} ended well, but the server could not store these outputs: {message}",
        "{worker} 正常结束，但服务器未能保存以下输出：{message}",
    ),
    "fail_port_in_use": (
        "{worker} ended with exit code {exit_code}, and a port that it wanted was in use: {detail}",
        "{worker} 以退出码 {exit_code} 结束，它需要的端口已被占用：{detail}",
    ),
    "fail_port_taken": (
        "{worker} could not begin because a port of it is in use: {message}; it is tried again "
        "with other ports (time {times})",
        "{worker} 的端口已被占用，无法启动：{message}；将换用其他端口重试（第 {times} 次）",
    ),
    "fail_ports_taken": (
        "{worker} could not begin because a port of it is in use: {message}; that was so in "
        "{times} attempts in a row, with other ports each time",
        "{worker} 的端口已被占用，无法启动：{message}；连续 {times} 次换用其他端口均如此",
    ),
    "fail_segv": (
        "{worker} was ended by a segmentation fault ({signal}, exit code {exit_code})",
        "{worker} 因段错误结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_sigint": (
        "{worker} was interrupted ({signal}, exit code {exit_code})",
        "{worker} 被中断（{signal}，退出码 {exit_code}）",
    ),
    "fail_sigkill": (
        "{worker} was killed by something outside PaddleCloud ({signal}, exit code {exit_code})",
        "{worker} 被 PaddleCloud 以外的原因强制结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_signal": (
        "{worker} was ended by {signal} (exit code {exit_code})",
        "{worker} 被信号 {signal} 结束（退出码 {exit_code}）",
    ),
    "fail_sigterm": (
        "{worker} was asked to end by something outside PaddleCloud ({signal}, exit code "
        "{exit_code})",
        "{worker} 被 PaddleCloud 以外的原因要求结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_start": (
        "{worker} could not be started: {message}",
        "{worker} 无法启动：{message}",
    ),
    "fail_stopped": (
        "{worker} was stopped by the platform",
        "{worker} 被平台停止",
    ),
    "fail_unwatched": (
        "the supervisor of {worker} on machine {node} was killed, so it is not known how {worker} "
        "would have ended; all its processes were stopped",
        "机器 {node} 上监视 {worker} 的进程被结束，无法得知 {worker} 的结果；其所有进程均已停止",
    ),
    "fail_unwatched_left": (
        "the supervisor of {worker} on machine {node} was killed, so it is not known how {worker} "
        "would have ended; the processes that could be found were stopped, but processes that left "
        "its process tree may still be running",
        "机器 {node} 上监视 {worker} 的进程被结束，无法得知 {worker} 的结果；"
        "能找到的进程均已停止，但脱离其进程树的进程可能仍在运行",
    ),
    "fail_wall_time": (
        "the job ran longer than its wall_time of {wall_time} and was stopped",
        "任务运行时间超过 wall_time {wall_time}，已被停止",
    ),
    "killed_between": (
        "killed on request while it waited for its next attempt",
        "等待下一次运行时被终止（kill_job）",
    ),
    "killed_lost": (
        "killed on request, but lost contact with machine {node}, which was running {worker}: it "
        "may still be running there until the machine is back in contact",
        "已按请求终止（kill_job），但运行 {worker} 的机器 {node} 失去联系："
        "恢复联系之前，{worker} 可能仍在该机器上运行",
    ),
    "killed_running": (
        "killed on request while it ran",
        "运行中被终止（kill_job）",
    ),
    "killed_unsent": (
        "killed on request while it ran; these outputs were not stored: {message}",
        "运行中被终止（kill_job）；以下输出未保存：{message}",
    ),
    "killed_unwatched": (
        "killed on request, but the supervisor of {worker} on machine {node} was killed before: "
        "the processes that could be found were stopped, but processes that left its process tree "
        "may still be running",
        "已按请求终止（kill_job），但此前机器 {node} 上监视 {worker} 的进程已被结束："
        "能找到的进程均已停止，但脱离其进程树的进程可能仍在运行",
    ),
    "killed_waiting": (
        "killed on request before it ran",
        "运行之前被终止（kill_job）",
    ),
    "preempted": (
        "it was stopped to make room for {for_job}, whose priority {by} is above its own, {own}; "
        "it waits for its next place",
        "为优先级更高（{by}）的 {for_job} 让出资源而被停止，自身优先级为 {own}，正在等待重新调度",
    ),
    # -- what to do about it -----------------------------------------------------------------
    "advice_bus": (
        "often a file that was cut short while mapped, or /dev/shm is full: use fewer data workers",
        "常见原因是映射中的文件被截断，或 /dev/shm 已满：请减少数据读取进程数",
    ),
    "advice_crash": (
        "the fault is in native code: check that the installed packages fit each other, and run it "
        "with --env PYTHONFAULTHANDLER=1 to see where",
        "错误发生在本地代码中：请检查已安装的包是否互相匹配，"
        "可加 --env PYTHONFAULTHANDLER=1 查看出错位置",
    ),
    "advice_disk_full": (
        "free space on the machine, or let the job write less, then submit it again; what there "
        "was space for: paddlecloud logs --job_id={job_id}",
        "请清理机器的磁盘或减少任务的写入，然后重新提交；"
        "已保存的日志：paddlecloud logs --job_id={job_id}",
    ),
    "advice_host_memory": (
        "probably the machine had no memory left: use less, or tell the job's need with --memory",
        "很可能是机器内存不足：请减少内存使用，或用 --memory 说明任务所需内存",
    ),
    "advice_hung": (
        "where each Python process stood is in the files log/*/stacks/*: paddlecloud get_files "
        "--job_id={job_id}; a rank that waits for one which does not answer is the usual cause",
        "各 Python 进程当时的调用栈见 log/*/stacks/* 文件：paddlecloud get_files "
        "--job_id={job_id}；常见原因是某个 rank 在等待没有响应的另一个 rank",
    ),
    "advice_illegal": (
        "a package was built for a newer processor than this machine has: install another build",
        "某个包是为更新的处理器编译的：请安装其他版本",
    ),
    "advice_line_ends": (
        "a script has Windows line ends (CR LF), and the shell takes the CR for a part of each "
        "name; convert it with sed -i 's/\\r$//' SCRIPT and submit again",
        "脚本使用了 Windows 换行符（CR LF），shell 会把 CR 当作名称的一部分；"
        "请用 sed -i 's/\\r$//' 脚本文件 转换后重新提交",
    ),
    "advice_killed_lost": (
        "check that machine {node} and its agent are running; the agent stops what is left of the "
        "job when it is back in contact",
        "请检查机器 {node} 及其代理是否在运行；恢复联系后，代理会停止任务的残余进程",
    ),
    "advice_killed_unwatched": (
        "check {node} for processes of the job (ps -ef) and end those that still run",
        "请在 {node} 上查找任务的残余进程（ps -ef）并结束它们",
    ),
    "advice_log": (
        "the last lines are below; the whole log: paddlecloud logs --job_id={job_id}",
        "最后几行日志见下；完整日志：paddlecloud logs --job_id={job_id}",
    ),
    "advice_log_empty": (
        "{worker} printed nothing, so its log is empty; let the start command tell what it does "
        "(in a shell: set -x), then submit it again",
        "{worker} 没有任何输出，日志为空；"
        "请让启动命令输出执行过程（shell 中可用 set -x）后重新提交",
    ),
    "advice_log_of": (
        "the last lines are below; the whole log: paddlecloud logs --job_id={job_id} -w {worker}",
        "最后几行日志见下；完整日志：paddlecloud logs --job_id={job_id} -w {worker}",
    ),
    "advice_lost": (
        "see that the machine and its agent run; --max_retries (now {max_retries}) starts such a "
        "job again",
        "请检查机器及其代理是否在运行；--max_retries（当前 {max_retries}）可使任务自动重试",
    ),
    "advice_memory": (
        "ask for more than {limit} with --memory, or make the batch smaller",
        "请用 --memory 申请大于 {limit} 的内存，或减小 batch",
    ),
    "advice_memory_default": (
        "say with --memory how much the job needs (it may be more than {limit}), or make the batch "
        "smaller",
        "请用 --memory 指定任务所需的内存（可以大于 {limit}），或减小 batch",
    ),
    "advice_missing": (
        "check that {command} is spelled right and lies in the submitted directory or on PATH",
        "请检查 {command} 的拼写，以及它是否在提交的目录或 PATH 中",
    ),
    "advice_module": (
        "install the module {module} in the environment that the job uses, or submit it with the "
        "files",
        "请在任务使用的环境中安装模块 {module}，或随文件一起提交",
    ),
    "advice_no_paddle": (
        "install it in the Python of the job (on your own machine the one of the shell that "
        "submits): python3 -m pip install paddlepaddle",
        "请在任务使用的 Python（本机任务即提交时所在终端的 Python）中安装："
        "python3 -m pip install paddlepaddle",
    ),
    "advice_no_pserver": (
        "submit it with --distribute_job_type=NCCL2, or install a PaddlePaddle that has parameter "
        "servers (2.6.2) in the environment of the job",
        "请加 --distribute_job_type=NCCL2 提交，"
        "或在任务环境中安装含参数服务器的 PaddlePaddle（2.6.2）",
    ),
    "advice_no_rights": (
        'a bucket keeps no right to execute: start it through its interpreter, e.g. "sh {command}"',
        '存储桶不保留可执行权限：请通过解释器启动，例 "sh {command}"',
    ),
    "advice_not_executable": (
        'make it executable (chmod +x {command}) or start it through its interpreter, e.g. "sh '
        '{command}"',
        '请使其可执行（chmod +x {command}），或通过解释器启动，例 "sh {command}"',
    ),
    "advice_outputs_lost": (
        "check the bucket and the keys in [bos] of client.conf, then run it again (`rerun` takes "
        "the keys of now); a job keeps the keys that it was submitted with, so take some that last "
        "longer than it runs",
        "请检查存储桶及 client.conf 中 [bos] 的密钥，然后重新运行（rerun 使用当前的密钥）；"
        "任务始终使用提交时的密钥，请使用有效期长于任务运行时间的密钥",
    ),
    "advice_outputs_untaken": (
        "get the files from where they are kept, or run it again once the store of the server "
        "answers and has room (`doctor` looks at it)",
        "请从保留处取回这些文件，或在服务器的存储恢复且有空间后重新运行（可用 doctor 检查）",
    ),
    "advice_port_in_use": (
        "let the program use the port in PADDLE_PORT, which is its own, or end what holds the "
        "port; --max_retries tries such a job again",
        "请让程序使用 PADDLE_PORT 中属于它的端口，或结束占用该端口的程序；"
        "--max_retries 可使任务自动重试",
    ),
    "advice_port_taken": (
        "it starts again by itself; nothing has to be done",
        "任务会自动重新启动，无需处理",
    ),
    "advice_ports_taken": (
        "end the programs that listen on ports 62001 to 65399 of that machine, then submit it "
        "again",
        "请结束该机器上占用 62001 至 65399 端口的程序，然后重新提交",
    ),
    "advice_preempted": (
        "it starts again by itself when there is room; what it saved into OUTPUT_PATH is given "
        "back to it",
        "有空闲资源时会自动重新启动，已保存到 OUTPUT_PATH 的内容会交还给它",
    ),
    "advice_requirements": (
        "the log has the installer's last lines; try the file yourself before the next submit: "
        "python3 -m pip install -r FILE",
        "安装程序的最后几行输出见任务日志；重新提交前可先自行试装：python3 -m pip install -r 文件",
    ),
    "advice_start": (
        "check the start command and the space on the machine's disk, then submit it again",
        "请检查启动命令和机器的磁盘空间，然后重新提交",
    ),
    "advice_unwatched": (
        "see what ends processes on {node} (a restart, lack of memory, somebody's kill -9); "
        "--max_retries (now {max_retries}) starts such a job again",
        "请检查 {node} 上是什么结束了进程（重启、内存不足或 kill -9）；"
        "--max_retries（当前 {max_retries}）可使任务自动重试",
    ),
    "advice_unwatched_left": (
        "check {node} for processes of the job (ps -ef) and end those that still run; find out "
        "what kills processes there (a restart, lack of memory, kill -9); --max_retries (now "
        "{max_retries}) starts such a job again",
        "请在 {node} 上查找任务的残余进程（ps -ef）并结束它们；"
        "请检查该机器上是什么结束了进程（重启、内存不足或 kill -9）；"
        "--max_retries（当前 {max_retries}）可使任务自动重试",
    ),
    "advice_wall_time": (
        "give more with --wall_time=hh:mm:ss, or save checkpoints into OUTPUT_PATH and go on from "
        "them",
        "请用 --wall_time=hh:mm:ss 增加时间，或把检查点保存到 OUTPUT_PATH 后续训",
    ),
    # -- why a job waits ---------------------------------------------------------------------
    "queue_next": (
        "it asks for {count} x ({asks}); it waited long enough that room is now kept for it in "
        "pool {pool}: it starts when enough has ended there (at most {free} is free on one of "
        "{nodes} machines)",
        "任务需要 {count} 个节点（每个 {asks}）；因等待已久，资源池 {pool} 正为它预留资源，"
        "待足够的任务结束后即启动（{nodes} 台机器中单机最多空闲 {free}）",
    ),
    "queue_no_agent": (
        "pool {pool} has no machine at the moment; it starts when an agent of it is back",
        "资源池 {pool} 目前没有可用的机器，待其代理恢复后启动",
    ),
    "queue_no_cards": (
        "machine {node} has room for it, but not {count} cards that nobody holds; it starts when "
        "some are given back",
        "机器 {node} 有空间，但没有 {count} 张空闲的 GPU 卡，待有卡归还后启动",
    ),
    "queue_no_pool": (
        "none of the pools {pools} takes this kind of job at the moment; ask the administrator",
        "资源池 {pools} 目前都不接受这类任务，请联系管理员",
    ),
    "queue_no_ports": (
        "machine {node} has no {count} free ports for its replicas; it starts when other jobs of "
        "several instances have ended there",
        "机器 {node} 没有 {count} 个空闲端口可供任务的节点使用，待该机器上其他多节点任务结束后启动",
    ),
    "queue_logs_aside": (
        "the log files of its last attempt are being set aside in its storage; the next one begins "
        "when that is done",
        "正在存储中归档上一次运行的日志文件，完成后开始下一次运行",
    ),
    "queue_no_room": (
        "it asks for {count} x ({asks}), and pool {pool} has at most {free} free on one of its "
        "{nodes} machines",
        "任务需要 {count} 个节点（每个 {asks}），"
        "而资源池 {pool} 的 {nodes} 台机器中单机最多空闲 {free}",
    ),
    "queue_pool_refused_again": (
        "pool {pool} refused the job again; it is asked once more at {at}",
        "资源池 {pool} 再次拒绝了任务，将于 {at} 再次尝试",
    ),
    "queue_preempting": (
        "it asks for {count} x ({asks}); jobs of lower priority are being stopped in pool {pool} "
        "to make room for it",
        "任务需要 {count} 个节点（每个 {asks}）；资源池 {pool} 正在停止低优先级的任务为它腾出资源",
    ),
    "queue_reserved": (
        "it asks for {count} x ({asks}), and what is free in pool {pool} is kept for a job that "
        "waits longer",
        "任务需要 {count} 个节点（每个 {asks}），而资源池 {pool} 的空闲资源正为等待更久的任务预留",
    ),
    "queue_retry": (
        "its last attempt failed; retry {retry} of {most} begins at {at}",
        "上一次运行失败，第 {retry} 次重试（共 {most} 次）将于 {at} 开始",
    ),
    "queue_timeout": (
        "it waited longer than {limit} for a place; ask for less, or submit it again later",
        "排队超过 {limit} 仍未调度，请减少申请的资源，或稍后重新提交",
    ),
    "queue_too_large": (
        "it asks for {count} x ({asks}), and pool {pool} has now {nodes} machines of at most {has}",
        "任务需要 {count} 个节点（每个 {asks}），"
        "而资源池 {pool} 现有 {nodes} 台机器，单机最多 {has}",
    ),
}
