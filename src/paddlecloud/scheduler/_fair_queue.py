"""Waiting jobs in the order of priority, fair share and arrival, without a search for the next.

Jobs with the same demand are in one queue; in a queue the owner with the smallest usage comes
first, and of one owner the job that arrived first. Usage changes with every start and every end, so
the order of owners is a heap that is corrected when it is read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace, nsmallest

from paddlecloud.model.jobs.job import JobType, Reason, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler._pool_state import (
    Asks,
    NodeState,
    PoolState,
    any_fits,
    to_asks,
    to_wants,
)
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import WaitingJob

Turn = tuple[float, int, str]
"""Usage of the owner, number of the job, owner: the smallest is next."""
DemandKey = tuple[object, ...]
MAX_FREED = 16
"""If capacity came free on more machines, a try costs less than checking each of them."""


class Demand:
    """What a group of equal jobs asks for, and the pools that they may use."""

    def __init__(self, key: DemandKey, job: WaitingJob) -> None:
        self.key, self.job = key, job
        self.asks: Asks = to_asks(job.groups)
        self.wants = to_wants(self.asks)
        self.no_victims: dict[int, tuple[float, float]] = {}
        """Priority classes for which no victims were found: until when not to search again, and
        the length of that pause."""
        self.pools: list[PoolState] = []
        self.large_enough: list[PoolState] | None = None
        """Those of them that are large enough when nothing runs; None: not computed yet."""
        self.open = True
        """False: it is known not to fit now."""
        self.freed: list[NodeState] = []
        """Open only because of what came free on these machines; empty: on any."""
        self.missing = 0
        """How many replicas at least had no slot when it was closed; 0: not counted."""
        self.blocked_by: tuple[frozenset[object], ...] = ()
        """The reservations of its pools because of which it was closed."""
        self.jobs = 0
        self.mixed = False
        """It may use private pools as well as public ones."""
        self.cpu = sum(ask.cpu * count for _, count, ask in self.asks)
        self.memory = sum(ask.memory * count for _, count, ask in self.asks)
        self.gpu = sum(ask.gpu * count for _, count, ask in self.asks)
        self.cost = sum(weight(ask) * count for _, count, ask in self.asks)
        self.reason: Reason | None = None
        self.reason_round = -1

    def resolve(self, pools: Mapping[str, PoolState]) -> None:
        """Find its pools again after pools or machines have changed."""
        found = [pools[name] for name in self.job.pools if name in pools]
        kind = self.job.job_type
        self.pools = [r for r in found if kind is None or kind in r.pool.job_types]
        self.mixed = len({state.pool.metered for state in self.pools}) > 1
        self.large_enough = None
        self.open, self.blocked_by, self.freed, self.missing = True, (), [], 0

    def worth_trying(self) -> bool:
        """False if it is known not to fit beside the present reservations."""
        if self.open:
            return True
        if not self.blocked_by:
            return False
        return any(
            not reserved <= state.reservations
            for reserved, state in zip(self.blocked_by, self.pools, strict=True)
        )

    def may_reserve(self) -> bool:
        """Whether a pool that is large enough has no reservation for a waiting job yet."""
        if self.large_enough is None:
            self.large_enough = [
                state
                for state in self.pools
                if state.slots_when_empty(self.asks, self.job.require) is not None
            ]
        return any(state.reserved_for is None for state in self.large_enough)

    def capacity_freed(self, state: PoolState, nodes: Sequence[NodeState]) -> None:
        """Capacity came free on these machines: open it if that can make a difference.

        For a gang of equal replicas as many slots must have come free as were missing: each machine
        has at most what it could hold now, and other free capacity can only have shrunk.
        """
        if state not in self.pools or (self.open and not self.freed):
            return
        if self.open:
            self.freed = [*self.freed, *nodes] if len(self.freed) < MAX_FREED else []
            return
        if not self.missing:
            self.open = any_fits(nodes, self.wants)
        else:
            more = 0
            for node in nodes:
                more += node.holds(self.asks[0][2], self.missing)
            self.open = more >= self.missing
            self.missing = max(0, self.missing - more)
        self.freed = list(nodes) if self.open else []

    def still_open(self) -> bool:
        """`open`; closed without a try if other jobs took what it was opened for."""
        if self.open and self.freed and not any_fits(self.freed, self.wants):
            self.open, self.freed = False, []
        return self.open

    def close(self) -> None:
        """It did not fit."""
        self.open, self.freed = False, []
        # Labels are not counted: what comes free elsewhere would seem to help.
        alike = len(self.pools) == 1 and len(self.asks) == 1 and not self.job.require
        countable = alike and self.asks[0][1] > 1
        self.missing = self.pools[0].unplaced if countable else 0
        blocked = any(
            state.blocked_by_reservations(self.wants) for state in self.pools if state.reserved
        )
        self.blocked_by = tuple(state.reservations for state in self.pools) if blocked else ()


def demand_key(job: WaitingJob) -> DemandKey:
    """Equal for jobs that fit alike. Flat, because hashing nested dataclasses would take most of
    the time of a plan over a long queue."""
    parts: list[object] = [job.pools, job.job_type is JobType.GPU, job.job_type is None]
    parts += job.require
    for group in job.groups:
        ask = group.resources
        parts += (group.role is Role.PSERVER, group.count, ask.cpu, ask.memory, ask.gpu)
    return tuple(parts)


class Entry:
    """A waiting job and the queue it is in."""

    __slots__ = ("demand", "held", "job", "level", "queue", "queued", "rank", "since")

    def __init__(self, job: WaitingJob, demand: Demand, rank: int, since: float) -> None:
        self.job, self.demand, self.rank, self.since = job, demand, rank, since
        self.queue: Queue | None = None
        self.level = 0
        self.held = job.held_reason
        self.queued = job.state is JobState.QUEUE


class Queue:
    """Jobs of one demand and one level with the same rights to preempt and to reserve."""

    def __init__(self, demand: Demand, rank: int, *, reserve: bool) -> None:
        self.demand = demand
        self.rank = rank
        """They may stop jobs of classes below this one; 0: none."""
        self.reserve = reserve
        """They waited long enough that capacity is reserved for them."""
        self.owners: dict[str, list[int]] = {}
        self.parked: set[str] = set()
        """Owners whose quota is used up."""
        self._heap: list[Turn] = []
        self._best: dict[str, Turn] = {}
        self._passed: dict[str, int] = {}
        """How many of an owner's jobs were tried in this round without success."""

    def add(self, owner: str, number: int, used: float) -> None:
        numbers = self.owners.get(owner)
        if numbers is None:
            numbers = self.owners[owner] = [number]
        elif number > numbers[-1]:
            numbers.append(number)
            return
        else:
            insort(numbers, number)
        if numbers[0] == number:
            self.rise(owner, used)

    def remove(self, owner: str, number: int) -> None:
        numbers = self.owners[owner]
        del numbers[bisect_left(numbers, number)]
        if not numbers:
            del self.owners[owner]
            self._best.pop(owner, None)
            self.parked.discard(owner)
            self._passed.pop(owner, None)

    def rise(self, owner: str, used: float) -> None:
        """This owner's turn may come earlier than before."""
        numbers = self.owners.get(owner)
        passed = self._passed.get(owner, 0)
        if numbers is None or owner in self.parked or passed >= len(numbers):
            return
        turn = (used, numbers[passed], owner)
        if self._best.get(owner) != turn:
            self._best[owner] = turn
            heappush(self._heap, turn)
            if len(self._heap) > 2 * len(self._best) + 64:
                self._heap = list(self._best.values())
                heapify(self._heap)

    def bound(self) -> Turn | None:
        """No job of this queue comes before this turn, which may be out of date."""
        return self._heap[0] if self._heap else None

    def top(self, usage: Mapping[str, float]) -> Turn | None:
        """The next turn of this queue."""
        heap = self._heap
        while heap:
            turn = heap[0]
            owner = turn[2]
            if self._best.get(owner) != turn:
                heappop(heap)
                continue
            numbers, passed = self.owners[owner], self._passed.get(owner, 0)
            if passed >= len(numbers):
                del self._best[owner]
                heappop(heap)
                continue
            now = (usage.get(owner, 0.0), numbers[passed], owner)
            if now == turn:
                return turn
            self._best[owner] = now
            heapreplace(heap, now)
        return None

    def skip(self, owner: str) -> None:
        """Skip this owner's first job for the rest of the round."""
        self._passed[owner] = self._passed.get(owner, 0) + 1

    def park(self, owner: str) -> None:
        """Skip this owner until `unpark`."""
        self.parked.add(owner)
        self._best.pop(owner, None)

    def unpark(self, owner: str, used: float) -> None:
        if owner in self.parked:
            self.parked.discard(owner)
            self.rise(owner, used)

    def renew(self, usage: Mapping[str, float]) -> None:
        """A new round begins: skipped jobs count again."""
        if not self._passed:
            return
        passed, self._passed = self._passed, {}
        for owner in passed:
            self.rise(owner, usage.get(owner, 0.0))


QueueKey = tuple[DemandKey, int, bool]
QueueTurn = tuple[float, int, str, int, Queue]
"""A `Turn` before which no job of a queue comes, the position of the queue, and the queue."""


class Level:
    """The queues of one priority."""

    def __init__(self) -> None:
        self.queues: dict[QueueKey, Queue] = {}
        self.owners: dict[str, list[int]] = {}
        """The numbers of each owner's jobs, over all queues."""
        self._heap: list[Turn] = []
        self._best: dict[str, Turn] = {}

    def add(self, entry: Entry, queue_rank: int, *, reserve: bool, used: float) -> Queue:
        key = (entry.demand.key, queue_rank, reserve)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(entry.demand, queue_rank, reserve=reserve)
        owner, number = entry.job.owner, entry.job.number
        queue.add(owner, number, used)
        numbers = self.owners.setdefault(owner, [])
        if not numbers or number > numbers[-1]:
            numbers.append(number)
        else:
            insort(numbers, number)
        if numbers[0] == number:
            self.rise(owner, used)
        return queue

    def remove(self, entry: Entry) -> None:
        queue, owner, number = entry.queue, entry.job.owner, entry.job.number
        assert queue is not None
        queue.remove(owner, number)
        if not queue.owners:
            del self.queues[entry.demand.key, queue.rank, queue.reserve]
        numbers = self.owners[owner]
        del numbers[bisect_left(numbers, number)]
        if not numbers:
            del self.owners[owner], self._best[owner]

    def rise(self, owner: str, used: float) -> None:
        """This owner's turn may come earlier than before."""
        numbers = self.owners.get(owner)
        turn = (used, numbers[0], owner) if numbers else None
        if turn is not None and self._best.get(owner) != turn:
            self._best[owner] = turn
            heappush(self._heap, turn)
            if len(self._heap) > 2 * len(self._best) + 64:
                self._heap = list(self._best.values())
                heapify(self._heap)

    def first(self, usage: Mapping[str, float], count: int) -> list[int]:
        """The numbers of the first jobs in order: those of the owner with the smallest usage, then
        those of the next owner."""
        jobs: list[tuple[float, int]] = []
        for used, _, owner in self._ahead(usage, count):
            jobs += [(used, number) for number in self.owners[owner][:count]]
        return [number for _, number in nsmallest(count, jobs)]

    def _ahead(self, usage: Mapping[str, float], count: int) -> list[Turn]:
        """The turns of the owners who have the first `count` jobs; no more than `count` of them,
        since each has at least one."""
        heap, best, owners = self._heap, self._best, self.owners
        ahead: dict[str, Turn] = {}
        jobs, last = 0, 0.0
        while heap and len(ahead) < count and (jobs < count or heap[0][0] <= last):
            turn = heappop(heap)
            owner = turn[2]
            if best.get(owner) != turn or owner in ahead:
                continue
            now = (usage.get(owner, 0.0), owners[owner][0], owner)
            if now == turn:
                ahead[owner] = turn
                jobs, last = jobs + len(owners[owner]), turn[0]
            else:
                best[owner] = now
                heappush(heap, now)
        for turn in ahead.values():
            heappush(heap, turn)
        return list(ahead.values())


def first(levels: Mapping[int, Level], usage: Mapping[str, float], count: int) -> list[int]:
    """The numbers of the first jobs in order, over all levels."""
    found: list[int] = []
    for level in sorted(levels, reverse=True):
        found += levels[level].first(usage, count - len(found))
        if len(found) >= count:
            break
    return found


def foremost(turns: list[QueueTurn], usage: Mapping[str, float]) -> QueueTurn | None:
    """Remove and return the turn for whose job capacity would be reserved first."""
    heapify(turns)
    while turns:
        turn = turns[0]
        position, queue = turn[3:]
        top = queue.top(usage) if queue.demand.may_reserve() else None
        if top is None:
            heappop(turns)
        elif top == turn[:3]:
            return heappop(turns)
        else:
            heapreplace(turns, (*top, position, queue))
    return None
