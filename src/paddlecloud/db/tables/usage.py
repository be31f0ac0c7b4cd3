"""Running time and storage by user: intervals, decayed usage for fair share, waiting times."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx, Value
from paddlecloud.db.engine.columns import (
    MICROSECOND,
    from_micros,
    in_parts,
    json_reader,
    maybe_from_micros,
    places,
    to_json,
    to_micros,
)
from paddlecloud.model.jobs.job import Attempt, Job, Resources
from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE
from paddlecloud.model.policy.quota import Override, Used

AT_ONCE = 500
"""Owners in one statement."""

STORED = "coalesce((select files + outputs from storage where owner = ?), 0)"
"""Bytes of the submitted files and outputs of an owner, as far as counted."""

_NEVER_BEFORE = "(case when started_at > ? then started_at else cast(? as bigint) end)"
"""A time, or that of the start where that is later."""

_COUNTING = "outputs"
"""A counter used as a flag: it exists or not."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One attempt that ran, or runs (`ended_at` None)."""

    job_id: str
    attempt: int
    owner: str
    public: bool
    started_at: datetime
    ended_at: datetime | None


def begin(tx: Tx, job: Job, attempt: Attempt, *, public: bool, at: datetime) -> None:
    """Store that the attempt runs since `at`; idempotent."""
    taken = Resources(cpu=0.0, memory=0, gpu=0)
    for replica in attempt.replicas:
        taken += replica.resources
    tx.run(
        "insert into usage"
        " (job_id, attempt, owner, pool, public, cpu, memory, gpu, started_at, ended_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, null) on conflict (job_id, attempt) do nothing",
        (
            attempt.job_id,
            attempt.number,
            job.owner,
            attempt.pool,
            int(public),
            taken.cpu,
            taken.memory,
            taken.gpu,
            to_micros(at),
        ),
    )


def end(tx: Tx, attempt: Attempt, at: datetime) -> bool:
    """Close the attempt's row; False if it never ran or was closed before.

    The running time is what the supervisors measured, independent of clock changes; if one of them
    was lost, the server's clock is used.
    """
    measured = [replica.exit.ran for replica in attempt.replicas if replica.exit is not None]
    known = [seconds for seconds in measured if seconds is not None and seconds >= 0]
    closed, values = _NEVER_BEFORE, [to_micros(at)] * 2
    if known and len(known) == len(attempt.replicas):
        counted = timedelta(seconds=max(known))
        closed, values = "started_at + cast(? as bigint)", [counted // MICROSECOND]
    changed = tx.execute(
        f"update usage set ended_at = {closed}"
        " where job_id = ? and attempt = ? and ended_at is null",
        (*values, attempt.job_id, attempt.number),
    )
    return changed == 1


def running(tx: Tx) -> list[Run]:
    """Attempts that run on public pools now."""
    return _runs(tx, "ended_at is null and public = 1")


def since(tx: Tx, owner: str, start: datetime) -> list[Run]:
    """Attempts of this owner that ran after `start`, on any pool."""
    return _runs(tx, "owner = ? and ended_at > ?", (owner, to_micros(start))) + _runs(
        tx, "owner = ? and ended_at is null", (owner,)
    )


def ran_today(
    tx: Tx, owners: Collection[str], start: datetime, now: datetime
) -> dict[str, timedelta]:
    """How long each of these owners ran on public pools between `start`, a midnight, and now.

    An owner who did not is absent.
    """
    first, last = to_micros(start), to_micros(now)
    total: dict[str, int] = {}
    for part, which in in_parts(owners, AT_ONCE):
        whose = f"owner in ({which}) and public = 1"
        rows = tx.all(
            f"select owner, cast(sum(ended_at - {_NEVER_BEFORE}) as bigint) from usage"
            f" where {whose} and ended_at > ? group by owner",
            (first, first, *part, first),
        ) + tx.all(
            f"select owner, cast(sum(cast(? as bigint) - {_NEVER_BEFORE}) as bigint) from usage"
            f" where {whose} and ended_at is null and started_at < ? group by owner",
            (last, first, first, *part, last),
        )
        for owner, micros in rows:
            total[owner] = total.get(owner, 0) + int(micros)
    return {owner: timedelta(microseconds=micros) for owner, micros in total.items()}


def resources_held(tx: Tx, owners: Collection[str], pools: Collection[str]) -> dict[str, Used]:
    """Resources that jobs of these owners hold in these pools; an owner with none is absent."""
    found: dict[str, Used] = {}
    if not pools:
        return found
    for part, which in in_parts(owners, AT_ONCE):
        rows = tx.all(
            "select j.owner, j.id, sum(r.cpu), cast(sum(r.memory) as bigint),"
            " cast(sum(r.gpu) as bigint) from jobs j"
            " left join replicas r on r.job_id = j.id and r.attempt = j.attempt"
            " and r.state in ('ordered', 'running')"
            " where j.finished_at is null and j.pool is not null"
            f" and j.owner in ({which}) and j.pool in ({places(len(pools))})"
            " group by j.owner, j.id",
            (*part, *pools),
        )
        for owner, _id, cpu, memory, gpu in rows:
            taken = Resources(cpu=cpu or 0.0, memory=memory or 0, gpu=gpu or 0)
            found[owner] = found.get(owner, Used()).plus(taken)
    return found


def shift_running(tx: Tx, ahead: timedelta, now: datetime, passed: timedelta) -> int:
    """Shift the start of running attempts after the clock was changed by `ahead` (negative: back)
    within the last `passed`. Of a clock that was set back, times before and after the change may
    overlap; what may have started after it stays."""
    forward = ahead > timedelta(0)
    before = "started_at <= ?" if forward else "(started_at < ? or started_at > ?)"
    times = (now - ahead,) if forward else (now - passed, now)
    return tx.execute(
        f"update usage set started_at = started_at + ? where ended_at is null and {before}",
        (ahead // MICROSECOND, *map(to_micros, times)),
    )


def delete_old(tx: Tx, owners: Collection[str], before: datetime) -> int:
    """Delete rows of these owners that ended before; returns how many."""
    return sum(
        tx.execute(
            f"delete from usage where owner in ({which}) and ended_at < ?",
            (*part, to_micros(before)),
        )
        for part, which in in_parts(owners, AT_ONCE)
    )


def plans(tx: Tx, owners: Collection[str]) -> dict[str, tuple[str | None, dict[str, Override]]]:
    """The plan of each of these users and their own limits, where they have any."""
    found: dict[str, tuple[str | None, dict[str, Override]]] = {}
    for part, which in in_parts(owners, AT_ONCE):
        for owner, plan, limits in tx.all(
            f"select id, plan, limits from users where id in ({which})"
            " and (plan is not null or limits is not null)",
            part,
        ):
            found[owner] = (plan, read_limits(limits) if limits else {})
    return found


def set_plan(tx: Tx, owner: str, plan: str | None, limits: dict[str, Override]) -> bool:
    """Set the plan (None: the server's default) and own limits of a user; False: no such user."""
    changed = tx.execute(
        "update users set plan = ?, limits = ? where id = ?",
        (plan, to_json(limits) if limits else None, owner),
    )
    return changed == 1


def stored_bytes(tx: Tx, owner: str) -> int:
    """Bytes of the submitted files and outputs of this owner."""
    row = tx.one(f"select {STORED}", (owner,))
    return int(row[0]) if row else 0


def files_bytes(tx: Tx, owner: str) -> int:
    """Bytes of the submitted files of this owner."""
    row = tx.one("select files from storage where owner = ?", (owner,))
    return int(row[0]) if row else 0


def add_files(tx: Tx, owner: str, size: int) -> None:
    """Add to the bytes of submitted files."""
    tx.execute(
        "insert into storage (owner, files) values (?, ?)"
        " on conflict (owner) do update set files = storage.files + excluded.files",
        (owner, size),
    )


def recount_files(tx: Tx, owner: str, size: int, *, instead_of: int) -> None:
    """Set the counted bytes. `instead_of` is the stored value when counting started; what was added
    since then is kept."""
    tx.execute(
        "insert into storage (owner, files) values (?, ?)"
        " on conflict (owner) do update set files = excluded.files"
        # A smaller stored value: another count has ended in between.
        " + case when storage.files > ? then storage.files - ? else 0 end",
        (owner, size, instead_of, instead_of),
    )


def is_counting(tx: Tx) -> bool:
    """Whether counting of outputs is switched on."""
    return tx.one("select 1 from counters where name = ?", (_COUNTING,)) is not None


def set_counting(tx: Tx, counting: bool) -> None:
    """Switch counting of outputs on or off. When it is switched on, every released attempt is
    queued to be counted."""
    if counting == is_counting(tx):
        return
    if counting:
        tx.run("insert into counters (name, value) values (?, 1)", (_COUNTING,))
        tx.run("update attempts set to_count = 1 where released = 1")
    else:
        tx.run("delete from counters where name = ?", (_COUNTING,))


def to_count(tx: Tx) -> list[tuple[str, int]]:
    """Ended attempts (job id, number) after which the outputs of their job were not counted."""
    rows = tx.all("select job_id, number from attempts where to_count = 1 order by ended_at")
    return [(job_id, number) for job_id, number in rows]


def set_output_bytes(tx: Tx, job_id: str, size: int, ended: Iterable[int] = ()) -> None:
    """Store the bytes of a job's outputs and logs, counted after its attempts `ended`; 0 before it
    is deleted."""
    tx.run(
        "insert into storage (owner, files, outputs)"
        " select owner, 0, cast(? as bigint) - output_bytes from jobs"
        " where id = ? and output_bytes <> ? on conflict (owner)"
        " do update set outputs = storage.outputs + excluded.outputs",
        (size, job_id, size),
    )
    tx.run(
        "update jobs set output_bytes = ? where id = ? and output_bytes <> ?", (size, job_id, size)
    )
    for number in ended:
        tx.run("update attempts set to_count = 0 where job_id = ? and number = ?", (job_id, number))


def outputs_differ(tx: Tx, owner: str) -> bool:
    """Whether the stored sum differs from that of the jobs: an older server did not update it."""
    row = tx.one(
        "select coalesce((select outputs from storage where owner = ?), 0) <> coalesce("
        "(select sum(output_bytes) from jobs where owner = ? and output_bytes > 0), 0)",
        (owner, owner),
    )
    return row is not None and bool(row[0])


def recount_outputs(tx: Tx, owner: str) -> None:
    """Add up the outputs of all jobs of this owner."""
    tx.run(
        "insert into storage (owner, files, outputs)"
        " select cast(? as text), 0, cast(coalesce(sum(output_bytes), 0) as bigint) from jobs"
        " where owner = ? and output_bytes > 0 on conflict (owner)"
        " do update set outputs = excluded.outputs",
        (owner, owner),
    )


def _runs(tx: Tx, which: str, values: Sequence[Value] = ()) -> list[Run]:
    rows = tx.all(
        "select job_id, attempt, owner, public, started_at, ended_at from usage"
        f" where {which} order by started_at, job_id, attempt",
        values,
    )
    return [
        Run(
            job_id=job_id,
            attempt=attempt,
            owner=owner,
            public=bool(public),
            started_at=from_micros(started_at),
            ended_at=maybe_from_micros(ended_at),
        )
        for job_id, attempt, owner, public, started_at, ended_at in rows
    ]


read_limits = json_reader(dict[str, Override])

HALF_LIVES = 4
"""How many half-lives back usage counts; older usage would weigh less than a sixteenth."""

_BUCKETS = 24
"""Parts of a half-life within which usage is aggregated."""


def decayed_usage(
    tx: Tx, now: datetime, half_life: timedelta, weight: Callable[[Resources], float]
) -> dict[str, float]:
    """The decayed average usage of each owner: usage of one half-life ago counts half.

    An owner who always used one CPU has 1. Owners without usage are absent.
    """
    life, at = half_life // MICROSECOND, to_micros(now)
    bucket = max(1, life // _BUCKETS)
    total: dict[str, float] = {}
    for owner, cpu, memory, gpu, first, last, micros in tx.all(
        f"select owner, cpu, memory, gpu, started_at / {bucket}, ended_at / {bucket},"
        " cast(sum(ended_at - started_at) as bigint) from usage where ended_at > ?"
        f" group by owner, cpu, memory, gpu, started_at / {bucket}, ended_at / {bucket}",
        (at - HALF_LIVES * life,),
    ):
        began, ended = (at - (first + 0.5) * bucket) / life, (at - (last + 0.5) * bucket) / life
        worth = _worth(began, ended) * int(micros) / life
        taken = weight(Resources(cpu=cpu, memory=int(memory), gpu=int(gpu)))
        total[owner] = total.get(owner, 0.0) + taken * worth
    for owner, cpu, memory, gpu, started in tx.all(
        "select owner, cpu, memory, gpu, started_at from usage where ended_at is null"
    ):
        age = max(0, at - started) / life
        taken = weight(Resources(cpu=cpu, memory=int(memory), gpu=int(gpu)))
        total[owner] = total.get(owner, 0.0) + taken * (1 - 0.5**age)
    return total


def _worth(began: float, ended: float) -> float:
    """The mean weight of usage between two ages, counted in half-lives.

    The weights of all time sum up to 1, so that the result is an average.
    """
    began, ended = max(0.0, began), max(0.0, ended)
    if began - ended < 1e-9:
        return math.log(2) * math.pow(0.5, ended)
    return (math.pow(0.5, ended) - math.pow(0.5, began)) / (began - ended)


_WAITING = "pool is null and state in ('schedule', 'queue')"
"""Repeats the condition of the index word for word."""


def shift(tx: Tx, ahead: timedelta, now: datetime, passed: timedelta) -> int:
    """Shift waiting times and pauses after the clock was changed by `ahead` (negative: back) within
    the last `passed`; returns how many jobs waited.

    A time was stored before or after the change, by its value: after it, a waiting time lies within
    `passed`, and a pause is at most `LONGEST_PAUSE` ahead. Ambiguous ones stay.
    """
    forward = ahead > timedelta(0)
    before = "waiting_since <= ?" if forward else "(waiting_since < ? or waiting_since > ?)"
    times = (now - ahead,) if forward else (now - passed, now)
    step = ahead // MICROSECOND
    waited = tx.execute(
        "update jobs set waiting_since = waiting_since + ?, quota_since = quota_since + ?"
        f" where {_WAITING} and {before}",
        (step, step, *map(to_micros, times)),
    )
    pauses = "not_before <= ?" if forward else "not_before > ?"
    last = now - passed if forward else now + LONGEST_PAUSE
    tx.execute(
        f"update jobs set not_before = not_before + ? where {_WAITING} and {pauses}",
        (step, to_micros(last)),
    )
    return waited
