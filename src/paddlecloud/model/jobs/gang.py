"""Allocates CPU shares, ports, addresses and GPUs to the replicas of a gang.

The caller passes the machines and what is in use on them. Ports of one machine are allocated
round-robin from a cursor, so that a port that may still be closing is not reused at once. They are
above the range that the system uses for outgoing connections.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddlecloud.model.jobs.job import ReplicaGroup, Resources, Role, with_changes
from paddlecloud.model.policy.pool import Node

FIRST_PORT = 62001
LAST_PORT = 65399
"""62000 is the port of every job with one replica."""
PORTS = LAST_PORT - FIRST_PORT + 1
SMALLEST_CLAIM = 0.000001
_HAIR = 1e-9
_STEP = 0.97
_ADDRESSES_A_ROW = 250


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


def deal_ports(cursor: int, wanted: Sequence[int], taken: Collection[int]) -> list[int] | None:
    """The first port of each run of `wanted` lengths, from the cursor on, wrapping around; None if
    there are not enough free ports.

    A replica needs one port; the first pserver two consecutive ones, its own and gloo's.
    """
    found: list[int] = []
    offset = 0
    for length in wanted:
        while True:
            if offset + length > PORTS:
                return None
            run = [FIRST_PORT + (cursor + offset + step) % PORTS for step in range(length)]
            broken = [i for i, port in enumerate(run) if port in taken or port != run[0] + i]
            if not broken:
                break
            offset += max(1, broken[-1])
        found.append(run[0])
        offset += length
    return found


def ports_of(role: Role, rank: int, port: int) -> tuple[int, ...]:
    """Every port that a replica of a gang with this first port may listen on."""
    return (port, port + 1) if role is Role.PSERVER and rank == 0 else (port,)


def loopback(port: int) -> str:
    """A loopback address for each replica of a gang on one machine, derived from its port.

    Paddle's launcher counts the machines of a job by the addresses in the list of endpoints.
    """
    row, place = divmod(port - FIRST_PORT, _ADDRESSES_A_ROW)
    return f"127.0.{row + 2}.{place + 1}"


def free_cards(total: int, count: int, held: Collection[int]) -> tuple[int, ...] | None:
    """The first free GPUs of a machine; None if there are not enough."""
    free = [card for card in range(total) if card not in held][:count]
    return tuple(free) if len(free) == count else None


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
