"""Which waiting job starts where next: `plan(view)` decides, the server acts.

The rule, which `query_job` explains and the tests hold:

1. A job that waited longer than `schedule_timeout` gives up, whatever is free.
2. Order: higher priority first; within it the user who has the least in use, what this plan already
   promised included; within one user, and between users with the same, the job that came first.
3. A job starts in the first pool of its list in which every replica fits at once, or not at all.
4. A job that does not fit lets those behind it pass, until it has waited `reserve_after`. From then
   on the room it needs is kept on certain machines of one pool: those behind it may use what is
   left beside it and no more. What runs there ends some day and nothing takes its place, so the job
   starts. Each pool keeps room for one job at a time, the first in order.
5. A job is held only if its reason is news. Far back in the queue a reason whose free numbers alone
   have changed is not, so a long queue costs no writes while jobs come and go at its head.

Nothing here asks the time, and the same view gives the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from paddlecloud.model.job import JobType, Reason, Role
from paddlecloud.model.quantities import format_duration
from paddlecloud.model.states import JobState
from paddlecloud.scheduler.reasons import is_news, why_held, why_kept
from paddlecloud.scheduler.room import Room, Seats, as_seats
from paddlecloud.scheduler.view import Decision, GiveUp, Hold, Place, View, WaitingJob, weight

EXACT_REASONS = 10
"""So many jobs at the head of the queue are told every change of what is free."""


def plan(view: View) -> list[Decision]:
    """What to do with each waiting job; a job that is not named goes on waiting as it does."""
    decisions, waiting = _leaving(view)
    desk = _Desk(view)
    if all(room.full for room in desk.rooms.values()):
        decisions += _hold_all(desk, waiting)
        return decisions
    for position, job in enumerate(_in_order(waiting, desk.usage)):
        decision = desk.decide(job, exact=position < EXACT_REASONS)
        if decision is not None:
            decisions.append(decision)
    return decisions


def _leaving(view: View) -> tuple[list[Decision], list[WaitingJob]]:
    latest = view.now - view.schedule_timeout
    limit = format_duration(view.schedule_timeout.total_seconds())
    reason = Reason(code="queue_timeout", params={"limit": limit})
    gone: list[Decision] = []
    staying = []
    for job in view.waiting:
        if job.waiting_since < latest:
            gone.append(GiveUp(job_id=job.id, reason=reason))
        else:
            staying.append(job)
    return gone, staying


def _hold_all(desk: _Desk, waiting: list[WaitingJob]) -> list[Decision]:
    """Nothing is free anywhere, so the order does not matter and need not be worked out."""
    held = (desk.hold(job, _shape(job), exact=False) for job in waiting)
    return [decision for decision in held if decision is not None]


def _in_order(waiting: list[WaitingJob], usage: dict[str, float]) -> Iterator[WaitingJob]:
    """The jobs as their turn comes. `usage` grows while the caller places them."""
    levels: dict[int, dict[str, list[WaitingJob]]] = {}
    for job in sorted(waiting, key=lambda job: job.number, reverse=True):
        levels.setdefault(job.priority, {}).setdefault(job.owner, []).append(job)
    for priority in sorted(levels, reverse=True):
        yield from _fairly(levels[priority], usage)


def _fairly(queues: dict[str, list[WaitingJob]], usage: dict[str, float]) -> Iterator[WaitingJob]:
    turns = [(usage.get(owner, 0.0), jobs[-1].number, owner) for owner, jobs in queues.items()]
    heapify(turns)
    while turns:
        used, number, owner = turns[0]
        if usage.get(owner, 0.0) > used:
            heapreplace(turns, (usage[owner], number, owner))
            continue
        jobs = queues[owner]
        job = jobs.pop()
        if jobs:
            heapreplace(turns, (used, jobs[-1].number, owner))
        else:
            heappop(turns)
        yield job


class _Desk:
    """The state of one plan: what is left in each pool, and what is already known not to fit."""

    def __init__(self, view: View) -> None:
        self.rooms = {pool.pool.name: Room(pool) for pool in view.pools}
        self.usage = dict(view.usage)
        self.reserve_since = view.now - view.reserve_after
        self.misfits: dict[_Shape, Reason] = {}

    def decide(self, job: WaitingJob, *, exact: bool) -> Decision | None:
        # Room only shrinks during a plan: what did not fit once need not be tried again.
        shape = _shape(job)
        if shape not in self.misfits:
            for room in self._rooms_of(job):
                seats = room.seats(job.groups)
                if seats is not None:
                    return self._start(room, job, seats)
        if job.waiting_since <= self.reserve_since:
            for room in self._rooms_of(job):
                seats = room.seats_when_empty(job.groups) if room.kept_for is None else None
                if seats is not None:
                    return self._keep(room, job, seats)
        return self.hold(job, shape, exact=exact)

    def hold(self, job: WaitingJob, shape: _Shape, *, exact: bool) -> Hold | None:
        reason = self.misfits.get(shape)
        if reason is None:
            reason = self.misfits[shape] = why_held(job, self._rooms_of(job))
        return _held(job, reason, exact=exact)

    def _start(self, room: Room, job: WaitingJob, seats: Seats) -> Place:
        room.take(seats)
        cost = sum(weight(ask) for _, _, ask, _ in seats)
        self.usage[job.owner] = self.usage.get(job.owner, 0.0) + cost
        return Place(job_id=job.id, pool=room.pool.name, nodes=as_seats(seats))

    def _keep(self, room: Room, job: WaitingJob, seats: Seats) -> Decision | None:
        if room.all_free(seats):
            # Packing machine by machine can miss a way that the kept room has.
            return self._start(room, job, seats)
        room.keep(job.id, seats)
        return _held(job, why_kept(job, room), exact=True)

    def _rooms_of(self, job: WaitingJob) -> list[Room]:
        rooms = [self.rooms[name] for name in job.pools if name in self.rooms]
        return [r for r in rooms if job.job_type is None or job.job_type in r.pool.job_types]


def _held(job: WaitingJob, reason: Reason, *, exact: bool) -> Hold | None:
    if job.state is JobState.QUEUE and not is_news(job.held_reason, reason, exact=exact):
        return None
    return Hold(job_id=job.id, reason=reason)


_Shape = tuple[object, ...]


def _shape(job: WaitingJob) -> _Shape:
    """Equal for jobs that fit alike. Flat, because hashing nested dataclasses would be most of the
    time of a plan over a long queue."""
    parts: list[object] = [job.pools, job.job_type is JobType.GPU, job.job_type is None]
    for group in job.groups:
        ask = group.resources
        parts += (group.role is Role.PSERVER, group.count, ask.cpu, ask.memory, ask.gpu)
    return tuple(parts)
