"""Attempts with their replicas.

A replica only moves down the list of its states, so a report that comes late or twice changes
nothing. What its agent should do about it is its order (`orders`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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
from paddlecloud.db.tables._replica_row import COLUMN_COUNT, COLUMNS, IN_USE, from_row
from paddlecloud.db.tables.counters import next_numbers
from paddlecloud.db.tables.orders import insert_ordered
from paddlecloud.model.jobs.job import (
    Attempt,
    Replica,
    ReplicaState,
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
