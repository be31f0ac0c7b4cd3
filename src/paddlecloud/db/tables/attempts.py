"""Attempts with their replicas, and the resources that placed ones use per node, owner and job.

A replica only moves down the list of its states, so a report that comes late or twice changes
nothing. What its agent should do about it is its order (`orders`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import (
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
from paddlecloud.db.tables.orders import (
    COLUMN_COUNT,
    COLUMNS,
    IN_USE,
    Want,
    from_row,
    insert_ordered,
    read_cards,
)
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import (
    Attempt,
    Replica,
    ReplicaState,
    Resources,
    Role,
)

_ATTEMPT = "job_id, number, fence, pool, created_at, handle, ended_at, outcome"


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
    insert_ordered(tx, attempt, members, orders or next_numbers(tx, "order", len(members)))


def add_replicas(tx: Tx, attempt: Attempt, members: Sequence[Replica]) -> None:
    """Add replicas to an attempt, whose handle may change by that, and order them to run."""
    tx.run(
        "update attempts set handle = ? where job_id = ? and number = ?",
        (maybe_to_json(attempt.handle), attempt.job_id, attempt.number),
    )
    insert_ordered(tx, attempt, members, next_numbers(tx, "order", len(members)))


def stopping_replicas(tx: Tx, job_id: str, attempt: int) -> set[str]:
    """The replicas of an attempt that are being stopped."""
    rows = tx.all(
        f"select id from replicas where job_id = ? and attempt = ? and {IN_USE} and want <> 'run'",
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


def replica_mark(tx: Tx, replica_id: str) -> tuple[str, int] | None:
    """The state of a replica and the version of its job, to detect changes of its permissions."""
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


def repeated_outcomes(tx: Tx, job_id: str, pool: str, outcome: str) -> int:
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


def _attempts(tx: Tx, which: str, replicas_of: str, *values: Value) -> list[Attempt]:
    replicas = tx.soon(
        f"select {COLUMNS}, job_id, attempt from replicas where {replicas_of}"
        " order by role desc, rank",
        values,
    )
    rows = tx.all(
        f"select {_ATTEMPT} from attempts where {which} order by created_at, number", values
    )
    members: dict[tuple[str, int], list[Replica]] = {}
    for row in replicas():
        members.setdefault((row[COLUMN_COUNT], row[COLUMN_COUNT + 1]), []).append(from_row(row))
    return [_attempt(row, members.get((row[0], row[1]), [])) for row in rows]


_read_handle: Callable[[str | None], dict[str, str] | None] = maybe_json_reader(dict[str, str])


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


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A placed job: where, with which resources, and since when."""

    job_id: str
    owner: str
    priority: int
    pool: str
    since: datetime
    slots: tuple[tuple[str, Resources], ...]
    stopping: bool


def used_on_nodes(tx: Tx, nodes: Collection[str] | None = None) -> dict[str, Resources]:
    """The resources in use on each node (or each of these) that has any."""
    sums = "node, sum(cpu), cast(sum(memory) as bigint), cast(sum(gpu) as bigint)"
    if nodes is None:
        rows = tx.all(f"select {sums} from replicas where {IN_USE} group by node")
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
        found[node].update(read_cards(cards))
    return found


def used_by_owner(tx: Tx) -> dict[str, Resources]:
    """The resources in use by each owner who has any."""
    rows = tx.all(
        "select j.owner, sum(r.cpu), cast(sum(r.memory) as bigint), cast(sum(r.gpu) as bigint)"
        " from replicas r join jobs j on j.id = r.job_id"
        " where r.state in ('ordered', 'running') group by j.owner"
    )
    return {owner: Resources(cpu=cpu, memory=memory, gpu=gpu) for owner, cpu, memory, gpu in rows}


def placements(tx: Tx, pools: Collection[str]) -> list[Placement]:
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
    return [_placement(slots) for slots in found.values()]


def _in_use(tx: Tx, columns: str, nodes: Collection[str], grouped: str = "") -> list[Row]:
    rows: list[Row] = []
    for part, which in in_parts(nodes):
        rows += tx.all(
            f"select {columns} from replicas where {IN_USE} and node in ({which}){grouped}", part
        )
    return rows


def _placement(rows: list[Row]) -> Placement:
    job_id, owner, priority, pool, created_at = rows[0][:5]
    return Placement(
        job_id=job_id,
        owner=owner,
        priority=priority,
        pool=pool,
        since=from_micros(created_at),
        slots=tuple((row[5], Resources(cpu=row[6], memory=row[7], gpu=row[8])) for row in rows),
        # Of an elastic job some replicas may be stopped while the others go on.
        stopping=all(row[9] != Want.RUN.value for row in rows),
    )
