"""Who comes next: the waiting jobs, sorted so that the next in turn is found without a search.

Jobs that are alike in what they ask for stand in one line; within a line the owner with the least
in use comes first, and of one owner the job that came first. Shares change with every start and
every end, so the order of owners lives in a heap that is put right when it is looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace, nsmallest

from paddlecloud.model.jobs.job import JobType, Reason, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.pool_state import Asks, Room, Spot, any_fits, as_asks, as_wants
from paddlecloud.scheduler.view import WaitingJob, weight

Turn = tuple[float, int, str]
"""What the owner has in use, the number of the job, the owner: the smallest is next."""
ShapeKey = tuple[object, ...]
MOST_HOPE = 16
"""Where room came free on more machines, a try costs less than a look at each."""


class Shape:
    """Jobs that fit alike: what they ask for and the pools they may use."""

    __slots__ = (
        "asks",
        "cost",
        "cpu",
        "gpu",
        "hope",
        "hopeless",
        "job",
        "jobs",
        "key",
        "lacking",
        "large",
        "memory",
        "mixed",
        "open",
        "reason",
        "reason_round",
        "rooms",
        "under",
        "wants",
    )

    def __init__(self, key: ShapeKey, job: WaitingJob) -> None:
        self.key, self.job = key, job
        self.asks: Asks = as_asks(job.groups)
        self.wants = as_wants(self.asks)
        self.hopeless: dict[int, tuple[float, float]] = {}
        """For which classes there was nobody to stop: until when not to look again, and how long
        that was."""
        self.rooms: list[Room] = []
        self.large: list[Room] | None = None
        """Those of them that are large enough for it when nothing runs; None: not asked yet."""
        self.open = True
        """False: it is known that none of it fits now."""
        self.hope: list[Spot] = []
        """Open only because of what came free on these machines; empty: whatever they have."""
        self.lacking = 0
        """When it was closed, at least so many of its replicas had no seat; 0: nobody counted."""
        self.under: tuple[frozenset[object], ...] = ()
        """Closed only because of what was kept in its pools when it was tried: this."""
        self.jobs = 0
        self.mixed = False
        """It may use private pools as well as public ones."""
        self.cpu = sum(ask.cpu * count for _, count, ask in self.asks)
        self.memory = sum(ask.memory * count for _, count, ask in self.asks)
        self.gpu = sum(ask.gpu * count for _, count, ask in self.asks)
        self.cost = sum(weight(ask) * count for _, count, ask in self.asks)
        self.reason: Reason | None = None
        self.reason_round = -1

    def resolve(self, rooms: Mapping[str, Room]) -> None:
        """Find its pools again, because pools or machines have changed."""
        found = [rooms[name] for name in self.job.pools if name in rooms]
        kind = self.job.job_type
        self.rooms = [r for r in found if kind is None or kind in r.pool.job_types]
        self.mixed = len({room.pool.private for room in self.rooms}) > 1
        self.large = None
        self.open, self.under, self.hope, self.lacking = True, (), [], 0

    def worth_trying(self) -> bool:
        """False if it is known that it does not fit beside what is kept now."""
        if self.open:
            return True
        if not self.under:
            return False
        return any(
            not kept <= room.keeps for kept, room in zip(self.under, self.rooms, strict=True)
        )

    def may_be_kept_for(self) -> bool:
        """True if a pool that is large enough for it keeps room for nobody yet."""
        if self.large is None:
            rooms = self.rooms
            self.large = [room for room in rooms if room.seats_when_empty(self.asks) is not None]
        return any(room.kept_for is None for room in self.large)

    def grown(self, room: Room, spots: Sequence[Spot]) -> None:
        """Room came free on these machines: open it if that can make a difference.

        Of a gang of equals so many seats must have come as it lacked: each machine has at most what
        it could hold now, and what else was free when they were counted has only become less.
        """
        if room not in self.rooms or (self.open and not self.hope):
            return
        if self.open:
            self.hope = [*self.hope, *spots] if len(self.hope) < MOST_HOPE else []
            return
        if not self.lacking:
            self.open = any_fits(spots, self.wants)
        else:
            more = 0
            for spot in spots:
                more += spot.holds(self.asks[0][2], self.lacking)
            self.open = more >= self.lacking
            self.lacking = max(0, self.lacking - more)
        self.hope = list(spots) if self.open else []

    def still_open(self) -> bool:
        """`open`, and closed without a try when others took what it was opened for."""
        if self.open and self.hope and not any_fits(self.hope, self.wants):
            self.open, self.hope = False, []
        return self.open

    def close(self) -> None:
        """It did not fit just now."""
        self.open, self.hope = False, []
        countable = len(self.rooms) == 1 and len(self.asks) == 1 and self.asks[0][1] > 1
        self.lacking = self.rooms[0].unseated if countable else 0
        blocked = any(room.blocked_by_kept(self.wants) for room in self.rooms if room.kept)
        self.under = tuple(room.keeps for room in self.rooms) if blocked else ()


def shape_key(job: WaitingJob) -> ShapeKey:
    """Equal for jobs that fit alike. Flat, because hashing nested dataclasses would be most of the
    time of a plan over a long queue."""
    parts: list[object] = [job.pools, job.job_type is JobType.GPU, job.job_type is None]
    for group in job.groups:
        ask = group.resources
        parts += (group.role is Role.PSERVER, group.count, ask.cpu, ask.memory, ask.gpu)
    return tuple(parts)


class Entry:
    """A waiting job with its place in the lines."""

    __slots__ = ("held", "job", "level", "line", "queued", "rank", "shape", "since")

    def __init__(self, job: WaitingJob, shape: Shape, rank: int, since: float) -> None:
        self.job, self.shape, self.rank, self.since = job, shape, rank, since
        self.line: Line | None = None
        self.level = 0
        self.held = job.held_reason
        self.queued = job.state is JobState.QUEUE


class Line:
    """Jobs of one shape and one level that may do the same to get a place."""

    __slots__ = ("_best", "_heap", "_passed", "owners", "parked", "rank", "reserve", "shape")

    def __init__(self, shape: Shape, rank: int, *, reserve: bool) -> None:
        self.shape = shape
        self.rank = rank
        """The class up to which (it excluded) they may stop others now; 0: nobody."""
        self.reserve = reserve
        """They waited long enough that room is kept for them."""
        self.owners: dict[str, list[int]] = {}
        self.parked: set[str] = set()
        """Owners whose quota is used up."""
        self._heap: list[Turn] = []
        self._best: dict[str, Turn] = {}
        self._passed: dict[str, int] = {}
        """How many of an owner's jobs were looked at in this round without finding a place."""

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
        place = bisect_left(numbers, number)
        del numbers[place]
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
        """Nobody in this line comes before this one, who need not be there any more."""
        return self._heap[0] if self._heap else None

    def top(self, usage: Mapping[str, float]) -> Turn | None:
        """Who is next in this line."""
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
        """Look past this owner's first job for the rest of the round."""
        self._passed[owner] = self._passed.get(owner, 0) + 1

    def park(self, owner: str) -> None:
        """Look past this owner until `unpark`."""
        self.parked.add(owner)
        self._best.pop(owner, None)

    def unpark(self, owner: str, used: float) -> None:
        if owner in self.parked:
            self.parked.discard(owner)
            self.rise(owner, used)

    def renew(self, usage: Mapping[str, float]) -> None:
        """A new round begins: everybody counts again."""
        if not self._passed:
            return
        passed, self._passed = self._passed, {}
        for owner in passed:
            self.rise(owner, usage.get(owner, 0.0))


LineKey = tuple[ShapeKey, int, bool]
LineTurn = tuple[float, int, str, int, Line]
"""Nobody in a line comes before this: what `Turn` says, the place of the line, the line."""


class Level:
    """The lines of one priority."""

    def __init__(self) -> None:
        self.lines: dict[LineKey, Line] = {}
        self.owners: dict[str, list[int]] = {}
        """The numbers of each owner's jobs, over all lines."""
        self._heap: list[Turn] = []
        self._best: dict[str, Turn] = {}

    def add(self, entry: Entry, line_rank: int, *, reserve: bool, used: float) -> Line:
        key = (entry.shape.key, line_rank, reserve)
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line(entry.shape, line_rank, reserve=reserve)
        owner, number = entry.job.owner, entry.job.number
        line.add(owner, number, used)
        numbers = self.owners.setdefault(owner, [])
        if not numbers or number > numbers[-1]:
            numbers.append(number)
        else:
            insort(numbers, number)
        if numbers[0] == number:
            self.rise(owner, used)
        return line

    def remove(self, entry: Entry) -> None:
        line, owner, number = entry.line, entry.job.owner, entry.job.number
        assert line is not None
        line.remove(owner, number)
        if not line.owners:
            del self.lines[entry.shape.key, line.rank, line.reserve]
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
        """The numbers of the jobs whose turn would come first now: those of the owner who has the
        least in use, then of the next one."""
        jobs: list[tuple[float, int]] = []
        for used, _, owner in self._ahead(usage, count):
            jobs += [(used, number) for number in self.owners[owner][:count]]
        return [number for _, number in nsmallest(count, jobs)]

    def _ahead(self, usage: Mapping[str, float], count: int) -> list[Turn]:
        """The turns of as many owners as have the first `count` jobs between them; of no more than
        `count`, since each of those has one before anybody else's."""
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
    """The numbers of the first jobs in line over all levels."""
    found: list[int] = []
    for level in sorted(levels, reverse=True):
        found += levels[level].first(usage, count - len(found))
        if len(found) >= count:
            break
    return found


def foremost(turns: list[LineTurn], usage: Mapping[str, float]) -> LineTurn | None:
    """Takes out of these lines the one for whose next job room would be kept first."""
    heapify(turns)
    while turns:
        turn = turns[0]
        place, line = turn[3:]
        top = line.top(usage) if line.shape.may_be_kept_for() else None
        if top is None:
            heappop(turns)
        elif top == turn[:3]:
            return heappop(turns)
        else:
            heapreplace(turns, (*top, place, line))
    return None
