"""Reasons why a job waits, with numbers: what it asks for, what is free, on how many machines.

Reasons are codes and values; the sentences are in `messages/_jobs.py` and `messages/_quota.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from paddlecloud.model.jobs.job import Reason, Resources
from paddlecloud.model.policy.priority import CLASSES
from paddlecloud.model.units import format_resources
from paddlecloud.scheduler._pool_state import Asks, PoolState, to_wants
from paddlecloud.scheduler.view import WaitingJob

PREEMPTING = "queue_preempting"
_FULL = frozenset({"queue_no_room", "queue_next", "queue_reserved", PREEMPTING})
"""Reasons for a lack of capacity; which of them applies can change with every plan."""
_QUOTA = frozenset({"queue_quota_running", "queue_quota_minutes", "queue_quota_resources"})
_LASTING = ("asks", "count", "pool", "nodes")
_CLASS_NAMES = tuple(CLASSES)


def why_held(job: WaitingJob, asks: Asks, pools: Sequence[PoolState]) -> Reason:
    """Why none of these pools, the ones the job may use, can take it now."""
    if not pools:
        return Reason(code="queue_no_pool", params={"pools": ", ".join(job.pools)})
    staffed = [state for state in pools if state.nodes]
    if not staffed:
        return Reason(code="queue_no_agent", params={"pool": pools[0].pool.name})
    large_enough = [state for state in staffed if state.slots_when_empty(asks) is not None]
    if not large_enough:
        has = _words(staffed[0].largest())
        return Reason(code="queue_too_large", params=_asked(asks, staffed[0]) | {"has": has})
    reserved = large_enough[0].blocked_by_reservations(to_wants(asks))
    return _full("queue_reserved" if reserved else "queue_no_room", asks, large_enough[0])


def why_reserved(asks: Asks, state: PoolState) -> Reason:
    """The job is the next in this pool; capacity is reserved for it."""
    return _full("queue_next", asks, state)


def why_preempting(asks: Asks, state: PoolState) -> Reason:
    """Jobs of lower classes are being stopped for it."""
    return _full(PREEMPTING, asks, state)


def why_preempted(job_id: str, rank: int, own: int) -> Reason:
    """Why a job is stopped: the class that preempts it."""
    names = {"by": _CLASS_NAMES[rank], "own": _CLASS_NAMES[own]}
    return Reason(code="preempted", params={"for_job": job_id} | names)


def is_news(held: Reason | None, fresh: Reason, *, exact: bool) -> bool:
    """Whether the stored reason should be replaced; if not `exact`, free numbers may differ."""
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


def _full(code: str, asks: Asks, state: PoolState) -> Reason:
    free = state.most_free()
    return Reason(
        code=code,
        params=_asked(asks, state)
        | {
            "free": _words(free),
            "free_cpu": free.cpu,
            "free_memory": free.memory,
            "free_gpu": free.gpu,
        },
    )


def _asked(asks: Asks, state: PoolState) -> dict[str, str | int | float | None]:
    """What each replica asks for; of the largest kind, if the job has several."""
    _, _, ask = asks[0]
    return {
        "asks": _words(ask),
        "count": sum(count for _, count, _ in asks),
        "cpu": ask.cpu,
        "memory": ask.memory,
        "gpu": ask.gpu,
        "pool": state.pool.name,
        "nodes": len(state.nodes),
    }


@lru_cache(maxsize=1024)
def _words(resources: Resources) -> str:
    return format_resources(resources.cpu, resources.memory, resources.gpu)
