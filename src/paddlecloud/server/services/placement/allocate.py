"""The replicas of an attempt as they are written down: each with its claim, port, address, cards.

Chosen in the transaction that places the attempt, among what no live replica of the machine has, so
two gangs never get the same whatever comes at the same moment. A job of one replica keeps the port
of the original documents and asks the database nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, counters
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.files.layout import replica_id, worker_name
from paddlecloud.model.jobs import gang
from paddlecloud.model.jobs.job import Job, Reason, Replica, Role
from paddlecloud.scheduler.view import Seat

BASE_PORT = 62000
"""What the original documents show; of every job that has one replica."""


class Lacking(Exception):
    """A machine has no port or card left, although it has room; `reason` tells the job's owner."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.code)
        self.reason = reason


def members(
    tx: Tx, job: Job, number: int, seats: Sequence[Seat], cards: Mapping[str, int]
) -> tuple[Replica, ...]:
    """The replicas of attempt `number`; `cards` is how many each machine has. Or Lacking.

    Of an elastic job these may be further ones of an attempt that runs, on any machine.
    """
    replicas = [_seated(job, number, seat) for seat in sorted(seats, key=_in_order)]
    if len(replicas) > 1 or job.spec.elastic is not None:
        replicas = _connected(tx, replicas, together=job.spec.elastic is None or len(cards) == 1)
    if any(replica.resources.gpu for replica in replicas):
        replicas = _with_cards(tx, replicas, cards)
    return tuple(replicas)


def _in_order(seat: Seat) -> tuple[bool, int]:
    return seat.role is Role.TRAINER, seat.rank


def _seated(job: Job, number: int, seat: Seat) -> Replica:
    return Replica(
        id=replica_id(job.id, number, worker_name(seat.role, seat.rank)),
        role=seat.role,
        rank=seat.rank,
        node=seat.node,
        host=seat.host,
        port=BASE_PORT,
        resources=seat.asks,
    )


def _connected(tx: Tx, replicas: list[Replica], *, together: bool) -> list[Replica]:
    """With ports of their own; and addresses of their own, if they are all on one machine and all
    that may follow will be."""
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
            raise Lacking(Reason(code="queue_no_ports", params={"node": node, "count": len(here)}))
        ports |= dict(zip((id_ for id_, _ in here), dealt, strict=True))
    alone = together and len(nodes) == 1
    return [_reached(replica, ports[replica.id], own_address=alone) for replica in replicas]


def _cursor(tx: Tx, count: int) -> int:
    """Where to begin looking for so many ports. The first time anywhere, so that servers of two
    people on one machine seldom want the same."""
    last = counters.next_number(tx, "port", count)
    if last == count:
        last = counters.next_number(tx, "port", secrets.randbelow(gang.PORTS) + 1)
    return last - count


def _reached(replica: Replica, port: int, *, own_address: bool) -> Replica:
    host = gang.loopback(port) if own_address else replica.host
    return with_changes(replica, port=port, host=host)


def _with_cards(tx: Tx, replicas: list[Replica], cards: Mapping[str, int]) -> list[Replica]:
    held = attempts.cards_in_use(tx, list(dict.fromkeys(r.node for r in replicas)))
    found = []
    for replica in replicas:
        node, count = replica.node, replica.resources.gpu
        own = gang.free_cards(cards.get(node, 0), count, held[node])
        if own is None:
            raise Lacking(Reason(code="queue_no_cards", params={"node": node, "count": count}))
        held[node].update(own)
        found.append(with_changes(replica, cards=own))
    return found
