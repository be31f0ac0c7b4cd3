"""Why a job waits, with the numbers: what it asks, what is free, where, on how many machines.

Reasons are codes and values; the sentences are in `model/texts_jobs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddlecloud.model.job import Reason, Resources
from paddlecloud.model.quantities import format_resources
from paddlecloud.scheduler.room import Room
from paddlecloud.scheduler.view import WaitingJob

_FULL = frozenset({"queue_no_room", "queue_next", "queue_reserved"})
"""Three ways to say that there is not enough; which of them holds can change with every plan."""
_LASTING = ("asks", "count", "pool", "nodes")


def why_held(job: WaitingJob, rooms: Sequence[Room]) -> Reason:
    """Why none of these pools, the ones the job may use, can take it now."""
    if not rooms:
        return Reason(code="queue_no_pool", params={"pools": ", ".join(job.pools)})
    staffed = [room for room in rooms if room.spots]
    if not staffed:
        return Reason(code="queue_no_agent", params={"pool": rooms[0].pool.name})
    large = [room for room in staffed if room.seats_when_empty(job.groups) is not None]
    if not large:
        has = _words(staffed[0].largest())
        return Reason(code="queue_too_large", params=_asked(job, staffed[0]) | {"has": has})
    kept = large[0].kept_for is not None and large[0].would_fit_unkept(job.groups)
    return _full("queue_reserved" if kept else "queue_no_room", job, large[0])


def why_kept(job: WaitingJob, room: Room) -> Reason:
    """The job is the next in this pool; room is being kept for it."""
    return _full("queue_next", job, room)


def is_news(held: Reason | None, fresh: Reason, *, exact: bool) -> bool:
    """True if the stored reason should be replaced. Not `exact`: what is free may have changed."""
    if held is None:
        return True
    if held.code == fresh.code and held.params == fresh.params:
        return False
    if exact or not {held.code, fresh.code} <= _FULL:
        return True
    return any(held.params.get(name) != fresh.params.get(name) for name in _LASTING)


def _full(code: str, job: WaitingJob, room: Room) -> Reason:
    free = room.most_free()
    return Reason(
        code=code,
        params=_asked(job, room)
        | {
            "free": _words(free),
            "free_cpu": free.cpu,
            "free_memory": free.memory,
            "free_gpu": free.gpu,
        },
    )


def _asked(job: WaitingJob, room: Room) -> dict[str, str | int | float | None]:
    """What each replica asks; of the largest kind, if the job has several."""
    ask = max((group.resources for group in job.groups), key=lambda r: (r.gpu, r.cpu, r.memory))
    return {
        "asks": _words(ask),
        "count": sum(group.count for group in job.groups),
        "cpu": ask.cpu,
        "memory": ask.memory,
        "gpu": ask.gpu,
        "pool": room.pool.name,
        "nodes": len(room.spots),
    }


def _words(resources: Resources) -> str:
    return format_resources(resources.cpu, resources.memory, resources.gpu)
