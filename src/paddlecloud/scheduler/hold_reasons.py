"""Why a job waits, with the numbers: what it asks, what is free, where, on how many machines.

Reasons are codes and values; the sentences are in `messages/jobs.py` and `messages/quota.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from paddlecloud.model.jobs.job import Reason, Resources
from paddlecloud.model.policy.priority import CLASSES
from paddlecloud.model.units import format_resources
from paddlecloud.scheduler.pool_state import Asks, Room, as_wants
from paddlecloud.scheduler.view import Allowance, WaitingJob

PREEMPTING = "queue_preempting"
_FULL = frozenset({"queue_no_room", "queue_next", "queue_reserved", PREEMPTING})
"""Ways to say that there is not enough; which of them holds can change with every plan."""
_QUOTA = frozenset({"queue_quota_running", "queue_quota_minutes", "queue_quota_resources"})
_LASTING = ("asks", "count", "pool", "nodes")
_CLASS_NAMES = tuple(CLASSES)


def why_held(job: WaitingJob, asks: Asks, rooms: Sequence[Room]) -> Reason:
    """Why none of these pools, the ones the job may use, can take it now."""
    if not rooms:
        return Reason(code="queue_no_pool", params={"pools": ", ".join(job.pools)})
    staffed = [room for room in rooms if room.spots]
    if not staffed:
        return Reason(code="queue_no_agent", params={"pool": rooms[0].pool.name})
    large = [room for room in staffed if room.seats_when_empty(asks) is not None]
    if not large:
        has = _words(staffed[0].largest())
        return Reason(code="queue_too_large", params=_asked(asks, staffed[0]) | {"has": has})
    kept = large[0].blocked_by_kept(as_wants(asks))
    return _full("queue_reserved" if kept else "queue_no_room", asks, large[0])


def why_kept(asks: Asks, room: Room) -> Reason:
    """The job is the next in this pool; room is being kept for it."""
    return _full("queue_next", asks, room)


def why_preempting(asks: Asks, room: Room) -> Reason:
    """Jobs of lower classes are being stopped for it."""
    return _full(PREEMPTING, asks, room)


def why_preempted(job_id: str, rank: int, own: int) -> Reason:
    """What a job that has to go is told: the class that takes its place."""
    names = {"by": _CLASS_NAMES[rank], "own": _CLASS_NAMES[own]}
    return Reason(code="preempted", params={"for_job": job_id} | names)


def over_quota(allowance: Allowance, cpu: float, memory: int, gpu: int) -> Reason | None:
    """Why the owner's plan forbids one more job that asks for so much in all; None if it allows."""
    limit = allowance.minutes_limit
    if limit is not None and allowance.minutes_used >= limit:
        return Reason(
            code="queue_quota_minutes",
            params={
                "used": round(allowance.minutes_used, 1),
                "limit": limit,
                "renews": allowance.renews,
            },
        )
    if allowance.jobs is not None and allowance.jobs < 1:
        most = allowance.limits.get("jobs", 0)
        return Reason(code="queue_quota_running", params={"limit": most})
    short = (
        (allowance.cpu is not None and cpu > allowance.cpu + 1e-9)
        or (allowance.memory is not None and memory > allowance.memory)
        or (allowance.gpu is not None and gpu > allowance.gpu)
    )
    if not short:
        return None
    left = _left(allowance, cpu, memory, gpu)
    return Reason(
        code="queue_quota_resources",
        params={"asks": format_resources(cpu, memory, gpu), "left": left},
    )


def is_news(held: Reason | None, fresh: Reason, *, exact: bool) -> bool:
    """True if the stored reason should be replaced. Not `exact`: what is free may have changed."""
    if held is None:
        return True
    if held.code == fresh.code and held.params == fresh.params:
        return False
    if exact:
        return True
    if held.code == fresh.code and fresh.code in _QUOTA:
        return held.params.get("limit") != fresh.params.get("limit")
    if not {held.code, fresh.code} <= _FULL:
        return True
    return any(held.params.get(name) != fresh.params.get(name) for name in _LASTING)


def _full(code: str, asks: Asks, room: Room) -> Reason:
    free = room.most_free()
    return Reason(
        code=code,
        params=_asked(asks, room)
        | {
            "free": _words(free),
            "free_cpu": free.cpu,
            "free_memory": free.memory,
            "free_gpu": free.gpu,
        },
    )


def _asked(asks: Asks, room: Room) -> dict[str, str | int | float | None]:
    """What each replica asks; of the largest kind, if the job has several."""
    _, _, ask = asks[0]
    return {
        "asks": _words(ask),
        "count": sum(count for _, count, _ in asks),
        "cpu": ask.cpu,
        "memory": ask.memory,
        "gpu": ask.gpu,
        "pool": room.pool.name,
        "nodes": len(room.spots),
    }


def _left(allowance: Allowance, cpu: float, memory: int, gpu: int) -> str:
    """What the plan leaves of what is asked; without a limit, that is enough."""
    return format_resources(
        cpu if allowance.cpu is None else max(0.0, allowance.cpu),
        memory if allowance.memory is None else max(0, allowance.memory),
        gpu if allowance.gpu is None else max(0, allowance.gpu),
    )


@lru_cache(maxsize=1024)
def _words(resources: Resources) -> str:
    return format_resources(resources.cpu, resources.memory, resources.gpu)
