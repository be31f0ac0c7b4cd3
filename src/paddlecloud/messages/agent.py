"""Sentences about the agent of a machine, and about how it keeps users apart.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

AGENT_TEXTS: dict[str, tuple[str, str]] = {
    "agent_blob_damaged": (
        "the content {sha256} arrived as {received}; it was damaged on the way; submit again",
        "内容 {sha256} 到达时为 {received}，传输中已损坏，请重新提交任务",
    ),
    "agent_blob_size": (
        "the stored content of {path} has {size} bytes, not {expected}; submit the files again",
        "{path} 的已存内容为 {size} 字节，应为 {expected} 字节，请重新提交文件",
    ),
    "agent_cannot_separate": (
        "the agent on {host} does not run as root, so it cannot give each user's jobs a uid of"
        ' their own; start it as root, or let its pool serve one user: users = ["NAME"]',
        "{host} 上的代理不以 root 运行，无法让各用户的任务使用各自的 uid；请以 root 启动代理，"
        '或让该资源池只服务一个用户：users = ["NAME"]',
    ),
    "agent_config_incomplete": (
        "the agent's configuration {path} lacks {missing}; write it again with all keys",
        "代理的配置文件 {path} 缺少 {missing}，请补全后重试",
    ),
    "agent_config_unreadable": (
        "the agent's configuration {path} cannot be read: {reason}",
        "无法读取代理的配置文件 {path}：{reason}",
    ),
    "agent_mistake": (
        "the agent made a mistake: {error}; its log has the details",
        "代理内部错误：{error}，详情见代理日志",
    ),
    "agent_no_monitor": (
        "no process that watches over it comes up; see the agent's log",
        "无法启动监控进程，详情见代理日志",
    ),
    "agent_output_damaged": (
        "{path} of the attempt before does not arrive as it was stored; submit the job again",
        "上一次尝试的输出文件 {path} 取回后与存储的不一致，请重新提交任务",
    ),
    "agent_snapshot_damaged": (
        "the list of files of snapshot {snapshot} is damaged; submit the files again",
        "快照 {snapshot} 的文件列表已损坏，请重新提交文件",
    ),
    "agent_stored_damaged": (
        "the stored content of {path} is damaged (sha256 {received} instead of {sha256}); have an "
        "admin run `paddlecloud admin verify`, then submit the files again",
        "{path} 的已存内容已损坏（sha256 为 {received}，应为 {sha256}），请管理员运行"
        " paddlecloud admin verify，然后重新提交文件",
    ),
    "agent_url": (
        "{url} is not an address of a server; write http://host:port or https://host:port",
        "{url} 不是服务器地址，应为 http://主机:端口 或 https://主机:端口",
    ),
    "agent_workspace_failed": (
        "the files of the job could not be laid out, {path}: {reason}",
        "无法准备任务的文件，{path}：{reason}",
    ),
    "agent_workspace_full": (
        "no room for the files of the job at {path}: {needed} bytes are needed, {free} are free"
        " ({reason}); free some space on that machine and submit again",
        "{path} 没有足够空间存放任务的文件：需要 {needed} 字节，剩余 {free} 字节（{reason}），"
        "请清理该机器的磁盘后重新提交",
    ),
    "pool_not_separated": (
        "pool {pool} cannot keep the jobs of different users apart (its agent needs Linux 5.12 and"
        " the rights of root), so it serves nobody; ask an admin to run the agent as root, or to"
        ' name the one user whom the pool serves: users = ["NAME"]',
        "资源池 {pool} 无法隔离不同用户的任务（其代理需要 Linux 5.12 及 root 权限），"
        "因此不接受任务；"
        '请管理员以 root 运行代理，或指定该资源池唯一服务的用户：users = ["NAME"]',
    ),
    "pool_serves_one": (
        "pool {pool} cannot keep the jobs of different users apart, so it serves {user} alone",
        "资源池 {pool} 无法隔离不同用户的任务，因此只服务用户 {user}",
    ),
}
