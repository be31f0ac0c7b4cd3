"""Orders to agents: what each replica should do.

Each row of `replicas` has an order (run, stop, delete) with a sequence number that grows over the
whole database, so an agent that keeps the highest one it got asks only for what came after. An
order only moves down that list; a repeated or late call changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import (
    MICROSECOND,
    maybe_from_micros,
    maybe_json_reader,
    maybe_to_json,
    maybe_to_micros,
    places,
)
from paddlecloud.db.tables.counters import next_numbers
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Replica,
    ReplicaState,
    Resources,
    Role,
)

_LIVE = "want in ('run', 'stop')"


class Want(StrEnum):
    """The order for a replica; it only moves down this list."""

    RUN = "run"
    STOP = "stop"
    DELETE = "forget"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What an agent should do about one replica."""

    seq: int
    want: Want
    grace: timedelta
    cause: ExitCause | None
    replica: Replica
    job_id: str
    attempt: int
    fence: int


def insert_ordered(
    tx: Tx, attempt: Attempt, members: Sequence[Replica], orders: Iterator[int]
) -> None:
    """Store new replicas with the order to run; `orders` yields the sequence numbers."""
    for replica in members:
        of_attempt = (attempt.job_id, attempt.number, attempt.fence, next(orders))
        tx.run(
            f"insert into replicas ({COLUMNS}, job_id, attempt, fence, seq, want, grace)"
            f" values ({places(COLUMN_COUNT)}, ?, ?, ?, ?, 'run', 0)",
            (*to_row(replica), *of_attempt),
        )
    for node in dict.fromkeys(replica.node for replica in members):
        tx.notify("agent", node)


def set_order(
    tx: Tx,
    job_id: str,
    attempt: int,
    want: Want,
    *,
    grace: timedelta = timedelta(0),
    cause: ExitCause | None = None,
    only: Collection[str] | None = None,
    over: Want | None = None,
) -> int:
    """Give the replicas of an attempt (or `only` these ids) a new order; returns how many got one.

    Idempotent: an equal order is not given again, and none moves back up. With `over`, only orders
    of that kind are replaced. The agents are notified, except for deletions, which are not urgent.
    """
    asked = (want.value, grace // MICROSECOND, cause.value if cause else None)
    ranks = {each.value: rank for rank, each in enumerate(Want)}
    rows = [
        (replica_id, node)
        for replica_id, node, *current in tx.all(
            "select id, node, want, grace, cause from replicas"
            " where job_id = ? and attempt = ? order by rank, role desc",
            (job_id, attempt),
        )
        if (only is None or replica_id in only)
        and (over is None or current[0] == over.value)
        and tuple(current) != asked
        and ranks[want.value] >= ranks[str(current[0])]
    ]
    if not rows:
        return 0
    orders = next_numbers(tx, "order", len(rows))
    for seq, (replica_id, _node) in zip(orders, rows, strict=True):
        tx.run(
            "update replicas set want = ?, grace = ?, cause = ?, seq = ? where id = ?",
            (*asked, seq, replica_id),
        )
    if want is not Want.DELETE:
        for node in dict.fromkeys(node for _id, node in rows):
            tx.notify("agent", node)
    return len(rows)


def orders_since(tx: Tx, node: str, cursor: int, limit: int = 256) -> list[Order]:
    """The orders of a node after `cursor`, in sequence; 0 means every live one.

    An agent that starts needs no deletions of what it does not have; one that continues does. What
    has exited is not to be run or stopped, even before it may be deleted.
    """
    condition = (
        f"{_LIVE} and seq > ? and state <> 'exited'"
        if cursor == 0
        else "seq is not null and seq > ? and (state <> 'exited' or want = 'forget')"
    )
    rows = tx.all(
        f"select {COLUMNS}, job_id, attempt, fence, seq, want, grace, cause from replicas"
        f" where node = ? and {condition} order by seq limit ?",
        (node, cursor, limit),
    )
    return [_order(row) for row in rows]


def notify_agents(tx: Tx, job_id: str) -> dict[str, int]:
    """Notify the agents with orders about this job; returns the number of each one's last order."""
    rows = tx.all("select node, max(seq) from replicas where job_id = ? group by node", (job_id,))
    for node, _ in rows:
        tx.notify("agent", node)
    return {node: int(seq or 0) for node, seq in rows}


def _order(row: Row) -> Order:
    job_id, attempt, fence, seq, want, grace, cause = row[COLUMN_COUNT:]
    return Order(
        seq=seq,
        want=Want(want),
        grace=timedelta(microseconds=grace),
        cause=ExitCause(cause) if cause else None,
        replica=from_row(row),
        job_id=job_id,
        attempt=attempt,
        fence=fence,
    )


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
