"""Messages about elastic jobs and data tasks."""

from __future__ import annotations

ELASTIC_TEXTS: dict[str, tuple[str, str]] = {
    # -- tasks -------------------------------------------------------------------------------
    "task_worker_over": (
        "{worker} no longer belongs to its job, so it gets no tasks; it should exit",
        "{worker} 已不再属于其任务，无法再领取数据块，应当退出",
    ),
    "tasks_differ": (
        "another trainer defined the tasks {name} differently; every trainer must give the "
        "same files, passes and failure_max",
        "名为 {name} 的数据块已由其他训练实例以不同内容定义；所有训练实例须给出相同的文件、"
        "passes 和 failure_max",
    ),
    "tasks_digest": (
        "the tasks {name} do not match their digest; send them again",
        "名为 {name} 的数据块与其摘要不符，请重新发送",
    ),
    "tasks_name": (
        "{name} is not a valid name for tasks; use letters, digits, - _ . only, at most {limit}",
        "{name} 不能用作数据块集合的名称：只能包含字母、数字、- _ .，最多 {limit} 个字符",
    ),
    "tasks_too_many": (
        "cannot add {name}: a job may have at most {limit} data sets",
        "无法再定义 {name}：一个任务最多有 {limit} 个数据块集合",
    ),
    "tasks_unknown": (
        "this job has no tasks named {name} yet; define them first",
        "该任务还没有名为 {name} 的数据块集合，请先定义",
    ),
    # -- trainers that come and go -----------------------------------------------------------
    "elastic_alone": (
        "{name} needs both --min_instance and --max_instance",
        "{name} 须同时给出 --min_instance 和 --max_instance",
    ),
    "elastic_nccl2": (
        "--distribute_job_type=NCCL2 needs all trainers all the time, so it cannot be "
        "elastic; remove --min_instance and --max_instance, or the mode",
        "--distribute_job_type=NCCL2 要求所有训练实例始终在线，不能弹性伸缩；请去掉 "
        "--min_instance 和 --max_instance，或去掉该模式",
    ),
    "elastic_order": (
        "min_instance={least}, instance_count={wanted} and max_instance={most} must be in "
        "ascending order",
        "须满足 min_instance={least} ≤ instance_count={wanted} ≤ max_instance={most}",
    ),
    "elastic_replaced": (
        "{worker} ended ({how}) and was replaced by {by}; {times} of {limit} replacements in "
        "a row without a finished task",
        "{worker} 已结束（{how}），由 {by} 接替；连续 {times} 次接替而没有完成任何数据块（"
        "上限 {limit}）",
    ),
    "help_max_instance": (
        "most trainers of an elastic job; it grows up to this when resources are free",
        "弹性任务的最大训练实例数：有空闲资源时扩展到此数",
    ),
    "help_min_instance": (
        "fewest trainers of an elastic job; it starts with these, and shrinks to them when "
        "other jobs wait",
        "弹性任务的最小训练实例数：满足此数即启动，其他任务等待时缩减到此数",
    ),
}
