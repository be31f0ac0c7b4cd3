"""Attempts, their replicas, and the orders to agents.

The database holds what should run: each replica row has an order (run, stop, delete) with a
sequence number that grows over the whole database, so an agent that keeps the highest one it got
asks only for what came after. An order only moves down that list, a replica only moves down the
list of its states; a message that comes late or twice therefore changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import (
    MICROSECOND,
    from_micros,
    in_parts,
    maybe_from_micros,
    maybe_json_reader,
    maybe_to_json,
    maybe_to_micros,
    places,
    to_micros,
)
from paddlecloud.db.tables.counters import next_numbers
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Replica,
    ReplicaState,
    Resources,
    Role,
)

_REPLICA = (
    "id, role, rank, node, cpu, memory, gpu, host, port, cards, state, pid, started_at,"
    " log_bytes, exit_record"
)
_FIELDS = len(_REPLICA.split(","))
_ATTEMPT = "job_id, number, fence, pool, created_at, handle, ended_at, outcome"
_IN_USE = "state in ('ordered', 'running')"
_LIVE_ORDER = "want in ('run', 'stop')"


class Want(StrEnum):
    """The order for a replica; it only moves down this list."""

    RUN = "run"
    STOP = "stop"
    FORGET = "forget"


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


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A placed job: where, with which resources, and since when."""

    job_id: str
    owner: str
    priority: int
    pool: str
    since: datetime
    slots: tuple[tuple[str, Resources], ...]
    stopping: bool


def insert_attempt(tx: Tx, attempt: Attempt, *, orders: Iterator[int] | None = None) -> None:
    """Store an attempt with its replicas and order them to run at once.

    `orders` are numbers of the counter "order", for a caller that stores many attempts.
    """
    tx.run(
        f"insert into attempts ({_ATTEMPT}, released) values (?, ?, ?, ?, ?, ?, ?, ?, 0)",
        (
            attempt.job_id,
            attempt.number,
            attempt.fence,
            attempt.pool,
            to_micros(attempt.created_at),
            maybe_to_json(attempt.handle),
            maybe_to_micros(attempt.ended_at),
            attempt.outcome,
        ),
    )
    # Pservers first, then by rank: a later replica finds the ones that it connects to.
    members = sorted(attempt.replicas, key=lambda it: (it.role is Role.TRAINER, it.rank))
    _order_to_run(tx, attempt, members, orders or next_numbers(tx, "order", len(members)))


def add_replicas(tx: Tx, attempt: Attempt, members: Sequence[Replica]) -> None:
    """Add replicas to an attempt, whose handle may change by that, and order them to run."""
    tx.run(
        "update attempts set handle = ? where job_id = ? and number = ?",
        (maybe_to_json(attempt.handle), attempt.job_id, attempt.number),
    )
    _order_to_run(tx, attempt, members, next_numbers(tx, "order", len(members)))


def leaving(tx: Tx, job_id: str, attempt: int) -> set[str]:
    """The replicas of an attempt that are being stopped."""
    rows = tx.all(
        f"select id from replicas where job_id = ? and attempt = ? and {_IN_USE} and want <> 'run'",
        (job_id, attempt),
    )
    return {id_ for (id_,) in rows}


def get_attempt(tx: Tx, job_id: str, number: int) -> Attempt | None:
    found = _attempts(tx, "job_id = ? and number = ?", "job_id = ? and attempt = ?", job_id, number)
    return found[0] if found else None


def get_attempts(tx: Tx, wanted: Collection[tuple[str, int]]) -> list[Attempt]:
    """The existing ones of many attempts, each given by job id and number."""
    found: list[Attempt] = []
    numbers = sorted({number for _, number in wanted})
    for number in numbers:
        of_this = dict.fromkeys(job_id for job_id, each in wanted if each == number)
        for ids, which in in_parts(of_this):
            of_these = f"= ? and job_id in ({which})"
            found += _attempts(tx, f"number {of_these}", f"attempt {of_these}", number, *ids)
    return found


def attempt_of(tx: Tx, replica_id: str) -> Attempt | None:
    """The attempt that a replica belongs to."""
    its = "(select job_id, attempt from replicas where id = ?)"
    found = _attempts(tx, f"(job_id, number) = {its}", f"(job_id, attempt) = {its}", replica_id)
    return found[0] if found else None


def mark_of(tx: Tx, replica_id: str) -> tuple[str, int] | None:
    """The state of a replica and the version of its job: while both are unchanged, so is everything
    that the replica may do."""
    row = tx.one(
        "select replicas.state, jobs.version from replicas"
        " join jobs on jobs.id = replicas.job_id where replicas.id = ?",
        (replica_id,),
    )
    return None if row is None else (str(row[0]), int(row[1]))


def live_attempts(tx: Tx) -> list[Attempt]:
    """Every attempt that has not ended."""
    return _attempts(
        tx,
        "ended_at is null",
        "(job_id, attempt) in (select job_id, number from attempts where ended_at is null)",
    )


def ended_attempts(tx: Tx, limit: int, without: Collection[str] = ()) -> list[Attempt]:
    """Attempts that ended and were not released yet, the first ended first; not those in the pools
    `without`."""
    ended = "ended_at is not null and released = 0"
    if without:
        ended += f" and pool not in ({places(len(without))})"
    first = f"select job_id, number from attempts where {ended} order by ended_at limit ?"
    both = f"(job_id, number) in ({first})", f"(job_id, attempt) in ({first})"
    return _attempts(tx, *both, *without, limit)


def unreleased(tx: Tx) -> list[tuple[str, int]]:
    """Every attempt that was not released, by job and number, ended or not."""
    live = tx.all("select job_id, number from attempts where ended_at is null")
    over = tx.all("select job_id, number from attempts where ended_at is not null and released = 0")
    return [(job_id, number) for job_id, number in live + over]


def is_held(tx: Tx, job_id: str) -> bool:
    """Whether an attempt of this job was not released yet, ended or not."""
    held = "select 1 from attempts where job_id = ? and (ended_at is null or released = 0) limit 1"
    return tx.one(held, (job_id,)) is not None


def call_for(tx: Tx, job_id: str) -> dict[str, int]:
    """Notify the agents with orders about this job; returns the number of each one's last order."""
    rows = tx.all("select node, max(seq) from replicas where job_id = ? group by node", (job_id,))
    for node, _ in rows:
        tx.notify("agent", node)
    return {node: int(seq or 0) for node, seq in rows}


def ended_so(tx: Tx, job_id: str, pool: str, outcome: str) -> int:
    """How many attempts of this job ended in this way in this pool, since one ended differently."""
    row = tx.one(
        "select count(*) from attempts where job_id = ? and pool = ? and number >"
        " (select coalesce(max(number), 0) from attempts where job_id = ? and outcome <> ?)",
        (job_id, pool, job_id, outcome),
    )
    return int(row[0]) if row else 0


def release(tx: Tx, ended: Collection[Attempt], *, to_count: bool = False) -> None:
    """Release attempts: order their agents to delete every replica that has exited.

    A lost replica is not among them: what became of it is not known until its agent reports it.
    `to_count`: the storage of their jobs is counted later (`usage.to_count`).
    """
    exited = [
        replica.id
        for attempt in ended
        for replica in attempt.replicas
        if replica.state is ReplicaState.EXITED
    ]
    orders = next_numbers(tx, "order", len(exited))
    for seq, replica_id in zip(orders, exited, strict=True):
        tx.run(
            "update replicas set want = 'forget', grace = 0, cause = null, seq = ?"
            " where id = ? and want <> 'forget'",
            (seq, replica_id),
        )
    for attempt in ended:
        tx.run(
            "update attempts set released = 1, to_count = ? where job_id = ? and number = ?",
            (int(to_count), attempt.job_id, attempt.number),
        )


def end_attempt(tx: Tx, job_id: str, number: int, now: datetime, outcome: str) -> None:
    """Store how an attempt ended; idempotent."""
    tx.run(
        "update attempts set ended_at = ?, outcome = ?"
        " where job_id = ? and number = ? and ended_at is null",
        (to_micros(now), outcome, job_id, number),
    )


def update_replica(tx: Tx, replica: Replica) -> None:
    """Save the state of a replica; nothing changes if that would move it back.

    Its machine, role and resources never change. `log_bytes` never shrinks.
    """
    order = list(ReplicaState)
    reachable = order[: order.index(replica.state) + 1]
    tx.run(
        "update replicas set state = ?, pid = ?, started_at = ?, port = ?, exit_record = ?,"
        " log_bytes = case when log_bytes > ? then log_bytes else ? end"
        f" where id = ? and state in ({places(len(reachable))})",
        (
            replica.state.value,
            replica.pid,
            maybe_to_micros(replica.started_at),
            replica.port,
            maybe_to_json(replica.exit),
            replica.log_bytes,
            replica.log_bytes,
            replica.id,
            *(state.value for state in reachable),
        ),
    )


def set_wanted(
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
    rows = [
        (replica_id, node)
        for replica_id, node, *current in tx.all(
            "select id, node, want, grace, cause from replicas"
            " where job_id = ? and attempt = ? order by rank, role desc",
            (job_id, attempt),
        )
        if (only is None or replica_id in only)
        and (over is None or current[0] == over.value)
        and _moves_on(current, asked)
    ]
    if not rows:
        return 0
    orders = next_numbers(tx, "order", len(rows))
    for seq, (replica_id, _node) in zip(orders, rows, strict=True):
        tx.run(
            "update replicas set want = ?, grace = ?, cause = ?, seq = ? where id = ?",
            (*asked, seq, replica_id),
        )
    if want is not Want.FORGET:
        for node in dict.fromkeys(node for _id, node in rows):
            tx.notify("agent", node)
    return len(rows)


def orders_since(tx: Tx, node: str, cursor: int, limit: int = 256) -> list[Order]:
    """The orders of a node after `cursor`, in sequence; 0 means every live one.

    An agent that starts needs no deletions of what it does not have; one that continues does. What
    has exited is not to be run or stopped, even before it may be deleted.
    """
    condition = (
        f"{_LIVE_ORDER} and seq > ? and state <> 'exited'"
        if cursor == 0
        else "seq is not null and seq > ? and (state <> 'exited' or want = 'forget')"
    )
    rows = tx.all(
        f"select {_REPLICA}, job_id, attempt, fence, seq, want, grace, cause from replicas"
        f" where node = ? and {condition} order by seq limit ?",
        (node, cursor, limit),
    )
    return [_order(row) for row in rows]


def used_on_nodes(tx: Tx, nodes: Collection[str] | None = None) -> dict[str, Resources]:
    """The resources in use on each node (or each of these) that has any."""
    sums = "node, sum(cpu), cast(sum(memory) as bigint), cast(sum(gpu) as bigint)"
    if nodes is None:
        rows = tx.all(f"select {sums} from replicas where {_IN_USE} group by node")
    else:
        rows = _in_use(tx, sums, nodes, " group by node")
    return {node: Resources(cpu=cpu, memory=memory, gpu=gpu) for node, cpu, memory, gpu in rows}


def ports_in_use(tx: Tx, nodes: Collection[str]) -> dict[str, set[int]]:
    """The ports in use on these machines, also those of gloo."""
    found: dict[str, set[int]] = {node: set() for node in nodes}
    for node, role, rank, port in _in_use(tx, "node, role, rank, port", nodes):
        found[node].update(ports_of(Role(role), rank, port))
    return found


def cards_in_use(tx: Tx, nodes: Collection[str]) -> dict[str, set[int]]:
    """The GPUs in use on these machines."""
    found: dict[str, set[int]] = {node: set() for node in nodes}
    for node, cards in _in_use(tx, "node, cards", nodes):
        found[node].update(_cards(cards))
    return found


def used_by_owner(tx: Tx) -> dict[str, Resources]:
    """The resources in use by each owner who has any."""
    rows = tx.all(
        "select j.owner, sum(r.cpu), cast(sum(r.memory) as bigint), cast(sum(r.gpu) as bigint)"
        " from replicas r join jobs j on j.id = r.job_id"
        " where r.state in ('ordered', 'running') group by j.owner"
    )
    return {owner: Resources(cpu=cpu, memory=memory, gpu=gpu) for owner, cpu, memory, gpu in rows}


def holders(tx: Tx, pools: Collection[str]) -> list[Holder]:
    """Placed jobs in these pools, in the order of their attempts."""
    if not pools:
        return []
    rows = tx.all(
        "select a.job_id, j.owner, j.priority, a.pool, a.created_at, r.node, r.cpu, r.memory,"
        " r.gpu, r.want from attempts a join jobs j on j.id = a.job_id"
        " join replicas r on r.job_id = a.job_id and r.attempt = a.number"
        f" where a.ended_at is null and a.pool in ({places(len(pools))})"
        " and r.state in ('ordered', 'running') order by a.created_at, a.job_id, r.id",
        tuple(pools),
    )
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return [_holder(slots) for slots in found.values()]


def _in_use(tx: Tx, columns: str, nodes: Collection[str], grouped: str = "") -> list[Row]:
    rows: list[Row] = []
    for part, which in in_parts(nodes):
        rows += tx.all(
            f"select {columns} from replicas where {_IN_USE} and node in ({which}){grouped}", part
        )
    return rows


def _holder(rows: list[Row]) -> Holder:
    job_id, owner, priority, pool, created_at = rows[0][:5]
    return Holder(
        job_id=job_id,
        owner=owner,
        priority=priority,
        pool=pool,
        since=from_micros(created_at),
        slots=tuple((row[5], Resources(cpu=row[6], memory=row[7], gpu=row[8])) for row in rows),
        # Of an elastic job some replicas may be stopped while the others go on.
        stopping=all(row[9] != Want.RUN.value for row in rows),
    )


def _order_to_run(
    tx: Tx, attempt: Attempt, members: Sequence[Replica], orders: Iterator[int]
) -> None:
    for replica in members:
        of_attempt = (attempt.job_id, attempt.number, attempt.fence, next(orders))
        tx.run(
            f"insert into replicas ({_REPLICA}, job_id, attempt, fence, seq, want, grace)"
            f" values ({places(_FIELDS)}, ?, ?, ?, ?, 'run', 0)",
            (*_replica_values(replica), *of_attempt),
        )
    for node in dict.fromkeys(replica.node for replica in members):
        tx.notify("agent", node)


def _replica_values(replica: Replica) -> tuple[Value, ...]:
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


def _attempts(tx: Tx, which: str, replicas_of: str, *values: Value) -> list[Attempt]:
    replicas = tx.soon(
        f"select {_REPLICA}, job_id, attempt from replicas where {replicas_of}"
        " order by role desc, rank",
        values,
    )
    rows = tx.all(
        f"select {_ATTEMPT} from attempts where {which} order by created_at, number", values
    )
    members: dict[tuple[str, int], list[Replica]] = {}
    for row in replicas():
        members.setdefault((row[_FIELDS], row[_FIELDS + 1]), []).append(_replica(row))
    return [_attempt(row, members.get((row[0], row[1]), [])) for row in rows]


def _moves_on(current: list[Value], asked: tuple[str, int, str | None]) -> bool:
    ranks = {want.value: rank for rank, want in enumerate(Want)}
    return tuple(current) != asked and ranks[asked[0]] >= ranks[str(current[0])]


_read_handle: Callable[[str | None], dict[str, str] | None] = maybe_json_reader(dict[str, str])
_read_exit: Callable[[str | None], ExitRecord | None] = maybe_json_reader(ExitRecord)


def _attempt(row: Row, replicas: list[Replica]) -> Attempt:
    job_id, number, fence, pool, created_at, handle, ended_at, outcome = row
    return Attempt(
        job_id=job_id,
        number=number,
        fence=fence,
        pool=pool,
        replicas=tuple(replicas),
        created_at=from_micros(created_at),
        handle=_read_handle(handle),
        ended_at=maybe_from_micros(ended_at),
        outcome=outcome,
    )


def _replica(row: Row) -> Replica:
    """The first columns of a row, in the order of `_REPLICA`."""
    id_, role, rank, node, cpu, memory, gpu, host, port, cards, *rest = row[:_FIELDS]
    state, pid, started_at, log_bytes, exit_ = rest
    return Replica(
        id=id_,
        role=Role(role),
        rank=rank,
        node=node,
        resources=Resources(cpu=cpu, memory=memory, gpu=gpu),
        host=host,
        port=port,
        cards=_cards(cards),
        state=ReplicaState(state),
        pid=pid,
        log_bytes=log_bytes,
        exit=_read_exit(exit_),
        started_at=maybe_from_micros(started_at),
    )


def _cards(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _order(row: Row) -> Order:
    job_id, attempt, fence, seq, want, grace, cause = row[_FIELDS:]
    return Order(
        seq=seq,
        want=Want(want),
        grace=timedelta(microseconds=grace),
        cause=ExitCause(cause) if cause else None,
        replica=_replica(row),
        job_id=job_id,
        attempt=attempt,
        fence=fence,
    )
