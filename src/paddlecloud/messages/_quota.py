"""Messages about plans and quotas."""

from __future__ import annotations

QUOTA_TEXTS: dict[str, tuple[str, str]] = {
    # -- refused ------------------------------------------------------------------------------
    "quota_beyond": (
        "the job requests {asks} in total, but plan {plan} allows at most {limit} on public "
        "pools; request less, or ask the administrator for another plan",
        "任务共需 {asks}，而套餐 {plan} 在公共资源池上最多允许 {limit}；请减少申请的资源，"
        "或向管理员申请其他套餐",
    ),
    "quota_limit_form": (
        "--limit={value} is not of the form NAME=VALUE, such as running_jobs=5",
        "--limit={value} 的格式应为 NAME=VALUE，例如 running_jobs=5",
    ),
    "quota_limit_unknown": (
        "{name} is not a limit of a plan; available: {known}",
        "套餐中没有 {name} 这一限额，可用的有：{known}",
    ),
    "quota_limit_value": (
        "{name} = {value} is not a valid limit; give a number from 0 (sizes also as 20Gi), or "
        "unlimited",
        "{name} = {value} 不是有效的限额：请给出不小于 0 的数（大小也可写作 20Gi），或 unlimited",
    ),
    "quota_none": (
        "plan {plan} allows nothing on public pools ({name} = 0); ask the administrator",
        "套餐 {plan} 不允许使用公共资源池（{name} = 0），请联系管理员",
    ),
    "quota_nothing_given": (
        "nothing to change: give --plan=NAME or --limit NAME=VALUE",
        "没有要修改的内容：请给出 --plan=NAME 或 --limit NAME=VALUE",
    ),
    "quota_priority": (
        "max_priority = {value} is not a priority class; available: {known}",
        "max_priority = {value} 不是优先级，可用的有：{known}",
    ),
    "quota_storage": (
        "not enough storage for {size} more: {used} of your plan's {limit} are used; submit "
        "fewer files, or ask the administrator for more",
        "无法再存 {size}：套餐的 {limit} 已使用 {used}；请减少提交的文件，或向管理员申请更多空间",
    ),
    "quota_storage_open": (
        "not enough storage for {size} more: {used} of your plan's {limit} are used, and "
        "{held} are reserved for unfinished uploads; submit those files again to finish them, "
        "or wait: an upload is dropped after a day without progress",
        "无法再存 {size}：套餐的 {limit} 已使用 {used}，另有 {held} 留给未完成的上传；"
        "请重新提交那些文件以完成上传，或等待：一天内无人继续的上传会被清除",
    ),
    "quota_storage_over": (
        "your files and outputs use {used}, more than your plan's {limit}; delete jobs you no "
        "longer need (delete_job), or ask the administrator for more",
        "您的文件和输出共占 {used}，超过套餐的 {limit}；请删除不再需要的任务（delete_job）"
        "，或向管理员申请更多空间",
    ),
    "quota_user_missing": (
        "no user given: paddlecloud admin quota show USER_ID",
        "请指定用户：paddlecloud admin quota show USER_ID",
    ),
    "too_many_waiting": (
        "{waiting} of your jobs are already waiting, your plan allows {limit}; try again in "
        "{seconds} s, or kill some",
        "您已有 {waiting} 个任务在排队，套餐最多允许 {limit} 个；请 {seconds} 秒后重试，"
        "或终止一些任务",
    ),
    # -- why a job waits ----------------------------------------------------------------------
    "queue_quota_minutes": (
        "{used} of the {limit} running minutes per day of its owner's plan are used; the job "
        "starts after the reset at {renews}",
        "用户套餐每天的 {limit} 分钟运行时间已使用 {used} 分钟，任务将在 {renews} 重新计算后启动",
    ),
    "queue_quota_resources": (
        "needs {asks} in total, but running jobs leave {left} of its owner's plan; it starts "
        "when enough of the owner's jobs have ended",
        "任务共需 {asks}，而用户套餐扣除运行中的任务后只剩 {left}，待您的其他任务结束后启动",
    ),
    "queue_quota_running": (
        "its owner already has {limit} running jobs, the limit of the plan; it starts when "
        "one of them has ended",
        "您已有 {limit} 个任务在运行（上限 {limit} 个），待其中一个结束后启动",
    ),
    # -- why a job ended ----------------------------------------------------------------------
    "advice_minutes_a_day": (
        "submit it again: it waits until {renews}; to resume from a checkpoint, download it "
        "into the directory that you submit",
        "可重新提交，任务将等到 {renews} 后运行；要从检查点继续，请先把它下载到提交的目录中",
    ),
    "advice_minutes_a_job": (
        "save checkpoints into OUTPUT_PATH and resume from them, or ask the administrator for "
        "another plan",
        "请把检查点保存到 OUTPUT_PATH 后续训，或向管理员申请其他套餐",
    ),
    "fail_minutes_a_day": (
        "the {limit} running minutes per day of its owner's plan are used up ({used} min), so "
        "the job was stopped; they reset at {renews}",
        "用户套餐每天的 {limit} 分钟运行时间已用完（{used} 分钟），任务已被停止；{renews} 重新计算",
    ),
    "fail_minutes_a_job": (
        "the job exceeded the {limit} minutes that its owner's plan allows per job, and was "
        "stopped",
        "任务运行时间超过用户套餐规定的每个任务 {limit} 分钟，已被停止",
    ),
}
