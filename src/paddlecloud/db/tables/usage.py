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
"""Owners asked about in one statement."""

STORED = "coalesce((select files + outputs from storage where owner = ?), 0)"
"""What submitted files and outputs of an owner take up, as far as it was counted."""

_NEVER_BEFORE = "(case when started_at > ? then started_at else cast(? as bigint) end)"
"""A time, or that of the start where that is later."""

_COUNTING = "outputs"
"""The counter that says so counts nothing: it is there or not."""


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
    """Note that the attempt runs since `at`; a second time changes nothing."""
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
    """Close the attempt's row once; False where it never ran or was closed before.

    What the monitors counted is how long it ran, whatever was done to the clocks meanwhile; where
    one of them was lost, the server's own clock has to do.
    """
    counted, micros = _counted(attempt), to_micros(at)
    closed, values = _NEVER_BEFORE, [micros, micros]
    if counted is not None:
        closed, values = "started_at + cast(? as bigint)", [counted // MICROSECOND]
    changed = tx.execute(
        f"update usage set ended_at = {closed}"
        " where job_id = ? and attempt = ? and ended_at is null",
        (*values, attempt.job_id, attempt.number),
    )
    return changed == 1


def running(tx: Tx) -> list[Run]:
    """What runs on public pools now."""
    return _runs(tx, "ended_at is null and public = 1")


def since(tx: Tx, owner: str, start: datetime) -> list[Run]:
    """What this owner ran after `start`, on any pool."""
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
    """What the jobs of these owners hold in these pools now; an owner with nothing is absent."""
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
    """The clock was moved by so much, forward or back, while `passed` until `now`: what ran before
    did not run for that time. Where it was set back, the times of before and after may be the same;
    what may have begun after it stays as it is."""
    forward = ahead > timedelta(0)
    before = "started_at <= ?" if forward else "(started_at < ? or started_at > ?)"
    times = (now - ahead,) if forward else (now - passed, now)
    return tx.execute(
        f"update usage set started_at = started_at + ? where ended_at is null and {before}",
        (ahead // MICROSECOND, *map(to_micros, times)),
    )


def delete_old(tx: Tx, owners: Collection[str], before: datetime) -> int:
    """Drop what these owners ran that ended before, and say how many rows that were."""
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
    """Give a user a plan (None: the server's default) and limits of their own; False: no such."""
    changed = tx.execute(
        "update users set plan = ?, limits = ? where id = ?",
        (plan, to_json(limits) if limits else None, owner),
    )
    return changed == 1


def stored_bytes(tx: Tx, owner: str) -> int:
    """What submitted files and outputs of this owner take up."""
    row = tx.one(f"select {STORED}", (owner,))
    return int(row[0]) if row else 0


def files_bytes(tx: Tx, owner: str) -> int:
    """What the submitted files of this owner take up."""
    row = tx.one("select files from storage where owner = ?", (owner,))
    return int(row[0]) if row else 0


def add_files(tx: Tx, owner: str, size: int) -> None:
    """So many bytes of files were taken in."""
    tx.execute(
        "insert into storage (owner, files) values (?, ?)"
        " on conflict (owner) do update set files = storage.files + excluded.files",
        (owner, size),
    )


def recount_files(tx: Tx, owner: str, size: int, *, instead_of: int) -> None:
    """There are so many bytes and not `instead_of`, as was known when counting them one by one
    began; what was taken in since then counts on top."""
    tx.execute(
        "insert into storage (owner, files) values (?, ?)"
        " on conflict (owner) do update set files = excluded.files"
        # Fewer than then: another count has ended meanwhile.
        " + case when storage.files > ? then storage.files - ? else 0 end",
        (owner, size, instead_of, instead_of),
    )


def is_counting(tx: Tx) -> bool:
    """Whether outputs are counted since some earlier start."""
    return tx.one("select 1 from counters where name = ?", (_COUNTING,)) is not None


def set_counting(tx: Tx, counting: bool) -> None:
    """From now on outputs are counted, or not. When that begins, every attempt that was let go
    before is to be counted."""
    if counting == is_counting(tx):
        return
    if counting:
        tx.run("insert into counters (name, value) values (?, 1)", (_COUNTING,))
        tx.run("update attempts set to_count = 1 where released = 1")
    else:
        tx.run("delete from counters where name = ?", (_COUNTING,))


def to_count(tx: Tx) -> list[tuple[str, int]]:
    """Attempts, by job and number, since whose end nobody counted what their job has stored."""
    rows = tx.all("select job_id, number from attempts where to_count = 1 order by ended_at")
    return [(job_id, number) for job_id, number in rows]


def set_output_bytes(tx: Tx, job_id: str, size: int, ended: Iterable[int] = ()) -> None:
    """What the outputs and logs of a job take up, counted after these of its attempts ended; none
    when it is about to be deleted."""
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
    """Whether the sum is not that of the jobs: an older server on the database does not keep it."""
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


def _counted(attempt: Attempt) -> timedelta | None:
    told = [replica.exit.ran for replica in attempt.replicas if replica.exit is not None]
    known = [seconds for seconds in told if seconds is not None and seconds >= 0]
    if not known or len(known) < len(attempt.replicas):
        return None
    return timedelta(seconds=max(known))


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
"""Half-lives; what is older would count less than a sixteenth."""

_BUCKETS = 24
"""Parts of a half-life within which use is taken together."""


def recent_use(
    tx: Tx, now: datetime, half_life: timedelta, weight: Callable[[Resources], float]
) -> dict[str, float]:
    """What each owner had in use on average, where use of one half-life ago counts half.

    Somebody who had one CPU in use all the time has 1. Who used nothing is absent.
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
    """What a moment of use is worth on average, between two ages counted in half-lives.

    Use without end is worth 1 in all, so that the sum is an average.
    """
    began, ended = max(0.0, began), max(0.0, ended)
    if began - ended < 1e-9:
        return math.log(2) * math.pow(0.5, ended)
    return (math.pow(0.5, ended) - math.pow(0.5, began)) / (began - ended)


_WAITING = "pool is null and state in ('schedule', 'queue')"
"""As the index has it, word for word."""


def shift(tx: Tx, ahead: timedelta, now: datetime, passed: timedelta) -> int:
    """The clock was moved by so much, forward or back, while `passed` until `now`: nobody waited
    for that time, and no pause ended or grew by it. How many waited then.

    Which times were written before and which after it is told by themselves: those of after lie
    within `passed`, and a pause within the longest that there is. What may be of either stays.
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
