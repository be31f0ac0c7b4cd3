"""Sentences about jobs whose trainers come and go, and about the tasks that they take in turns.

Part of the one table in `texts.py`, kept apart by area so that each file stays readable.
"""

from __future__ import annotations

ELASTIC_TEXTS: dict[str, tuple[str, str]] = {
    # -- tasks -------------------------------------------------------------------------------
    "task_worker_over": (
        "{worker} no longer belongs to its job, so it gets no tasks; it should end",
        "{worker} 已不再属于其任务，无法再领取数据块，应当退出",
    ),
    "tasks_differ": (
        "the tasks called {name} were defined otherwise by another trainer; every trainer has to"
        " name the same files, passes and failure_max",
        "名为 {name} 的数据块已由其他训练节点以不同内容定义；"
        "所有训练节点须给出相同的文件、passes 和 failure_max",
    ),
    "tasks_digest": (
        "the tasks called {name} are not those of their digest; send them again",
        "名为 {name} 的数据块与其摘要不符，请重新发送",
    ),
    "tasks_name": (
        "{name} is no name for tasks: letters, digits, - _ . only, at most {limit}",
        "{name} 不能用作数据块集合的名称：只能包含字母、数字、- _ .，最多 {limit} 个字符",
    ),
    "tasks_too_many": (
        "{name} would be one data set too many: a job may have {limit} of them",
        "无法再定义 {name}：一个任务最多有 {limit} 个数据块集合",
    ),
    "tasks_unknown": (
        "this job has no tasks called {name} yet; define them first",
        "该任务还没有名为 {name} 的数据块集合，请先定义",
    ),
    # -- trainers that come and go -----------------------------------------------------------
    "elastic_alone": (
        "{name} needs both --min_instance and --max_instance",
        "{name} 须同时给出 --min_instance 和 --max_instance",
    ),
    "elastic_nccl2": (
        "--distribute_job_type=NCCL2 needs all of its trainers all the time, so it cannot be"
        " elastic; leave out --min_instance and --max_instance, or the mode",
        "--distribute_job_type=NCCL2 要求所有训练节点始终在线，不能弹性伸缩；"
        "请去掉 --min_instance 和 --max_instance，或去掉该模式",
    ),
    "elastic_order": (
        "min_instance={least}, instance_count={wanted} and max_instance={most} have to be in this"
        " order, from small to large",
        "须满足 min_instance={least} ≤ instance_count={wanted} ≤ max_instance={most}",
    ),
    "elastic_replaced": (
        "{worker} ended ({how}) and {by} took its place; {times} of {limit} in a row without a"
        " finished task",
        "{worker} 已结束（{how}），由 {by} 接替；"
        "连续 {times} 次接替而没有完成任何数据块（上限 {limit}）",
    ),
    "help_max_instance": (
        "the most trainers of an elastic job: it grows up to this when there is room",
        "弹性任务的最大训练节点数：有空闲资源时扩展到此数",
    ),
    "help_min_instance": (
        "the fewest trainers of an elastic job: it starts with these, and shrinks to them when"
        " other jobs wait",
        "弹性任务的最小训练节点数：满足此数即启动，其他任务等待时缩减到此数",
    ),
}
