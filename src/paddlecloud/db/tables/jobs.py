"""Jobs and the history of their states.

Every change of a job goes through `save_job`, which refuses to overwrite a newer version; `advance`
is the usual way: the event, the guarded save, the history row and the notification in one
transaction. The queries of the loops use partial indexes that contain live jobs only, so old jobs
cost them nothing. The literal conditions below repeat those of the indexes word for word: that is
how the query planner recognises the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import (
    MICROSECOND,
    bound,
    from_micros,
    in_parts,
    json_reader,
    maybe_from_micros,
    maybe_json_reader,
    maybe_to_json,
    maybe_to_micros,
    places,
    to_json,
    to_micros,
)
from paddlecloud.db.tables import usage
from paddlecloud.db.tables.counters import next_number
from paddlecloud.model.errors import StaleVersion
from paddlecloud.model.jobs.job import Failure, HistoryRow, Job, JobSpec, Reason, with_changes
from paddlecloud.model.jobs.states import Event, JobState

if TYPE_CHECKING:
    from paddlecloud.model.jobs.job import Changes

NOT_PLANNED_YET = "not_planned_yet"
"""The reason of a job until the scheduler has planned it for the first time."""

_FIXED = "number, id, owner, name, priority, created_at, snapshot, spec"
_CHANGING = (
    "state, version, attempt, retried, pool, kill_asked, waiting_since, started_at, running_since,"
    " ran, deadline, finished_at, reason_code, reason, failure, quota_since, time_limit, not_before"
)
_COLUMNS = f"{_FIXED}, {_CHANGING}"
_PLACES = places(len(_COLUMNS.split(",")))
_SAVE = (
    f"update jobs set {', '.join(f'{column} = ?' for column in _CHANGING.split(', '))}"
    " where id = ? and version = ?"
)
_WAITING = "pool is null and state in ('schedule', 'queue')"
_LIVE = "finished_at is null"

_OWNERS_WAITING = f"""with recursive owners (owner) as (
    select min(owner) from jobs where {_WAITING}
    union all
    select (select min(owner) from jobs where {_WAITING} and owner > owners.owner)
    from owners where owners.owner is not null
)
select owner from owners where owner is not null"""


def insert_job(tx: Tx, job: Job) -> Job:
    """Store a new job under the next number of arrival, and return it."""
    job = with_changes(job, number=next_number(tx, "job"))
    tx.run(f"insert into jobs ({_COLUMNS}) values ({_PLACES})", _values(job))
    return job


def insert_accepted(tx: Tx, job: Job, now: datetime, reason: Reason) -> Job:
    """Store a new job together with its first step, in one write less than `insert_job` and
    `advance` would take."""
    accepted = insert_job(tx, job.after(Event.ACCEPTED, now=now, reason=reason))
    record(tx, job, accepted, Event.ACCEPTED, now)
    return accepted


def unchanged(tx: Tx, known: Collection[Job]) -> set[str]:
    """The ids of those of these jobs whose stored version is the same."""
    stored = versions(tx, [job.id for job in known])
    return {job.id for job in known if stored.get(job.id) == job.version}


def save_job(tx: Tx, job: Job, *, expected_version: int, sure: bool = False) -> Job:
    """Save the mutable columns of a job and return it with its new version.

    Raises StaleVersion, having changed nothing, if the stored version is not `expected_version`.
    `sure`: the job was read in this very write, where no other write can change it; the result is
    then not waited for.
    The spec, the owner and the time of arrival never change and are not written again.
    """
    saved = with_changes(job, version=expected_version + 1)
    values = (*_changing(saved), saved.id, expected_version)
    if sure:
        tx.run(_SAVE, values)
    elif tx.execute(_SAVE, values) == 0:
        raise StaleVersion("job_changed_meanwhile", job_id=job.id, version=expected_version)
    return saved


def record(tx: Tx, before: Job, after: Job, event: Event, now: datetime) -> None:
    """Write the history row of one change; a cause newly known counts as its reason."""
    reason = after.reason
    if reason is None and after.failure is not None and after.failure != before.failure:
        reason = after.failure.reason
    tx.run(
        "insert into job_history (job_number, step, at, event, before, after, reason) values"
        " (?, (select coalesce(max(step), 0) + 1 from job_history where job_number = ?),"
        " ?, ?, ?, ?, ?)",
        (
            after.number,
            after.number,
            to_micros(now),
            event.value,
            before.state.value,
            after.state.value,
            maybe_to_json(reason),
        ),
    )


def advance(
    tx: Tx,
    job: Job,
    event: Event,
    now: datetime,
    *,
    at: datetime | None = None,
    reason: Reason | None = None,
    sure: bool = False,
    **changes: Unpack[Changes],
) -> Job:
    """`job` after `event`: saved if its version is current, recorded in the history, and notified.

    `at`: when it happened, if that is known; the history has the time when it was stored.
    """
    after = job.after(event, now=now, at=at, reason=reason, **changes)
    saved = save_job(tx, after, expected_version=job.version, sure=sure)
    record(tx, job, saved, event, now)
    tx.notify("job", job.id)
    return saved


def hold_all(
    tx: Tx,
    newcomers: Sequence[Job],
    now: datetime,
    reason: Reason,
    quota_since: datetime | None = None,
) -> None:
    """`advance` by NO_CAPACITY for many jobs that wait for one reason, in two statements for many.

    All of them have the same state and version; one that has changed since is left alone.
    """
    first = newcomers[0]
    after = first.after(Event.NO_CAPACITY, now=now, reason=reason)
    change = (to_micros(now), Event.NO_CAPACITY.value, after.state.value, to_json(reason))
    kept = (after.state.value, reason.code, to_json(reason), maybe_to_micros(quota_since))
    for numbers, listed in in_parts([job.number for job in newcomers]):
        which = f"number in ({listed}) and version = ? and state = ?"
        these = (*numbers, first.version, first.state.value)
        tx.run(
            "insert into job_history (job_number, step, at, event, before, after, reason)"
            " select number, (select coalesce(max(step), 0) + 1 from job_history"
            " where job_number = jobs.number), cast(? as bigint), ?, state, ?, ?"
            f" from jobs where {which}",
            (*change, *these),
        )
        tx.run(
            "update jobs set state = ?, version = version + 1, reason_code = ?, reason = ?,"
            f" quota_since = ? where {which}",
            (*kept, *these),
        )
    for job in newcomers:
        tx.notify("job", job.id)


def get_job(tx: Tx, job_id: str) -> Job | None:
    row = tx.one(f"select {_COLUMNS} from jobs where id = ?", (job_id,))
    return _job(row) if row else None


def of_replica(tx: Tx, replica_id: str) -> Callable[[], Job | None]:
    """The job that a replica belongs to, available after the next query; see `Tx.soon`."""
    rows = tx.soon(
        f"select {_COLUMNS} from jobs where id = (select job_id from replicas where id = ?)",
        (replica_id,),
    )
    return lambda: _job(rows()[0]) if rows() else None


def get_jobs(tx: Tx, job_ids: Collection[str]) -> list[Job]:
    """The existing ones of many jobs, in any order."""
    found: list[Job] = []
    for ids, which in in_parts(job_ids):
        found += _jobs(tx, f"id in ({which})", ids)
    return found


def versions(tx: Tx, job_ids: Collection[str]) -> dict[str, int]:
    """The versions of the existing ones of many jobs."""
    found: dict[str, int] = {}
    for ids, which in in_parts(job_ids):
        found.update(tx.all(f"select id, version from jobs where id in ({which})", ids))
    return found


def all_ids(tx: Tx) -> set[str]:
    return {str(job_id) for (job_id,) in tx.all("select id from jobs")}


def list_jobs(
    tx: Tx,
    owner: str,
    *,
    states: Iterable[JobState] | None = None,
    name: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Job]:
    """The owner's jobs, newest first, with a number below `before`."""
    if states is None and name is not None:
        states = JobState
    rows: list[Row] = []
    for state in (None,) if states is None else sorted(set(states)):
        # One state at a time, so that each is a walk along an index however rare the state is.
        rows += _page(tx, owner, state, name, bound(before), limit)
    rows.sort(key=lambda row: -int(row[0]))
    return [_job(row) for row in rows[:limit]]


def list_by_id(tx: Tx, low: str, high: str, *, owner: str | None, limit: int) -> list[Job]:
    """The jobs of an owner, or of all, whose ids are from `low` to `high`; newest first."""
    # Not the bare column: few ids are in the range, and many jobs may be the owner's.
    whose = "" if owner is None else " and owner || '' = ?"
    values = (low, high) if owner is None else (low, high, owner)
    condition = f"id between ? and ?{whose} order by number desc limit ?"
    return _jobs(tx, condition, (*values, limit))


def list_all(
    tx: Tx,
    *,
    states: Iterable[JobState] | None = None,
    name: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Job]:
    """Jobs of all users, newest first, with a number below `before`."""
    wanted = ["number < ?"]
    found: list[Value] = [bound(before)]
    if states is not None:
        words = sorted({state.value for state in states})
        wanted.append(f"state in ({places(len(words))})")
        found += words
    if name is not None:
        wanted.append("name = ?")
        found.append(name)
    return _jobs(tx, f"{' and '.join(wanted)} order by number desc limit ?", (*found, limit))


def waiting_jobs(tx: Tx, *, per_owner: int, owners: Collection[str] | None = None) -> list[Job]:
    """Jobs that wait to be placed: the first `per_owner` of each owner, or of each of these, by
    priority, then by arrival."""
    rows: list[Row] = []
    for owner in [row[0] for row in tx.all(_OWNERS_WAITING)] if owners is None else owners:
        rows += tx.all(
            f"select {_COLUMNS} from jobs where {_WAITING} and owner = ?"
            " order by priority desc, number limit ?",
            (owner, per_owner),
        )
    return [_job(row) for row in rows]


def newcomers(tx: Tx, limit: int) -> list[Job]:
    """Jobs that were never planned, in their order of arrival."""
    condition = f"{_LIVE} and state = ? and reason_code = ? order by number limit ?"
    return _jobs(tx, condition, (JobState.SCHEDULE.value, NOT_PLANNED_YET, limit))


def placed_jobs(tx: Tx) -> list[Job]:
    """Live jobs that were placed."""
    return _jobs(tx, f"{_LIVE} and pool is not null order by number")


def elastic_jobs(tx: Tx) -> list[Job]:
    """Elastic ones among them. Queried often, and there is nearly always none."""
    asked = f"{_LIVE} and pool is not null and spec like ? order by number"
    return _jobs(tx, asked, ('%"elastic":{%',))


def jobs_in_state(tx: Tx, state: JobState, limit: int = 1000) -> list[Job]:
    """Live jobs in one state, oldest first; a final state has none here."""
    return _jobs(tx, f"{_LIVE} and state = ? order by number limit ?", (state.value, limit))


def overdue_waiting(tx: Tx, before: datetime, limit: int = 1000) -> list[Job]:
    """Jobs that wait since `before` or longer, the longest first.

    Without jobs that wait for their owner's quota: that time does not count.
    """
    overdue = f"{_WAITING} and waiting_since <= ? and quota_since is null"
    condition = f"{overdue} order by waiting_since limit ?"
    return _jobs(tx, condition, (to_micros(before), limit))


def finished_before(tx: Tx, when: datetime, limit: int) -> list[Job]:
    """Final jobs that ended before `when`, the oldest first."""
    condition = "finished_at is not null and finished_at < ? order by finished_at limit ?"
    return _jobs(tx, condition, (to_micros(when), limit))


def count_by_state(tx: Tx, owner: str | None = None) -> dict[JobState, int]:
    """How many jobs are in each state that has any."""
    where, values = ("", ()) if owner is None else (" where owner = ?", (owner,))
    counts: dict[JobState, int] = {}
    for state, count in tx.all(
        f"select state, count(*) from jobs{where} group by owner, state", values
    ):
        counts[JobState(state)] = counts.get(JobState(state), 0) + int(count)
    return counts


def count_waiting(tx: Tx, owner: str, limit: int | None = None) -> int:
    """How many jobs of this owner wait, counted up to `limit`."""
    # The order makes SQLite use the index of waiting jobs, where 1,000 rows take 0.1 ms.
    row = tx.one(
        f"select count(*) from (select 1 from jobs where {_WAITING} and owner = ?"
        " order by priority desc, number limit ?) as waiting",
        (owner, bound(limit)),
    )
    return int(row[0]) if row else 0


def queue_position(tx: Tx, job: Job) -> int:
    """How many waiting jobs of all users are before this one, by priority, then by arrival."""
    priority, number = job.spec.priority, job.number
    above = _count(tx, f"{_WAITING} and priority > ?", (priority,))
    return above + _count(tx, f"{_WAITING} and priority = ? and number < ?", (priority, number))


def history(tx: Tx, job_id: str) -> list[HistoryRow]:
    """Every change of state of one job, in order."""
    rows = tx.all(
        "select at, event, before, after, reason from job_history"
        " where job_number = (select number from jobs where id = ?) order by step",
        (job_id,),
    )
    return [
        HistoryRow(
            at=from_micros(at),
            event=Event(event),
            before=JobState(before),
            after=JobState(after),
            reason=_read_reason(reason),
        )
        for at, event, before, after, reason in rows
    ]


def delete_job(tx: Tx, job_id: str) -> bool:
    """Delete a job with its history, attempts, replicas and idempotency keys."""
    usage.set_output_bytes(tx, job_id, 0)
    return tx.execute("delete from jobs where id = ?", (job_id,)) > 0


def _values(job: Job) -> tuple[Value, ...]:
    return (
        job.number,
        job.id,
        job.owner,
        job.spec.job_name,
        job.spec.priority,
        to_micros(job.created_at),
        job.spec.snapshot,
        to_json(job.spec),
        *_changing(job),
    )


def _changing(job: Job) -> tuple[Value, ...]:
    return (
        job.state.value,
        job.version,
        job.attempt,
        job.retried,
        job.pool,
        int(job.kill_asked),
        to_micros(job.waiting_since),
        maybe_to_micros(job.started_at),
        maybe_to_micros(job.running_since),
        job.ran // MICROSECOND,
        _deadline(job),
        maybe_to_micros(job.finished_at),
        job.reason.code if job.reason else None,
        maybe_to_json(job.reason),
        maybe_to_json(job.failure),
        maybe_to_micros(job.quota_since),
        None if job.time_limit is None else job.time_limit // MICROSECOND,
        maybe_to_micros(job.not_before),
    )


def _deadline(job: Job) -> int | None:
    # Most jobs have no limit: nothing is to be computed for them.
    limited = job.spec.wall_time is not None or job.time_limit is not None
    return maybe_to_micros(job.deadline) if limited else None


def _page(
    tx: Tx, owner: str, state: JobState | None, name: str | None, before: int, limit: int
) -> list[Row]:
    conditions, values = ["owner = ?"], [owner]
    for column, value in (("state", state), ("name", name)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(str(value))
    where = " and ".join((*conditions, "number < ?"))
    return tx.all(
        f"select {_COLUMNS} from jobs where {where} order by number desc limit ?",
        (*values, before, limit),
    )


def _jobs(tx: Tx, condition: str, values: tuple[Value, ...] = ()) -> list[Job]:
    return [_job(row) for row in tx.all(f"select {_COLUMNS} from jobs where {condition}", values)]


def _count(tx: Tx, condition: str, values: tuple[Value, ...]) -> int:
    row = tx.one(f"select count(*) from jobs where {condition}", values)
    return int(row[0]) if row else 0


_read_spec: Callable[[str], JobSpec] = json_reader(JobSpec)
_read_reason: Callable[[str | None], Reason | None] = maybe_json_reader(Reason)
_read_failure: Callable[[str | None], Failure | None] = maybe_json_reader(Failure)


def _job(row: Row) -> Job:
    """A row in the order of `_COLUMNS`; columns marked with _ are for the indexes only."""
    (number, id_, owner, _name, _priority, created_at, _snapshot, spec) = row[:8]
    (state, version, attempt, retried, pool, kill_asked, waiting_since) = row[8:15]
    (started_at, running_since, ran, _deadline, finished_at, _reason_code) = row[15:21]
    (reason, failure, quota_since, time_limit, not_before) = row[21:]
    return Job(
        id=id_,
        number=number,
        owner=owner,
        spec=_read_spec(spec),
        state=JobState(state),
        version=version,
        created_at=from_micros(created_at),
        waiting_since=from_micros(waiting_since),
        reason=_read_reason(reason),
        failure=_read_failure(failure),
        attempt=attempt,
        retried=retried,
        pool=pool,
        started_at=maybe_from_micros(started_at),
        running_since=maybe_from_micros(running_since),
        ran=timedelta(microseconds=ran),
        finished_at=maybe_from_micros(finished_at),
        kill_asked=bool(kill_asked),
        quota_since=maybe_from_micros(quota_since),
        time_limit=None if time_limit is None else timedelta(microseconds=time_limit),
        not_before=maybe_from_micros(not_before),
    )
