"""Allocates ports, host addresses and GPUs to the replicas of an attempt.

They are chosen in the transaction that places the attempt, among those that no live replica of the
machine uses, so two gangs never get the same. Ports of one machine are allocated round-robin from a
cursor, so that a port that may still be closing is not reused at once; they are above the range
that the system uses for outgoing connections. A job with one replica keeps the port of the original
documents and needs no query.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, counters
from paddlecloud.model.files.layout import replica_id, worker_name
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import Job, Reason, Replica, Role, with_changes
from paddlecloud.scheduler.view import Slot

BASE_PORT = 62000
"""The port in the original documents; used by every job with one replica."""
FIRST_PORT = 62001
LAST_PORT = 65399
PORTS = LAST_PORT - FIRST_PORT + 1
_ADDRESSES_A_ROW = 250


class NotAvailable(Exception):
    """A machine has no free port or GPU left, although it has the capacity; `reason` is for the
    job's owner."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


def allocate_replicas(
    tx: Tx, job: Job, number: int, slots: Sequence[Slot], gpus: Mapping[str, int]
) -> tuple[Replica, ...]:
    """The replicas of attempt `number`; `gpus` is how many each machine has. Or NotAvailable.

    Of an elastic job these may be additional ones of a running attempt.
    """
    replicas = [
        Replica(
            id=replica_id(job.id, number, worker_name(slot.role, slot.rank)),
            role=slot.role,
            rank=slot.rank,
            node=slot.node,
            host=slot.host,
            port=BASE_PORT,
            resources=slot.asks,
        )
        for slot in sorted(slots, key=lambda slot: (slot.role is Role.TRAINER, slot.rank))
    ]
    if len(replicas) > 1 or job.spec.elastic is not None:
        replicas = _with_ports(tx, replicas, together=job.spec.elastic is None or len(gpus) == 1)
    if any(replica.resources.gpu for replica in replicas):
        replicas = _with_gpus(tx, replicas, gpus)
    return tuple(replicas)


def _with_ports(tx: Tx, replicas: list[Replica], *, together: bool) -> list[Replica]:
    """With distinct ports; and with distinct loopback addresses if all replicas, also later ones,
    are on one machine (`together`)."""
    lengths = [len(ports_of(each.role, each.rank, 0)) for each in replicas]
    cursor = _cursor(tx, sum(lengths))
    nodes = list(dict.fromkeys(replica.node for replica in replicas))
    taken = attempts.ports_in_use(tx, nodes)
    ports: dict[str, int] = {}
    for node in nodes:
        here = [
            (r.id, length) for r, length in zip(replicas, lengths, strict=True) if r.node == node
        ]
        dealt = deal_ports(cursor, [length for _, length in here], taken[node])
        if dealt is None:
            reason = Reason(code="queue_no_ports", params={"node": node, "count": len(here)})
            raise NotAvailable(reason)
        ports |= dict(zip((id_ for id_, _ in here), dealt, strict=True))
    own_hosts = together and len(nodes) == 1
    found = []
    for replica in replicas:
        port = ports[replica.id]
        host = loopback(port) if own_hosts else replica.host
        found.append(with_changes(replica, port=port, host=host))
    return found


def _cursor(tx: Tx, count: int) -> int:
    """Where the search for so many ports begins. The first time at random, so that the servers of
    two people on one machine seldom choose the same."""
    last = counters.next_number(tx, "port", count)
    if last == count:
        last = counters.next_number(tx, "port", secrets.randbelow(PORTS) + 1)
    return last - count


def _with_gpus(tx: Tx, replicas: list[Replica], gpus: Mapping[str, int]) -> list[Replica]:
    held = attempts.cards_in_use(tx, list(dict.fromkeys(r.node for r in replicas)))
    found = []
    for replica in replicas:
        node, count = replica.node, replica.resources.gpu
        own = free_gpus(gpus.get(node, 0), count, held[node])
        if own is None:
            reason = Reason(code="queue_no_cards", params={"node": node, "count": count})
            raise NotAvailable(reason)
        held[node].update(own)
        found.append(with_changes(replica, cards=own))
    return found


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


def loopback(port: int) -> str:
    """A loopback address for each replica of a gang on one machine, derived from its port.

    Paddle's launcher counts the machines of a job by the addresses in the list of endpoints.
    """
    row, place = divmod(port - FIRST_PORT, _ADDRESSES_A_ROW)
    return f"127.0.{row + 2}.{place + 1}"


def free_gpus(total: int, count: int, held: Collection[int]) -> tuple[int, ...] | None:
    """The first free GPUs of a machine; None if there are not enough."""
    free = [card for card in range(total) if card not in held][:count]
    return tuple(free) if len(free) == count else None
