"""Allocates ports, host addresses and GPUs to the replicas of an attempt.

They are chosen in the transaction that places the attempt, among those that no live replica of the
machine uses, so two gangs never get the same. A job with one replica keeps the port of the original
documents and needs no query.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, counters
from paddlecloud.model.files.layout import replica_id, worker_name
from paddlecloud.model.jobs import gang
from paddlecloud.model.jobs.job import Job, Reason, Replica, Role, with_changes
from paddlecloud.scheduler.view import Slot

BASE_PORT = 62000
"""The port in the original documents; used by every job with one replica."""


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
    lengths = [len(gang.ports_of(each.role, each.rank, 0)) for each in replicas]
    cursor = _cursor(tx, sum(lengths))
    nodes = list(dict.fromkeys(replica.node for replica in replicas))
    taken = attempts.ports_in_use(tx, nodes)
    ports: dict[str, int] = {}
    for node in nodes:
        here = [
            (r.id, length) for r, length in zip(replicas, lengths, strict=True) if r.node == node
        ]
        dealt = gang.deal_ports(cursor, [length for _, length in here], taken[node])
        if dealt is None:
            reason = Reason(code="queue_no_ports", params={"node": node, "count": len(here)})
            raise NotAvailable(reason)
        ports |= dict(zip((id_ for id_, _ in here), dealt, strict=True))
    own_hosts = together and len(nodes) == 1
    found = []
    for replica in replicas:
        port = ports[replica.id]
        host = gang.loopback(port) if own_hosts else replica.host
        found.append(with_changes(replica, port=port, host=host))
    return found


def _cursor(tx: Tx, count: int) -> int:
    """Where the search for so many ports begins. The first time at random, so that the servers of
    two people on one machine seldom choose the same."""
    last = counters.next_number(tx, "port", count)
    if last == count:
        last = counters.next_number(tx, "port", secrets.randbelow(gang.PORTS) + 1)
    return last - count


def _with_gpus(tx: Tx, replicas: list[Replica], gpus: Mapping[str, int]) -> list[Replica]:
    held = attempts.cards_in_use(tx, list(dict.fromkeys(r.node for r in replicas)))
    found = []
    for replica in replicas:
        node, count = replica.node, replica.resources.gpu
        own = gang.free_cards(gpus.get(node, 0), count, held[node])
        if own is None:
            reason = Reason(code="queue_no_cards", params={"node": node, "count": count})
            raise NotAvailable(reason)
        held[node].update(own)
        found.append(with_changes(replica, cards=own))
    return found
