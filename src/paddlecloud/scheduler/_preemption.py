"""Chooses which running jobs to stop so that a job of a higher priority class fits: as few as
possible.

Only jobs of a strictly lower class are chosen, and none that has just begun. For each replica that
does not fit, the machine with the fewest victims is chosen; on it the lowest class goes first, then
the youngest job, because it loses the least. What is being stopped already counts as free, so no
second set is chosen while the first one stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from paddlecloud.model.jobs.job import Resources
from paddlecloud.scheduler._pool_state import EPSILON, Asks, NodeState, PoolState, Run, Slots
from paddlecloud.scheduler.view import Labels

MACHINES = 64
"""Candidate machines that are compared for each replica."""


def find_victims(
    state: PoolState, asks: Asks, rank: int, before: float, require: Labels = ()
) -> tuple[list[Run], Slots] | None:
    """The jobs to stop, and the slots that are free then; None if stopping would not help.

    `rank` is the class of the waiting job; jobs that began after `before` are not stopped. The
    machines must have the labels of `require`.
    """
    stopping = list(state.stopping.values())
    for run in stopping:
        state.occupy(run.slots, -1)
    victims: list[Run] = []
    slots = _try_placement(state, asks, rank, before, victims, require)
    if slots is not None:
        victims = _needed(state, victims)
        _undo(state, slots, victims)
    for run in stopping:
        state.occupy(run.slots)
    return None if slots is None else (victims, slots)


def _try_placement(
    state: PoolState,
    asks: Asks,
    rank: int,
    before: float,
    victims: list[Run],
    require: Labels,
) -> Slots | None:
    """Take the slots and free those of the victims; without success nothing is changed."""
    slots: Slots = []
    for role, count, ask in asks:
        for number in range(count):
            node = state.find(ask, require)
            if node is None:
                taken = {run.id for run in victims}
                chosen = _cheapest(state, ask, rank, before, taken, require)
                if chosen is None:
                    _undo(state, slots, victims)
                    return None
                node, stopped = chosen
                for run in stopped:
                    state.occupy(run.slots, -1)
                victims += stopped
            slots.append((role, number, ask, node))
            state.occupy([(node, ask)])
    return slots


def _undo(state: PoolState, slots: Slots, victims: Iterable[Run]) -> None:
    state.occupy([(node, ask) for _, _, ask, node in slots], -1)
    for run in victims:
        state.occupy(run.slots)


def _needed(state: PoolState, victims: list[Run]) -> list[Run]:
    """The victims that a slot depends on; the others get their capacity back."""
    needed = []
    for run in victims:
        state.occupy(run.slots)
        if any(
            node.cpu - node.reserved_cpu < -EPSILON
            or node.memory - node.reserved_memory < 0
            or node.gpu - node.reserved_gpu < 0
            for node, _ in run.slots
        ):
            state.occupy(run.slots, -1)
            needed.append(run)
    return needed


def _cheapest(
    state: PoolState,
    ask: Resources,
    rank: int,
    before: float,
    taken: set[str],
    require: Labels,
) -> tuple[NodeState, list[Run]] | None:
    best: tuple[tuple[float, ...], NodeState, list[Run]] | None = None
    for node in islice(state.reachable(ask, rank, require), MACHINES):
        stopped = _pick(node, ask, rank, before, taken)
        if stopped is None:
            continue
        cost = (
            len(stopped),
            max((run.rank for run in stopped), default=0),
            sum(run.cost for run in stopped),
            -min((run.since for run in stopped), default=0.0),
        )
        if best is None or cost < best[0]:
            best = (cost, node, stopped)
    return None if best is None else (best[1], best[2])


def _pick(
    node: NodeState, ask: Resources, rank: int, before: float, taken: set[str]
) -> list[Run] | None:
    """The victims on this machine: the lowest class and youngest first, until it is enough."""
    runs = [
        run
        for run in node.runs.values()
        if run.rank < rank and not run.stopping and run.since <= before and run.id not in taken
    ]
    runs.sort(key=lambda run: (run.rank, -run.since, run.id))
    stopped: list[Run] = []
    for run in runs:
        if _enough(node, ask, stopped):
            break
        stopped.append(run)
    if not _enough(node, ask, stopped):
        return None
    for run in list(stopped):
        fewer = [each for each in stopped if each is not run]
        if _enough(node, ask, fewer):
            stopped = fewer
    return stopped


def _enough(node: NodeState, ask: Resources, stopped: list[Run]) -> bool:
    cpu = node.cpu - node.reserved_cpu
    memory, gpu = node.memory - node.reserved_memory, node.gpu - node.reserved_gpu
    for run in stopped:
        for where, used in run.slots:
            if where is node:
                cpu, memory, gpu = cpu + used.cpu, memory + used.memory, gpu + used.gpu
    return (
        ask.cpu <= cpu + EPSILON
        and (not ask.memory or ask.memory <= memory)
        and (not ask.gpu or ask.gpu <= gpu)
    )
