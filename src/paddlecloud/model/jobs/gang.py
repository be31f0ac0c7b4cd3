"""Whether the replicas of a gang fit on machines, what each of them claims, and its ports.

The caller passes the machines. Which ports, addresses and GPUs a replica gets is chosen in
`server/services/placement/_allocate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddlecloud.model.jobs.job import ReplicaGroup, Resources, Role, with_changes
from paddlecloud.model.policy.pool import Node

SMALLEST_CLAIM = 0.000001
_HAIR = 1e-9
_STEP = 0.97


def claims(
    groups: Sequence[ReplicaGroup], machines: Sequence[Node], *, oversubscribe: bool
) -> tuple[ReplicaGroup, ...] | None:
    """The claims with which the whole gang fits on these machines when they are empty; None: never.

    With `oversubscribe`, CPU claims of a gang that asks for more CPUs than there are are scaled
    down equally: such a gang runs when nothing else uses a CPU, and two of them one after the
    other. Memory and GPUs are never oversubscribed, and a replica that is too large for every
    machine stays too large.
    """
    asked = tuple(groups)
    if fits(asked, machines):
        return asked
    alone = all(any(g.resources.fits_in(node.total) for node in machines) for g in asked)
    weightless = tuple(_with_cpu(group, 0.0) for group in asked)
    if not oversubscribe or not alone or not fits(weightless, machines):
        return None
    return _scaled(asked, machines)


def fits(groups: Sequence[ReplicaGroup], machines: Sequence[Node]) -> bool:
    """Whether all replicas fit at once on empty machines, packed like the scheduler does."""
    order = sorted(machines, key=lambda node: node.total.gpu)
    left = [[node.total.cpu, node.total.memory, node.total.gpu] for node in order]
    largest_first = sorted(
        groups, key=lambda g: (g.resources.gpu, g.resources.cpu, g.resources.memory), reverse=True
    )
    return all(_packed(group, left) for group in largest_first)


def ports_of(role: Role, rank: int, port: int) -> tuple[int, ...]:
    """Every port that a replica of a gang with this first port may listen on."""
    return (port, port + 1) if role is Role.PSERVER and rank == 0 else (port,)


def _packed(group: ReplicaGroup, left: list[list[float]]) -> bool:
    """Subtract the replicas of a group, machine by machine; False if they do not fit."""
    ask, count = group.resources, group.count
    for has in left:
        many = min(count, _holds(ask, has))
        has[0] -= ask.cpu * many
        has[1] -= ask.memory * many
        has[2] -= ask.gpu * many
        count -= many
    return count == 0


def _holds(ask: Resources, has: Sequence[float]) -> int:
    most = [2**31]
    if ask.cpu:
        most.append(int((has[0] + _HAIR) / ask.cpu))
    if ask.memory:
        most.append(int(has[1] // ask.memory))
    if ask.gpu:
        most.append(int(has[2] // ask.gpu))
    return max(0, min(most))


def _scaled(
    groups: tuple[ReplicaGroup, ...], machines: Sequence[Node]
) -> tuple[ReplicaGroup, ...] | None:
    """Nearly the largest equal shares with which all of them fit."""
    asks = sum(group.resources.cpu * group.count for group in groups)
    share = min(1.0, sum(node.total.cpu for node in machines) / asks)
    while share > 0:
        # Rounded down to a millionth, so that a sum never exceeds the total.
        cpus = [int(g.resources.cpu * share * 1e6 + _HAIR) / 1e6 for g in groups]
        smaller = tuple(
            _with_cpu(group, max(SMALLEST_CLAIM, cpu))
            for group, cpu in zip(groups, cpus, strict=True)
        )
        if fits(smaller, machines):
            return smaller
        if all(group.resources.cpu <= SMALLEST_CLAIM for group in smaller):
            return None
        share *= _STEP
    return None


def _with_cpu(group: ReplicaGroup, cpu: float) -> ReplicaGroup:
    return with_changes(group, resources=with_changes(group.resources, cpu=cpu))
