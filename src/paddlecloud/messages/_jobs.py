"""Messages about jobs: why they wait, why they ended, advice."""

from __future__ import annotations

JOB_TEXTS: dict[str, tuple[str, str]] = {
    # -- workers -----------------------------------------------------------------------------
    "preflight_no_pserver": (
        "this job runs in PSERVER mode, but PaddlePaddle {version} in {path} has no parameter "
        "server; if it fails, submit it with --distribute_job_type=NCCL2, or install a "
        "PaddlePaddle that has one (2.6.2)",
        "任务使用 PSERVER 模式，但 {path} 中的 PaddlePaddle {version} 不含参数服务器："
        "若任务失败，请加 --distribute_job_type=NCCL2 提交，或安装含参数服务器的版本（2.6.2）",
    ),
    # -- why a job ended ---------------------------------------------------------------------
    "fail_abort": (
        "{worker} aborted ({signal}, exit code {exit_code})",
        "{worker} 异常中止（{signal}，退出码 {exit_code}）",
    ),
    "fail_abort_error": (
        "{worker} aborted ({signal}, exit code {exit_code}): {error}",
        "{worker} 异常中止（{signal}，退出码 {exit_code}）：{error}",
    ),
    "fail_bus": (
        "{worker} was terminated by a bus error ({signal}, exit code {exit_code})",
        "{worker} 因总线错误结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_disk_full": (
        "{worker} exited with code {exit_code} because a disk was full: {detail}",
        "{worker} 以退出码 {exit_code} 结束，且磁盘没有剩余空间：{detail}",
    ),
    "fail_exit": (
        "{worker} exited with code {exit_code}",
        "{worker} 以退出码 {exit_code} 结束",
    ),
    "fail_exit_error": (
        "{worker} exited with code {exit_code}: {error}",
        "{worker} 以退出码 {exit_code} 结束：{error}",
    ),
    "fail_fpe": (
        "{worker} was terminated by an arithmetic error ({signal}, exit code {exit_code})",
        "{worker} 因算术错误结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_host_memory": (
        "{worker} was killed because the machine ran out of memory (its peak was {peak})",
        "{worker} 因机器内存耗尽被结束（最多使用过 {peak}）",
    ),
    "fail_hung": (
        "the job hung: no worker printed anything or used the CPU for {quiet} ({worker} "
        "longest), so it was stopped",
        "任务疑似挂起：所有实例超过 {quiet} 没有输出也没有使用 CPU（{worker} 静默最久），已被停止",
    ),
    "fail_ill": (
        "{worker} was terminated by an illegal instruction ({signal}, exit code {exit_code})",
        "{worker} 因非法指令结束（{signal}，退出码 {exit_code}）",
    ),
    "fail_lost": (
        "lost contact with machine {node}, which was running {worker}",
        "运行 {worker} 的机器 {node} 失去联系",
    ),
    "fail_memory": (
        "{worker} was killed because it exceeded its memory limit of {limit}",
        "{worker} 使用的内存超过上限 {limit}，被结束",
    ),
    "fail_memory_default": (
        "{worker} was killed because it exceeded {limit} of memory, this server's limit for "
        "jobs without --memory",
        "{worker} 使用的内存超过 {limit}（本服务器对未指定 --memory 的任务的上限），被结束",
    ),
    "fail_missing": (
        "{worker} could not find {command} (exit code {exit_code})",
        "{worker} 找不到 {command}（退出码 {exit_code}）",
    ),
    "fail_no_paddle": (
        "{worker} exited with code {exit_code}: PaddlePaddle is not installed in its Python",
        "{worker} 以退出码 {exit_code} 结束：其 Python 中没有安装 PaddlePaddle",
    ),
    "fail_no_pserver": (
        "{worker} exited with code {exit_code}: the job runs in PSERVER mode, but its "
        "PaddlePaddle has no parameter server",
        "{worker} 以退出码 {exit_code} 结束：任务使用 PSERVER 模式，而它使用的 PaddlePaddle "
        "不含参数服务器",
    ),
    "fail_not_executable": (
        "{worker} has no permission to execute {command} (exit code {exit_code})",
        "{worker} 无法执行 {command}（退出码 {exit_code}）",
    ),
    "fail_not_retried": (
        "{message}; not retried: {why}",
        "{message}；未重试：{why}",
    ),
    "fail_outputs_lost": (
        "{worker} succeeded, but its bucket did not accept these outputs: {message}",
        "{worker} 正常结束，但存储桶未接收以下输出：{message}",
    ),
    "fail_outputs_untaken": (
        "{worker} succeeded, but the server could not store these outputs: {message}",
        "{worker} 正常结束，但服务器未能保存以下输出：{message}",
    ),
    "fail_port_in_use": (
        "{worker} exited with code {exit_code} because a port it needs was in use: {detail}",
        "{worker} 以退出码 {exit_code} 结束，它需要的端口已被占用：{detail}",
    ),
    "fail_port_taken": (
        "{worker} could not start because one of its ports is in use: {message}; retrying "
        "with other ports (retry {times})",
        "{worker} 的端口已被占用，无法启动：{message}；将换用其他端口重试（第 {times} 次）",
    ),
    "fail_ports_taken": (
        "{worker} could not start because one of its ports is in use: {message}; this "
        "happened in {times} attempts in a row, with other ports each time",
        "{worker} 的端口已被占用，无法启动：{message}；连续 {times} 次换用其他端口均如此",
    ),
    "fail_segv": (
        "{worker} was terminated by a segmentation fault ({signal}, exit code {exit_code})",
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
        "{worker} was terminated by {signal} (exit code {exit_code})",
        "{worker} 被信号 {signal} 结束（退出码 {exit_code}）",
    ),
    "fail_sigterm": (
        "{worker} was terminated by something outside PaddleCloud ({signal}, exit code "
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
    "fail_restored": (
        "the server was restored from its backup of {at}, when {worker} was running on machine "
        "{node}; the outcome of {worker} is unknown",
        "服务器已从 {at} 的备份恢复，备份时 {worker} 正在机器 {node} 上运行，"
        "无法得知 {worker} 的结果",
    ),
    "fail_unwatched": (
        "the supervisor of {worker} on machine {node} was killed, so the outcome of {worker} "
        "is unknown; all its processes were stopped",
        "机器 {node} 上监视 {worker} 的进程被结束，无法得知 {worker} 的结果；其所有进程均已停止",
    ),
    "fail_unwatched_left": (
        "the supervisor of {worker} on machine {node} was killed, so the outcome of {worker} "
        "is unknown; the processes that were found were stopped, but processes that left its "
        "process tree may still be running",
        "机器 {node} 上监视 {worker} 的进程被结束，无法得知 {worker} 的结果；"
        "能找到的进程均已停止，但脱离其进程树的进程可能仍在运行",
    ),
    "fail_wall_time": (
        "the job exceeded its wall_time of {wall_time} and was stopped",
        "任务运行时间超过 wall_time {wall_time}，已被停止",
    ),
    "killed_between": (
        "killed on request while waiting for its next attempt",
        "等待下一次运行时被终止（kill_job）",
    ),
    "killed_lost": (
        "killed on request, but lost contact with machine {node}, which was running {worker}: it "
        "may still be running there until the machine is back in contact",
        "已按请求终止（kill_job），但运行 {worker} 的机器 {node} 失去联系："
        "恢复联系之前，{worker} 可能仍在该机器上运行",
    ),
    "killed_running": (
        "killed on request while running",
        "运行中被终止（kill_job）",
    ),
    "killed_unsent": (
        "killed on request while running; these outputs were not stored: {message}",
        "运行中被终止（kill_job）；以下输出未保存：{message}",
    ),
    "killed_unwatched": (
        "killed on request, but the supervisor of {worker} on machine {node} had been killed "
        "before: the processes that were found were stopped, but processes that left its "
        "process tree may still be running",
        "已按请求终止（kill_job），但此前机器 {node} 上监视 {worker} 的进程已被结束："
        "能找到的进程均已停止，但脱离其进程树的进程可能仍在运行",
    ),
    "killed_waiting": (
        "killed on request before it started",
        "运行之前被终止（kill_job）",
    ),
    "not_retried_exit": (
        "exit code {exit_code} is not in --retry_exit_codes ({codes})",
        "退出码 {exit_code} 不在 --retry_exit_codes（{codes}）中",
    ),
    "not_retried_hang": (
        "a job that hung is retried only with --retry_exit_codes=any",
        "挂起的任务只有在指定 --retry_exit_codes=any 时才会重试",
    ),
    "not_retried_memory": (
        "it would run out of memory again",
        "重试仍会内存不足",
    ),
    "not_retried_more": (
        "all retries (--max_retries={max_retries}) are used",
        "重试次数（--max_retries={max_retries}）已用完",
    ),
    "not_retried_same": (
        "it would fail again in the same way",
        "重试的结果不会改变",
    ),
    "preempted": (
        "stopped to free resources for {for_job}, whose priority {by} is above its own {own}; "
        "waiting to be placed again",
        "为优先级更高（{by}）的 {for_job} 让出资源而被停止，自身优先级为 {own}，正在等待重新调度",
    ),
    # -- what to do about it -----------------------------------------------------------------
    "advice_bus": (
        "usually a mapped file was truncated, or /dev/shm is full: use fewer data workers",
        "常见原因是映射中的文件被截断，或 /dev/shm 已满：请减少数据读取进程数",
    ),
    "advice_crash": (
        "the crash is in native (C/C++) code: check that the installed packages are "
        "compatible, and run it with --env PYTHONFAULTHANDLER=1 to see where",
        "错误发生在原生（C/C++）代码中：请检查已安装的包是否互相匹配，可加 --env "
        "PYTHONFAULTHANDLER=1 查看出错位置",
    ),
    "advice_disk_full": (
        "free disk space on the machine, or write less, then submit it again; the log so far: "
        "paddlecloud logs --job_id={job_id}",
        "请清理机器的磁盘或减少任务的写入，然后重新提交；已保存的日志：paddlecloud logs "
        "--job_id={job_id}",
    ),
    "advice_host_memory": (
        "the machine probably ran out of memory: use less, or declare the job's need with --memory",
        "很可能是机器内存不足：请减少内存使用，或用 --memory 说明任务所需内存",
    ),
    "advice_hung": (
        "the stack of each Python process is in log/*/stacks/*: paddlecloud get_files "
        "--job_id={job_id}; usually a rank waits for another one that does not respond",
        "各 Python 进程当时的调用栈见 log/*/stacks/* 文件：paddlecloud get_files "
        "--job_id={job_id}；常见原因是某个 rank 在等待没有响应的另一个 rank",
    ),
    "advice_illegal": (
        "a package was built for a newer CPU than this machine has: install another build",
        "某个包是为更新的处理器编译的：请安装其他版本",
    ),
    "advice_line_ends": (
        "a script has Windows line endings (CR LF), and the shell reads the CR as part of "
        "each name; convert it with sed -i 's/\\r$//' SCRIPT and submit again",
        "脚本使用了 Windows 换行符（CR LF），shell 会把 CR 当作名称的一部分；请用 sed -i "
        "'s/\\r$//' 脚本文件 转换后重新提交",
    ),
    "advice_killed_lost": (
        "check that machine {node} and its agent are running; the agent stops the rest of the "
        "job when it is back in contact",
        "请检查机器 {node} 及其执行端（Agent）是否在运行；恢复联系后，执行端会停止任务的残余进程",
    ),
    "advice_killed_unwatched": (
        "check {node} for processes of the job (ps -ef) and kill those that are still running",
        "请在 {node} 上查找任务的残余进程（ps -ef）并结束它们",
    ),
    "advice_log": (
        "the whole log: paddlecloud logs {job_id}",
        "完整日志：paddlecloud logs {job_id}",
    ),
    "advice_log_empty": (
        "{worker} printed nothing, so its log is empty; make the start command print what it "
        "does (in a shell: set -x), then submit it again",
        "{worker} 没有任何输出，日志为空；请让启动命令输出执行过程（shell 中可用 set -x）"
        "后重新提交",
    ),
    "advice_log_of": (
        "the whole log: paddlecloud logs {job_id} -w {worker}",
        "完整日志：paddlecloud logs {job_id} -w {worker}",
    ),
    "advice_restored": (
        "submit the job again if its outputs are not complete; jobs with --max_retries are "
        "retried by themselves",
        "如果输出不完整，请重新提交任务；设置了 --max_retries 的任务会自动重试",
    ),
    "advice_lost": (
        "check that the machine and its agent are running; --max_retries (now {max_retries}) "
        "restarts such a job",
        "请检查机器及其执行端（Agent）是否在运行；--max_retries（当前 {max_retries}）"
        "可使任务自动重试",
    ),
    "advice_memory": (
        "request more than {limit} with --memory, or use a smaller batch",
        "请用 --memory 申请大于 {limit} 的内存，或减小 batch",
    ),
    "advice_memory_default": (
        "request what the job needs with --memory (more than {limit} is possible), or use a "
        "smaller batch",
        "请用 --memory 指定任务所需的内存（可以大于 {limit}），或减小 batch",
    ),
    "advice_missing": (
        "check the spelling of {command}, and that it is in the submitted directory or on PATH",
        "请检查 {command} 的拼写，以及它是否在提交的目录或 PATH 中",
    ),
    "advice_module": (
        "install the module {module} in the job's environment, or submit it with the files",
        "请在任务使用的环境中安装模块 {module}，或随文件一起提交",
    ),
    "advice_no_paddle": (
        "install it in the job's Python (on your own machine: the one of the shell that "
        "submits): python3 -m pip install paddlepaddle",
        "请在任务使用的 Python（本机任务即提交时所在终端的 Python）中安装：python3 -m pip "
        "install paddlepaddle",
    ),
    "advice_no_pserver": (
        "submit it with --distribute_job_type=NCCL2, or install a PaddlePaddle with parameter "
        "servers (2.6.2) in the job's environment",
        "请加 --distribute_job_type=NCCL2 提交，或在任务环境中安装含参数服务器的 "
        "PaddlePaddle（2.6.2）",
    ),
    "advice_no_rights": (
        'a bucket does not keep the executable bit: run it through its interpreter, e.g. "sh '
        '{command}"',
        '存储桶不保留可执行权限：请通过解释器启动，例 "sh {command}"',
    ),
    "advice_not_executable": (
        'make it executable (chmod +x {command}) or run it through its interpreter, e.g. "sh '
        '{command}"',
        '请使其可执行（chmod +x {command}），或通过解释器启动，例 "sh {command}"',
    ),
    "advice_outputs_lost": (
        "check the bucket and the keys in [bos] of client.conf, then run it again (`rerun` "
        "uses the current keys); a job keeps the keys it was submitted with, so use keys that "
        "outlive it",
        "请检查存储桶及 client.conf 中 [bos] 的密钥，然后重新运行（rerun 使用当前的密钥）"
        "；任务始终使用提交时的密钥，请使用有效期长于任务运行时间的密钥",
    ),
    "advice_outputs_untaken": (
        "get the files from where they are kept, or run it again once the server's store "
        "responds and has space (`doctor` checks it)",
        "请从保留处取回这些文件，或在服务器的存储恢复且有空间后重新运行（可用 doctor 检查）",
    ),
    "advice_port_in_use": (
        "use the port in PADDLE_PORT, which is reserved for the program, or stop what holds "
        "the port; --max_retries retries such a job",
        "请让程序使用 PADDLE_PORT 中属于它的端口，或结束占用该端口的程序；--max_retries "
        "可使任务自动重试",
    ),
    "advice_port_taken": (
        "it restarts automatically; nothing to do",
        "任务会自动重新启动，无需处理",
    ),
    "advice_ports_taken": (
        "stop the programs that listen on ports 62001 to 65399 of that machine, then submit "
        "it again",
        "请结束该机器上占用 62001 至 65399 端口的程序，然后重新提交",
    ),
    "advice_preempted": (
        "it restarts automatically when resources are free; what it saved into OUTPUT_PATH is "
        "restored",
        "有空闲资源时会自动重新启动，已保存到 OUTPUT_PATH 的内容会交还给它",
    ),
    "advice_requirements": (
        "the log has the last lines of the installer; try the file yourself before the next "
        "submit: python3 -m pip install -r FILE",
        "安装程序的最后几行输出见任务日志；重新提交前可先自行试装：python3 -m pip install -r 文件",
    ),
    "advice_start": (
        "check the start command and the machine's free disk space, then submit it again",
        "请检查启动命令和机器的磁盘空间，然后重新提交",
    ),
    "advice_unwatched": (
        "find out what kills processes on {node} (a restart, lack of memory, kill -9); "
        "--max_retries (now {max_retries}) restarts such a job",
        "请检查 {node} 上是什么结束了进程（重启、内存不足或 kill -9）；--max_retries（当前 "
        "{max_retries}）可使任务自动重试",
    ),
    "advice_unwatched_left": (
        "check {node} for processes of the job (ps -ef) and kill those that are still "
        "running; find out what kills processes there (a restart, lack of memory, kill -9); "
        "--max_retries (now {max_retries}) restarts such a job",
        "请在 {node} 上查找任务的残余进程（ps -ef）并结束它们；"
        "请检查该机器上是什么结束了进程（重启、内存不足或 kill -9）；--max_retries（当前 "
        "{max_retries}）可使任务自动重试",
    ),
    "advice_wall_time": (
        "increase it with --wall_time=hh:mm:ss, or save checkpoints into OUTPUT_PATH and "
        "resume from them",
        "请用 --wall_time=hh:mm:ss 增加时间，或把检查点保存到 OUTPUT_PATH 后续训",
    ),
    # -- why a job waits ---------------------------------------------------------------------
    "queue_next": (
        "needs {count} x ({asks}); it has waited long enough that pool {pool} now reserves "
        "resources for it: it starts when enough jobs have ended there (at most {free} is "
        "free on one of {nodes} machines)",
        "任务需要 {count} 个实例（每个 {asks}）；因等待已久，资源池 {pool} 正为它预留资源，"
        "待足够的任务结束后即启动（{nodes} 台机器中单机最多空闲 {free}）",
    ),
    "queue_no_agent": (
        "pool {pool} has no machine at the moment; the job starts when one of its agents is back",
        "资源池 {pool} 目前没有可用的机器，待其执行端（Agent）恢复后启动",
    ),
    "queue_no_cards": (
        "{node} has enough CPU and memory but fewer than {count} free GPUs; the job starts "
        "when GPUs are released",
        "机器 {node} 有空间，但没有 {count} 张空闲的 GPU 卡，待有卡归还后启动",
    ),
    "queue_no_pool": (
        "none of the pools {pools} accepts this kind of job at the moment; ask the administrator",
        "资源池 {pools} 目前都不接受这类任务，请联系管理员",
    ),
    "queue_no_ports": (
        "machine {node} has fewer than {count} free ports for the job's replicas; it starts "
        "when other distributed jobs have ended there",
        "机器 {node} 没有 {count} 个空闲端口可供任务的实例使用，待该机器上其他多实例任务结束后启动",
    ),
    "queue_logs_aside": (
        "the log files of its last attempt are being archived in its bucket; the next attempt "
        "starts when that is done",
        "正在存储中归档上一次运行的日志文件，完成后开始下一次运行",
    ),
    "queue_no_room": (
        "needs {count} x ({asks}), but pool {pool} has at most {free} free on one of its "
        "{nodes} machines",
        "任务需要 {count} 个实例（每个 {asks}），而资源池 {pool} 的 {nodes} "
        "台机器中单机最多空闲 {free}",
    ),
    "queue_pool_refused_again": (
        "pool {pool} refused the job again; next try at {at}",
        "资源池 {pool} 再次拒绝了任务，将于 {at} 再次尝试",
    ),
    "queue_preempting": (
        "needs {count} x ({asks}); lower-priority jobs are being stopped in pool {pool} to "
        "free resources for it",
        "任务需要 {count} 个实例（每个 {asks}）；资源池 {pool} 正在停止低优先级的任务为它腾出资源",
    ),
    "queue_reserved": (
        "needs {count} x ({asks}), but the free resources of pool {pool} are reserved for a "
        "job that has waited longer",
        "任务需要 {count} 个实例（每个 {asks}），而资源池 {pool} 的空闲资源正为等待更久的任务预留",
    ),
    "queue_retry": (
        "the last attempt failed; retry {retry} of {most} starts at {at}",
        "上一次运行失败，第 {retry} 次重试（共 {most} 次）将于 {at} 开始",
    ),
    "queue_timeout": (
        "could not be placed within {limit}; request less, or submit it again later",
        "排队超过 {limit} 仍未调度，请减少申请的资源，或稍后重新提交",
    ),
    "queue_too_large": (
        "needs {count} x ({asks}), but pool {pool} now has {nodes} machines of at most {has}",
        "任务需要 {count} 个实例（每个 {asks}），而资源池 {pool} 现有 {nodes} 台机器，"
        "单机最多 {has}",
    ),
}
