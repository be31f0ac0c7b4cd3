"""Converts a replica to its row in the table `replicas` and back."""

from __future__ import annotations

from collections.abc import Callable

from paddlecloud.db.engine.base import Row, Value
from paddlecloud.db.engine.columns import (
    maybe_from_micros,
    maybe_json_reader,
    maybe_to_json,
    maybe_to_micros,
)
from paddlecloud.model.jobs.job import ExitRecord, Replica, ReplicaState, Resources, Role

COLUMNS = (
    "id, role, rank, node, cpu, memory, gpu, host, port, cards, state, pid, started_at,"
    " log_bytes, exit_record"
)
COLUMN_COUNT = len(COLUMNS.split(","))
IN_USE = "state in ('ordered', 'running')"
"""The condition under which a replica occupies its resources; an index repeats it."""

_read_exit: Callable[[str | None], ExitRecord | None] = maybe_json_reader(ExitRecord)


def to_row(replica: Replica) -> tuple[Value, ...]:
    return (
        replica.id,
        replica.role.value,
        replica.rank,
        replica.node,
        replica.resources.cpu,
        replica.resources.memory,
        replica.resources.gpu,
        replica.host,
        replica.port,
        ",".join(map(str, replica.cards)),
        replica.state.value,
        replica.pid,
        maybe_to_micros(replica.started_at),
        replica.log_bytes,
        maybe_to_json(replica.exit),
    )


def from_row(row: Row) -> Replica:
    """The first columns of a row, in the order of `COLUMNS`."""
    id_, role, rank, node, cpu, memory, gpu, host, port, cards, *rest = row[:COLUMN_COUNT]
    state, pid, started_at, log_bytes, exit_ = rest
    return Replica(
        id=id_,
        role=Role(role),
        rank=rank,
        node=node,
        resources=Resources(cpu=cpu, memory=memory, gpu=gpu),
        host=host,
        port=port,
        cards=read_cards(cards),
        state=ReplicaState(state),
        pid=pid,
        log_bytes=log_bytes,
        exit=_read_exit(exit_),
        started_at=maybe_from_micros(started_at),
    )


def read_cards(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()
