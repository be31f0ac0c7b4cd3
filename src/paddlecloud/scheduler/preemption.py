"""Whom to stop so that a job of a higher class gets its place: as few as will do.

Only jobs of a strictly lower class are asked, and none that has just begun. For each replica that
finds no room the machine is chosen where the fewest have to go; of those the lowest class first,
then the youngest, because they lose the least. What is being stopped already counts as room, so a
second set is never chosen while the first is on its way out.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from paddlecloud.model.jobs.job import Resources
from paddlecloud.scheduler.node_index import HAIR
from paddlecloud.scheduler.pool_state import Asks, Room, Run, Seats, Spot

MACHINES = 64
"""So many machines on which it could be done are compared for each replica, and no more."""


def make_way(room: Room, asks: Asks, rank: int, before: float) -> tuple[list[Run], Seats] | None:
    """Whom to stop, and the seats that are then there; None if stopping would not help.

    `rank` is the class of the job that needs the room; nobody who began after `before` has to go.
    """
    leaving = list(room.stopping.values())
    for run in leaving:
        room.hold(run.seats, -1)
    victims: list[Run] = []
    seats = _seated(room, asks, rank, before, victims)
    if seats is not None:
        victims = _needed(room, victims)
        _undo(room, seats, victims)
    for run in leaving:
        room.hold(run.seats)
    return None if seats is None else (victims, seats)


def _seated(room: Room, asks: Asks, rank: int, before: float, victims: list[Run]) -> Seats | None:
    """Takes the seats and lets the victims go; without success everything is as before."""
    seats: Seats = []
    for role, count, ask in asks:
        for number in range(count):
            spot = room.find(ask)
            if spot is None:
                chosen = _cheapest(room, ask, rank, before, {run.id for run in victims})
                if chosen is None:
                    _undo(room, seats, victims)
                    return None
                spot, going = chosen
                for run in going:
                    room.hold(run.seats, -1)
                victims += going
            seats.append((role, number, ask, spot))
            room.hold([(spot, ask)])
    return seats


def _undo(room: Room, seats: Seats, victims: Iterable[Run]) -> None:
    room.hold([(spot, ask) for _, _, ask, spot in seats], -1)
    for run in victims:
        room.hold(run.seats)


def _needed(room: Room, victims: list[Run]) -> list[Run]:
    """Those without whose end a seat would be missing; the others take their room again."""
    needed = []
    for run in victims:
        room.hold(run.seats)
        if any(_overdrawn(spot) for spot, _ in run.seats):
            room.hold(run.seats, -1)
            needed.append(run)
    return needed


def _overdrawn(spot: Spot) -> bool:
    return (
        spot.cpu - spot.kept_cpu < -HAIR
        or spot.memory - spot.kept_memory < 0
        or spot.gpu - spot.kept_gpu < 0
    )


def _cheapest(
    room: Room, ask: Resources, rank: int, before: float, taken: set[str]
) -> tuple[Spot, list[Run]] | None:
    best: tuple[tuple[float, ...], Spot, list[Run]] | None = None
    for spot in islice(room.reachable(ask, rank), MACHINES):
        going = _pick(spot, ask, rank, before, taken)
        if going is None:
            continue
        cost = _price(going)
        if best is None or cost < best[0]:
            best = (cost, spot, going)
    return None if best is None else (best[1], best[2])


def _pick(
    spot: Spot, ask: Resources, rank: int, before: float, taken: set[str]
) -> list[Run] | None:
    """Who has to leave this machine: the lowest and youngest until it is enough, and no more."""
    runs = [
        run
        for run in spot.runs.values()
        if run.rank < rank and not run.stopping and run.since <= before and run.id not in taken
    ]
    runs.sort(key=lambda run: (run.rank, -run.since, run.id))
    going: list[Run] = []
    for run in runs:
        if _enough(spot, ask, going):
            break
        going.append(run)
    if not _enough(spot, ask, going):
        return None
    for run in list(going):
        fewer = [each for each in going if each is not run]
        if _enough(spot, ask, fewer):
            going = fewer
    return going


def _enough(spot: Spot, ask: Resources, going: list[Run]) -> bool:
    freed = [held for run in going for where, held in run.seats if where is spot]
    return (
        ask.cpu <= spot.cpu - spot.kept_cpu + sum(each.cpu for each in freed) + HAIR
        and (
            not ask.memory
            or ask.memory <= spot.memory - spot.kept_memory + sum(each.memory for each in freed)
        )
        and (not ask.gpu or ask.gpu <= spot.gpu - spot.kept_gpu + sum(each.gpu for each in freed))
    )


def _price(going: list[Run]) -> tuple[float, ...]:
    return (
        len(going),
        max((run.rank for run in going), default=0),
        sum(run.cost for run in going),
        -min((run.since for run in going), default=0.0),
    )
