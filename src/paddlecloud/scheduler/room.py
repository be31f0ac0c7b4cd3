"""A working copy of one pool: what is still free while a plan is being made.

What is promised to one job is gone for the next. Room can also be *kept* for a job that does not
fit yet: it stays free to be looked at, but only that job may use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddlecloud.model.job import ReplicaGroup, Resources, Role
from paddlecloud.scheduler.view import NodeView, PoolView, Seat

SMALLEST_CPU = 0.01
"""No replica asks for less, so a pool without this much is full."""
_HAIR = 1e-9


class Spot:
    """One machine: what is free on it, and how much of that is kept for somebody."""

    __slots__ = ("cpu", "gpu", "kept_cpu", "kept_gpu", "kept_memory", "memory", "node")

    def __init__(self, node: NodeView) -> None:
        self.node = node
        self.cpu, self.memory, self.gpu = node.free.cpu, node.free.memory, node.free.gpu
        self.kept_cpu, self.kept_memory, self.kept_gpu = 0.0, 0, 0

    def fits(self, ask: Resources) -> bool:
        return (
            ask.cpu <= self.cpu - self.kept_cpu + _HAIR
            and (not ask.memory or ask.memory <= self.memory - self.kept_memory)
            and (not ask.gpu or ask.gpu <= self.gpu - self.kept_gpu)
        )

    def take(self, ask: Resources, times: int = 1) -> None:
        """`times` -1 gives it back."""
        self.cpu -= ask.cpu * times
        self.memory -= ask.memory * times
        self.gpu -= ask.gpu * times

    def keep(self, ask: Resources, times: int = 1) -> None:
        """Keep it for a job; `times` -1 lets it go."""
        self.kept_cpu += ask.cpu * times
        self.kept_memory += ask.memory * times
        self.kept_gpu += ask.gpu * times


Seats = list[tuple[Role, int, Resources, Spot]]


class Room:
    """The machines of one pool while a plan is being made."""

    def __init__(self, view: PoolView) -> None:
        self.pool = view.pool
        # Machines without cards first, so that a job without need of one leaves them alone.
        self.spots = [Spot(node) for node in sorted(view.nodes, key=lambda node: node.total.gpu)]
        self.kept_for: str | None = None
        self._kept: Seats = []

    @property
    def full(self) -> bool:
        return not any(spot.cpu >= SMALLEST_CPU - _HAIR for spot in self.spots)

    def seats(self, groups: Iterable[ReplicaGroup]) -> Seats | None:
        """A seat for every replica at once, or None. Nothing is taken yet."""
        return _first_fit(groups, self.spots)

    def take(self, seats: Seats) -> None:
        for _, _, ask, spot in seats:
            spot.take(ask)

    def seats_when_empty(self, groups: Iterable[ReplicaGroup]) -> Seats | None:
        """Seats on the pool's machines if nothing else ran there; None: it is too small for it.

        The choice depends on the machines alone, not on what is free, so that plan after plan
        keeps the same room and it really drains.
        """
        empty = [Spot(_emptied(spot.node)) for spot in self.spots]
        seats = _first_fit(groups, empty)
        real = dict(zip(empty, self.spots, strict=True))
        return seats and [(role, rank, ask, real[spot]) for role, rank, ask, spot in seats]

    def all_free(self, seats: Seats) -> bool:
        """True if exactly these seats could be taken now."""
        taken: Seats = []
        for role, rank, ask, spot in seats:
            if not spot.fits(ask):
                break
            spot.take(ask)
            taken.append((role, rank, ask, spot))
        _give_back(taken)
        return len(taken) == len(seats)

    def keep(self, job_id: str, seats: Seats) -> None:
        """From now on these seats are for this job only."""
        self.kept_for, self._kept = job_id, seats
        for _, _, ask, spot in seats:
            spot.keep(ask)

    def would_fit_unkept(self, groups: Iterable[ReplicaGroup]) -> bool:
        """True if only what is kept for another job stands in the way."""
        for _, _, ask, spot in self._kept:
            spot.keep(ask, -1)
        seats = self.seats(groups)
        for _, _, ask, spot in self._kept:
            spot.keep(ask)
        return seats is not None

    def most_free(self) -> Resources:
        """The most that any one machine has free of each kind."""
        return Resources(
            cpu=round(max((spot.cpu for spot in self.spots), default=0.0), 2),
            memory=max((spot.memory for spot in self.spots), default=0),
            gpu=max((spot.gpu for spot in self.spots), default=0),
        )

    def largest(self) -> Resources:
        """The most that any one machine has at all of each kind."""
        totals = [spot.node.total for spot in self.spots]
        return Resources(
            cpu=max((total.cpu for total in totals), default=0.0),
            memory=max((total.memory for total in totals), default=0),
            gpu=max((total.gpu for total in totals), default=0),
        )


def as_seats(seats: Seats) -> tuple[Seat, ...]:
    """Seats as a decision carries them."""
    return tuple(Seat(role, rank, spot.node.id, spot.node.host) for role, rank, _, spot in seats)


def _emptied(node: NodeView) -> NodeView:
    return NodeView(id=node.id, host=node.host, total=node.total, free=node.total)


def _first_fit(groups: Iterable[ReplicaGroup], spots: list[Spot]) -> Seats | None:
    """Largest replicas first, each on the first machine with room. Near the best for the few kinds
    of replica that a gang has, and always the same for the same input."""
    wanted = sorted(groups, key=lambda group: _size(group.resources), reverse=True)
    seats: Seats = []
    for group in wanted:
        start = 0
        for rank in range(group.count):
            while start < len(spots) and not spots[start].fits(group.resources):
                start += 1
            if start == len(spots):
                _give_back(seats)
                return None
            spots[start].take(group.resources)
            seats.append((group.role, rank, group.resources, spots[start]))
    _give_back(seats)
    return seats


def _size(ask: Resources) -> tuple[int, float, int]:
    return ask.gpu, ask.cpu, ask.memory


def _give_back(seats: Seats) -> None:
    for _, _, ask, spot in seats:
        spot.take(ask, -1)
