"""Messages about agents: configuration, inputs, isolation of users."""

from __future__ import annotations

AGENT_TEXTS: dict[str, tuple[str, str]] = {
    "agent_blob_damaged": (
        "blob {sha256} arrived with sha256 {received}, damaged in transit; submit again",
        "内容 {sha256} 到达时为 {received}，传输中已损坏，请重新提交任务",
    ),
    "agent_blob_size": (
        "the stored blob of {path} has {size} bytes, expected {expected}; submit the files again",
        "{path} 的已存内容为 {size} 字节，应为 {expected} 字节，请重新提交文件",
    ),
    "agent_cannot_separate": (
        "the agent on {host} does not run as root, so it cannot run each user's jobs under a "
        'separate uid; start it as root, or limit its pool to one user: users = ["NAME"]',
        "{host} 上的执行端（Agent）不以 root 运行，无法让各用户的任务使用各自的 uid；请以 "
        'root 启动执行端，或让该资源池只服务一个用户：users = ["NAME"]',
    ),
    "agent_config_incomplete": (
        "the agent configuration {path} is missing {missing}; write the file again with all keys",
        "执行端（Agent）的配置文件 {path} 缺少 {missing}，请补全后重试",
    ),
    "agent_config_unreadable": (
        "cannot read the agent configuration {path}: {reason}",
        "无法读取执行端（Agent）的配置文件 {path}：{reason}",
    ),
    "agent_mistake": (
        "internal error in the agent: {error}; see its log",
        "执行端（Agent）内部错误：{error}，详情见执行端日志",
    ),
    "agent_no_monitor": (
        "no supervisor process could be started; see the agent's log",
        "无法启动监管进程，详情见执行端（Agent）日志",
    ),
    "agent_output_damaged": (
        "{path} of the previous attempt did not arrive as it was stored; submit the job again",
        "上一次尝试的输出文件 {path} 取回后与存储的不一致，请重新提交任务",
    ),
    "agent_snapshot_damaged": (
        "the list of files of snapshot {snapshot} is damaged; submit the files again",
        "快照 {snapshot} 的文件列表已损坏，请重新提交文件",
    ),
    "agent_stored_damaged": (
        "the stored blob of {path} is damaged (sha256 {received}, expected {sha256}); ask an "
        "admin to run `paddlecloud admin verify --repair`, then submit the files again",
        "{path} 的已存内容已损坏（sha256 为 {received}，应为 {sha256}），请管理员运行 "
        "paddlecloud admin verify --repair，然后重新提交文件",
    ),
    "agent_url": (
        "{url} is not a server URL; write http://host:port or https://host:port",
        "{url} 不是服务器地址，应为 http://主机:端口 或 https://主机:端口",
    ),
    "agent_workspace_failed": (
        "cannot set up the job's files at {path}: {reason}",
        "无法准备任务的文件，{path}：{reason}",
    ),
    "agent_workspace_full": (
        "not enough disk space for the job's files at {path}: {needed} bytes needed, {free} "
        "free ({reason}); free some space on that machine and submit again",
        "{path} 没有足够空间存放任务的文件：需要 {needed} 字节，剩余 {free} 字节（{reason}）"
        "，请清理该机器的磁盘后重新提交",
    ),
    "pool_not_separated": (
        "pool {pool} cannot isolate the jobs of different users (its agent needs Linux 5.12 "
        "and root), so it accepts no jobs; ask an admin to run the agent as root, or to limit "
        'the pool to one user: users = ["NAME"]',
        "资源池 {pool} 无法隔离不同用户的任务（其执行端（Agent）需要 Linux 5.12 及 root 权限）"
        "，因此不接受任务；请管理员以 root 运行执行端，或指定该资源池唯一服务的用户：users = "
        '["NAME"]',
    ),
    "pool_serves_one": (
        "pool {pool} cannot isolate the jobs of different users, so it only accepts jobs of {user}",
        "资源池 {pool} 无法隔离不同用户的任务，因此只服务用户 {user}",
    ),
}
