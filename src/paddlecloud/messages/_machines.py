"""Messages about machines that join a pool."""

from __future__ import annotations

MACHINE_TEXTS: dict[str, tuple[str, str]] = {
    "agent_package_unknown": (
        "this server has no agent with sha256 {sha256}; get a new line from `paddlecloud admin "
        "machine invite`",
        "本服务器没有 sha256 为 {sha256} 的执行端（Agent），请用 paddlecloud admin machine "
        "invite 重新获取加入命令",
    ),
    "machine_busy": (
        "{name} still runs {jobs}; drain it first (`paddlecloud admin machine drain {name}`), or "
        "leave with --force, which loses these replicas",
        "{name} 仍在运行 {jobs}；请先执行 paddlecloud admin machine drain {name} 等任务结束，"
        "或用 --force 离开（这些实例将丢失）",
    ),
    "machine_certificate": (
        "the certificate of {url} has sha256 {found}, expected {expected}: another server "
        "answers there, or its certificate was replaced; get a new line from `paddlecloud admin "
        "machine invite`",
        "{url} 的证书 sha256 为 {found}，应为 {expected}：可能是另一台服务器，或证书已更换；请用 "
        "paddlecloud admin machine invite 重新获取加入命令",
    ),
    "machine_clock": (
        "the clock of this machine is {seconds} s ahead of the server's, the limit is {limit} s; "
        "set it, for example with NTP",
        "本机时钟比服务器快 {seconds} 秒，最多允许相差 {limit} 秒，请校准时钟（例如使用 NTP）",
    ),
    "machine_disk": ("disk: {free} free in {directory}", "磁盘：{directory} 可用 {free}"),
    "machine_disk_low": (
        "disk: only {free} free in {directory}; jobs with large files will fail",
        "磁盘：{directory} 仅剩 {free}，文件较大的任务会失败",
    ),
    "machine_gpus": ("GPUs: {count}", "GPU：{count} 块"),
    "machine_insecure": (
        "warning: {url} is not encrypted; use it in a trusted network only",
        "警告：{url} 未加密，只应在可信网络中使用",
    ),
    "machine_installed": (
        "installed and started {unit}",
        "已安装并启动 {unit}",
    ),
    "machine_joined": (
        "joined pool {pool} of {url} as {name}",
        "已以 {name} 加入 {url} 的资源池 {pool}",
    ),
    "machine_label": (
        "the label {label} has no value; write --label=KEY=VALUE",
        "标签 {label} 没有值，请写成 --label=KEY=VALUE",
    ),
    "machine_labels": (
        "a machine may have {limit} labels, not {count}; remove some",
        "一台机器最多 {limit} 个标签，现有 {count} 个，请删除一些",
    ),
    "machine_left": ("left {url}", "已离开 {url}"),
    "machine_limits": (
        "limits: CPU, memory and processes of jobs are limited by control groups",
        "限制：任务的 CPU、内存和进程数由 cgroup 限制",
    ),
    "machine_no_url": (
        "the server is missing; write `paddlecloud machine join https://server:port --token …`",
        "缺少服务器地址，请写成 paddlecloud machine join https://server:port --token …",
    ),
    "machine_no_gpus": ("GPUs: no driver found", "GPU：未找到驱动"),
    "machine_no_limits": (
        "limits: control groups cannot be written, so jobs can use more than they asked for",
        "限制：无法写入 cgroup，任务可能超出其申请的资源",
    ),
    "machine_no_systemd": (
        "there is no systemd here; run the agent with another service manager: {command}",
        "本机没有 systemd，请用其他服务管理器运行执行端（Agent）：{command}",
    ),
    "machine_no_token": (
        "this machine has not joined yet ({directory} has no agent.json); ask an admin for the "
        "line of `paddlecloud admin machine invite`",
        "本机尚未加入（{directory} 中没有 agent.json），请向管理员索取 paddlecloud admin machine "
        "invite 给出的命令",
    ),
    "machine_one_user": (
        "users: the agent does not run as root, so all jobs run as this user; on a team server "
        "the pool has to be limited to one user",
        "用户：执行端（Agent）不以 root 运行，所有任务都使用当前用户；在团队服务器上该资源池只能"
        "服务一个用户",
    ),
    "machine_python": (
        "Python {version}, agent {agent}",
        "Python {version}，执行端（Agent） {agent}",
    ),
    "machine_runs": (
        "the agent runs; its log is {directory}/agent.log. Ctrl-C stops it, jobs go on",
        "执行端（Agent）正在运行，日志在 {directory}/agent.log；按 Ctrl-C 停止，任务会继续运行",
    ),
    "machine_runs_already": (
        "this machine already serves {url} as {name}; `paddlecloud machine leave` ends that",
        "本机已作为 {name} 服务于 {url}，请先执行 paddlecloud machine leave",
    ),
    "machine_separates": (
        "users: each user's jobs run under a uid of their own",
        "用户：各用户的任务使用各自的 uid",
    ),
    "machine_store": ("store: {url} can be reached", "存储：可以访问 {url}"),
    "machine_store_unreachable": (
        "store: {url} cannot be reached from here ({reason}); files travel through the server "
        "where they can, which is slower",
        "存储：本机无法访问 {url}（{reason}），文件将尽可能经服务器传输，速度较慢",
    ),
    "machine_systemd": (
        "systemd does not start {unit}: {reason}",
        "systemd 无法启动 {unit}：{reason}",
    ),
    "machine_ttl": (
        "{ttl} is no time; write 30m, 2h or 1d",
        "{ttl} 不是时间，请写成 30m、2h 或 1d",
    ),
    "machine_uninstalled": ("removed {unit}", "已删除 {unit}"),
    "machine_unknown": (
        "no machine is called {name}; see `paddlecloud admin machine list`",
        "没有名为 {name} 的机器，参见 paddlecloud admin machine list",
    ),
    "machine_windows": (
        "a machine of a pool runs Linux; on Windows only the client works",
        "资源池的机器需运行 Linux，Windows 上只能使用客户端",
    ),
    "name_missing": (
        "the name is missing: {command} NAME",
        "缺少名称：{command} NAME",
    ),
    "pool_option": (
        "{option} has no value; write --set=KEY=VALUE",
        "{option} 没有值，请写成 --set=KEY=VALUE",
    ),
    "machine_usage": (
        "{word} is no option of this command; `--help` of `paddlecloud machine join` lists them",
        "该命令没有选项 {word}，用 paddlecloud machine join --help 查看",
    ),
}
