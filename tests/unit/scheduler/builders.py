"""Small builders for views of the world."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from paddlecloud.model.jobs.job import JobType, ReplicaGroup, Resources, Role
from paddlecloud.model.policy.pool import Pool
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.view import (
    Decision,
    GiveUp,
    Hold,
    NodeView,
    Place,
    PoolView,
    Rules,
    View,
    WaitingJob,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GIB = 2**30


def a_pool(
    *nodes: NodeView, name: str = "local", job_types: set[JobType] | None = None
) -> PoolView:
    kinds = frozenset(job_types or JobType)
    pool = Pool(name=name, backend=name, private=True, job_types=kinds)
    return PoolView(pool=pool, nodes=nodes)


def a_node(
    node_id: str = "n1", *, cpu: float = 8, memory: int = 32 * GIB, gpu: int = 0,
    used: Resources | None = None,
) -> NodeView:  # fmt: skip
    total = Resources(cpu=cpu, memory=memory, gpu=gpu)
    return NodeView(id=node_id, total=total, free=total - (used or Resources(cpu=0)))


def a_waiting(
    number: int = 1,
    *,
    cpu: float = 1,
    memory: int = 0,
    gpu: int = 0,
    count: int = 1,
    waited: float = 0,
    **changes: object,
) -> WaitingJob:
    asks = Resources(cpu=cpu, memory=memory, gpu=gpu)
    values: dict[str, object] = {
        "id": f"job-{number}",
        "owner": "anna",
        "number": number,
        "waiting_since": NOW - timedelta(seconds=waited),
        "groups": (ReplicaGroup(role=Role.TRAINER, count=count, resources=asks),),
        "pools": ("local",),
    }
    return WaitingJob(**(values | changes))  # type: ignore[arg-type]


def a_view(
    *waiting: WaitingJob, pools: tuple[PoolView, ...] | None = None, **changes: object
) -> View:
    values: dict[str, object] = {
        "now": NOW,
        "pools": (a_pool(a_node()),) if pools is None else pools,
        "waiting": waiting,
        "rules": Rules(reserve_after=timedelta(seconds=300)),
    }
    return View(**(values | changes))  # type: ignore[arg-type]


def plan(view: View) -> list[Decision]:
    """What a planner decides that knows nothing but this view."""
    return Planner.of(view).decide(view.now)


def placed(decisions: list[Decision]) -> list[str]:
    return [decision.job_id for decision in decisions if isinstance(decision, Place)]


def reasons(decisions: list[Decision]) -> dict[str, str]:
    return {d.job_id: d.reason.code for d in decisions if isinstance(d, Hold | GiveUp)}
