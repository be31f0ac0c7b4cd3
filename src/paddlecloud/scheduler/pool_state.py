"""One pool as the planner sees it: what is free on each machine, what is kept, and who runs where.

What is promised to one job is gone for the next. Room can also be *kept* for a job that does not
fit yet: it stays free to be looked at, but only that job may use it. The machines lie in an index,
so a place among ten thousand is found without asking them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paddlecloud.model.jobs.job import NOTHING, Reason, ReplicaGroup, Resources, Role
from paddlecloud.scheduler.node_index import HAIR, Index
from paddlecloud.scheduler.view import SMALLEST_CPU, NodeView, PoolView, Seat

_CLASSES = 4

Asks = tuple[tuple[Role, int, Resources], ...]
"""Role, count and resources of the groups of a gang, the largest replicas first."""
Wants = tuple[tuple[float, int, int], ...]
"""CPUs, memory and cards, with a hair's breadth taken off; below none where none is asked for."""
_LESS_THAN_NONE = -(1 << 60)


class Spot:
    """One machine: what is free on it, how much of that is kept, and who could be asked to go."""

    __slots__ = (
        "cpu",
        "gpu",
        "kept_cpu",
        "kept_gpu",
        "kept_memory",
        "lower",
        "memory",
        "node",
        "place",
        "runs",
    )

    def __init__(self, node: NodeView, place: int) -> None:
        self.node, self.place = node, place
        self.cpu, self.memory, self.gpu = node.free.cpu, node.free.memory, node.free.gpu
        self.kept_cpu, self.kept_memory, self.kept_gpu = 0.0, 0, 0
        self.runs: dict[str, Run] = {}
        self.lower: list[list[float]] = []
        """CPUs, memory and cards of those who run here, by class; empty where nobody can be
        asked to go."""

    def fits(self, ask: Resources) -> bool:
        return (
            ask.cpu <= self.cpu - self.kept_cpu + HAIR
            and (not ask.memory or ask.memory <= self.memory - self.kept_memory)
            and (not ask.gpu or ask.gpu <= self.gpu - self.kept_gpu)
        )

    def holds(self, ask: Resources, most: int) -> int:
        """How many such replicas could sit here, up to `most`, were nothing kept."""
        if ask.cpu > self.cpu + HAIR:
            return 0
        count = min(most, int((self.cpu + HAIR) / ask.cpu)) if ask.cpu else most
        if ask.memory:
            count = min(count, self.memory // ask.memory)
        if ask.gpu:
            count = min(count, self.gpu // ask.gpu)
        return max(0, count)

    def take(self, ask: Resources, times: int = 1) -> None:
        """`times` -1 gives it back."""
        self.cpu -= ask.cpu * times
        self.memory -= ask.memory * times
        self.gpu -= ask.gpu * times

    def keep(self, ask: Resources) -> None:
        self.kept_cpu += ask.cpu
        self.kept_memory += ask.memory
        self.kept_gpu += ask.gpu


Seats = list[tuple[Role, int, Resources, Spot]]


class Run:
    """A job that has its place: what has to be given back when it ends."""

    __slots__ = ("cost", "id", "owner", "rank", "room", "seats", "since", "stopping")

    def __init__(
        self, id_: str, owner: str, rank: int, room: Room, held: list[tuple[Spot, Resources]],
        since: float, cost: float,
    ) -> None:  # fmt: skip
        self.id, self.owner, self.rank, self.room = id_, owner, rank, room
        self.seats, self.since, self.cost = held, since, cost
        self.stopping = False


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Seats that are kept for a job until those who sit there are gone."""

    room: Room
    seats: Seats
    victims: tuple[Run, ...]
    reason: Reason


class Room:
    """The machines of one pool."""

    def __init__(self, view: PoolView) -> None:
        self.pool = view.pool
        # Machines without cards first, so that a job without need of one leaves them alone.
        nodes = sorted(view.nodes, key=lambda node: node.total.gpu)
        self.spots = [Spot(node, place) for place, node in enumerate(nodes)]
        self.by_node = {spot.node.id: spot for spot in self.spots}
        self._free = Index([(spot.cpu, spot.memory, spot.gpu) for spot in self.spots])
        self._whole: Index | None = None
        self._ideal: dict[Asks, Seats | None] = {}
        self._most_free: Resources | None = None
        self.unseated = 0
        """Replicas that had no seat when the last gang was asked for."""
        self.kept_for: str | None = None
        """The job that waited longest, for which room is kept until enough has ended."""
        self.kept: Seats = []
        self.keeps: frozenset[object] = frozenset()
        """Who room is kept for, and where."""
        self.runs: dict[str, Run] = {}
        """In a pool that allows preemption: who runs."""
        self.stopping: dict[str, Run] = {}
        self._reach = [self._new_reach() for _ in range(_CLASSES)] if view.pool.preemption else []
        """For each class: what is free or kept together with what lower classes hold. It does not
        change while whom to stop is tried out: what one of them leaves, it no longer holds."""

    @property
    def full(self) -> bool:
        return not self.spots or self._free.most()[0] < SMALLEST_CPU - HAIR

    def seats(self, asks: Asks) -> Seats | None:
        """A seat for every replica at once, or None. Nothing is taken yet.

        Largest replicas first, each on the first machine with room: near the best for the few
        kinds of replica that a gang has, and always the same for the same input.
        """
        if len(asks) == 1 and asks[0][1] == 1:
            role, _, ask = asks[0]
            place = self._free.first(ask.cpu, ask.memory, ask.gpu)
            return None if place < 0 or not self.spots else [(role, 0, ask, self.spots[place])]
        seats, self.unseated = _first_fit(asks, self.spots, self._free, _available)
        return None if self.unseated else seats

    def find(self, ask: Resources) -> Spot | None:
        place = self._free.first(ask.cpu, ask.memory, ask.gpu)
        return None if place < 0 or not self.spots else self.spots[place]

    def take(self, seats: Seats) -> None:
        for _, _, ask, spot in seats:
            spot.take(ask)
        self._refresh({spot.place: spot for _, _, _, spot in seats}.values())

    def hold(self, held: Iterable[tuple[Spot, Resources]], times: int = 1) -> None:
        """Take this room; `times` -1 gives it back."""
        touched = {}
        for spot, ask in held:
            spot.take(ask, times)
            touched[spot.place] = spot
        self._refresh(touched.values())

    def enter(self, run: Run) -> None:
        """Somebody runs here now; the room was taken."""
        if not self.pool.preemption:
            return
        self.runs[run.id] = run
        for spot, ask in run.seats:
            spot.runs[run.id] = run
            if not spot.lower:
                spot.lower = [[0.0, 0, 0] for _ in range(_CLASSES)]
            _add(spot.lower[run.rank], ask, 1)
        self._refresh_reach(spot for spot, _ in run.seats)
        if run.stopping:
            self.stopping[run.id] = run

    def leave(self, run: Run) -> None:
        """It ended: what it held is free."""
        self.hold(run.seats, -1)
        if self.runs.pop(run.id, None) is None:
            return
        self.stopping.pop(run.id, None)
        for spot, ask in run.seats:
            spot.runs.pop(run.id, None)
            _add(spot.lower[run.rank], ask, -1)
        self._refresh_reach(spot for spot, _ in run.seats)

    def reachable(self, ask: Resources, rank: int) -> Iterator[Spot]:
        """Machines with enough for this replica if everybody of a lower class went."""
        place = -1
        while self.spots:
            place = self._reach[rank].first(ask.cpu, ask.memory, ask.gpu, place + 1)
            if place < 0:
                return
            yield self.spots[place]

    def stop(self, run: Run) -> None:
        run.stopping = True
        self.stopping[run.id] = run

    def seats_when_empty(self, asks: Asks) -> Seats | None:
        """Seats on the pool's machines if nothing else ran there; None: it is too small for it.

        The choice depends on the machines alone, not on what is free, so that plan after plan
        keeps the same room and it really drains.
        """
        if asks not in self._ideal:
            if self._whole is None:
                totals = [spot.node.total for spot in self.spots]
                self._whole = Index([(each.cpu, each.memory, each.gpu) for each in totals])
            seats, unseated = _first_fit(asks, self.spots, self._whole, _total)
            self._ideal[asks] = None if unseated else seats
        return self._ideal[asks]

    def all_free(self, seats: Seats) -> bool:
        """True if exactly these seats could be taken now."""
        taken = 0
        for _, _, ask, spot in seats:
            if not spot.fits(ask):
                break
            spot.take(ask)
            taken += 1
        for _, _, ask, spot in seats[:taken]:
            spot.take(ask, -1)
        return taken == len(seats)

    def keep(self, number: int, seats: Seats) -> None:
        """From now on these seats are for this job only."""
        self.keeps |= {(number, tuple(spot.place for _, _, _, spot in seats))}
        self.kept = self.kept + seats
        for _, _, ask, spot in seats:
            spot.keep(ask)
        self._refresh({spot.place: spot for _, _, _, spot in seats}.values())

    def lift(self) -> Seats:
        """Nothing is kept any more; what was is returned."""
        kept, self.kept, self.kept_for = self.kept, [], None
        self.keeps = frozenset()
        for _, _, _, spot in kept:
            spot.kept_cpu, spot.kept_memory, spot.kept_gpu = 0.0, 0, 0
        self._refresh({spot.place: spot for _, _, _, spot in kept}.values())
        return kept

    def blocked_by_kept(self, wants: Wants) -> bool:
        """True if a replica could sit where room is kept: it might fit if nothing were."""
        return any_fits((spot for _, _, _, spot in self.kept), wants)

    def most_free(self) -> Resources:
        """The most that any one machine has free of each kind, kept or not."""
        if not self.spots:
            return NOTHING
        if self._most_free is None:
            cpu, memory, gpu = self._free.most()
            for _, _, _, spot in self.kept:
                cpu, memory, gpu = max(cpu, spot.cpu), max(memory, spot.memory), max(gpu, spot.gpu)
            self._most_free = Resources(cpu=round(cpu, 2), memory=memory, gpu=gpu)
        return self._most_free

    def largest(self) -> Resources:
        """The most that any one machine has at all of each kind."""
        totals = [spot.node.total for spot in self.spots]
        return Resources(
            cpu=max((total.cpu for total in totals), default=0.0),
            memory=max((total.memory for total in totals), default=0),
            gpu=max((total.gpu for total in totals), default=0),
        )

    def _new_reach(self) -> Index:
        return Index([(spot.cpu, spot.memory, spot.gpu) for spot in self.spots])

    def _refresh(self, spots: Collection[Spot]) -> None:
        self._most_free = None
        change = self._free.set
        for spot in spots:
            change(
                spot.place,
                spot.cpu - spot.kept_cpu,
                spot.memory - spot.kept_memory,
                spot.gpu - spot.kept_gpu,
            )

    def _refresh_reach(self, spots: Iterable[Spot]) -> None:
        for spot in spots:
            cpu, memory, gpu = spot.cpu, float(spot.memory), float(spot.gpu)
            for rank in range(1, _CLASSES):
                if spot.lower:
                    below = spot.lower[rank - 1]
                    cpu, memory, gpu = cpu + below[0], memory + below[1], gpu + below[2]
                self._reach[rank].set(spot.place, cpu, int(memory), int(gpu))


def any_fits(spots: Iterable[Spot], wants: Wants) -> bool:
    """True if one of these replicas could sit on one of these machines, were nothing kept there.

    Written out: it is asked for every shape whenever something has ended.
    """
    for spot in spots:
        for cpu, memory, gpu in wants:
            if cpu <= spot.cpu and memory <= spot.memory and gpu <= spot.gpu:
                return True
    return False


def as_wants(asks: Asks) -> Wants:
    """The least that a machine must have for each kind of these replicas."""
    return tuple(
        (ask.cpu - HAIR, ask.memory or _LESS_THAN_NONE, ask.gpu or _LESS_THAN_NONE)
        for _, _, ask in asks
    )


def as_asks(groups: Iterable[ReplicaGroup]) -> Asks:
    """What a gang asks for, in the order in which its replicas are seated."""
    wanted = sorted(groups, key=lambda group: _size(group.resources), reverse=True)
    return tuple((group.role, group.count, group.resources) for group in wanted)


def as_seats(seats: Seats) -> tuple[Seat, ...]:
    """Seats as a decision carries them."""
    return tuple(
        Seat(role, rank, spot.node.id, spot.node.host, ask) for role, rank, ask, spot in seats
    )


def _add(amount: list[float], ask: Resources, times: int) -> None:
    amount[0] += ask.cpu * times
    amount[1] += ask.memory * times
    amount[2] += ask.gpu * times


_Left = list[float]


def _available(spot: Spot) -> _Left:
    return [spot.cpu - spot.kept_cpu, spot.memory - spot.kept_memory, spot.gpu - spot.kept_gpu]


def _total(spot: Spot) -> _Left:
    total = spot.node.total
    return [total.cpu, total.memory, total.gpu]


def _first_fit(
    asks: Asks, spots: Sequence[Spot], index: Index, amount: Callable[[Spot], _Left]
) -> tuple[Seats, int]:
    """Seats, and how many of the first kind of replica that does not fit whole have none."""
    left: dict[int, _Left] = {}
    seats: Seats = []
    for role, count, ask in asks:
        place, rank = 0, 0
        while rank < count:
            place = index.first(ask.cpu, ask.memory, ask.gpu, place)
            if place < 0 or place >= len(spots):
                return seats, count - rank
            has = left.get(place)
            if has is None:
                has = left[place] = amount(spots[place])
            while rank < count and _suffices(has, ask):
                has[0] -= ask.cpu
                has[1] -= ask.memory
                has[2] -= ask.gpu
                seats.append((role, rank, ask, spots[place]))
                rank += 1
            place += 1
    return seats, 0


def _suffices(has: _Left, ask: Resources) -> bool:
    return (
        ask.cpu <= has[0] + HAIR
        and (not ask.memory or ask.memory <= has[1])
        and (not ask.gpu or ask.gpu <= has[2])
    )


def _size(ask: Resources) -> tuple[int, float, int]:
    return ask.gpu, ask.cpu, ask.memory
