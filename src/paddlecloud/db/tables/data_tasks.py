"""Data tasks of jobs: which reader has leased which task, and which tasks are done.

Writes are serialized, so a task is counted exactly once per pass. Expired leases (by time, or
because their replica ended) are taken back when a reader asks for a task and none is left: until
then no other reader needs them, and their holder may still finish.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, to_micros
from paddlecloud.model.jobs.data_tasks import (
    Leased,
    Tally,
    TaskSet,
    TaskState,
    Verdict,
    is_held,
    replica_of,
    state_after_failure,
)

_SET = "job_id, name, digest, passes, failure_max, current_pass, created_at"
_ROWS_AT_ONCE = 100
_OF = "job_id = ? and name = ?"


def define(tx: Tx, new: TaskSet, contents: Sequence[str]) -> None:
    """Store a set with its tasks; there must be none of that name."""
    tx.run(
        f"insert into task_sets ({_SET}) values (?, ?, ?, ?, ?, ?, ?)",
        (
            new.job_id,
            new.name,
            new.digest,
            new.passes,
            new.failure_max,
            new.current if contents else new.passes,
            to_micros(new.created_at),
        ),
    )
    for start in range(0, len(contents), _ROWS_AT_ONCE):
        some = contents[start : start + _ROWS_AT_ONCE]
        places = ", ".join("(?, ?, ?, ?, 'todo', 0, 0, null, null, 0)" for _ in some)
        values = [
            value
            for number, content in enumerate(some, start)
            for value in (new.job_id, new.name, number, content)
        ]
        tx.run(
            "insert into tasks (job_id, name, number, content, state, tries, fence, holder,"
            f" lease_until, finished) values {places}",
            values,
        )


def get_set(tx: Tx, job_id: str, name: str) -> TaskSet | None:
    row = tx.one(f"select {_SET} from task_sets where {_OF}", (job_id, name))
    return None if row is None else _set(row)


def set_names(tx: Tx, job_id: str) -> list[str]:
    rows = tx.all("select name from task_sets where job_id = ? order by name", (job_id,))
    return [name for (name,) in rows]


def held_by(tx: Tx, tasks: TaskSet, holder: str) -> list[Leased]:
    """The tasks that this holder has leased, by number."""
    return _leased(tx, tasks, "holder = ? and", (holder,))


def lease(tx: Tx, tasks: TaskSet, holder: str, count: int, until: datetime) -> list[Leased]:
    """Lease up to `count` open tasks in order, each with a new fence."""
    rows = tx.all(
        f"select number, content, tries, fence from tasks where {_OF} and state = 'todo'"
        " order by number limit ?",
        (tasks.job_id, tasks.name, count),
    )
    for number, _content, _tries, _fence in rows:
        tx.run(
            "update tasks set state = 'leased', tries = tries + 1, fence = fence + 1,"
            f" holder = ?, lease_until = ? where {_OF} and number = ?",
            (holder, to_micros(until), tasks.job_id, tasks.name, number),
        )
    return [
        Leased(
            number=number,
            content=content,
            tries=tries + 1,
            fence=fence + 1,
            holder=holder,
            until=until,
        )
        for number, content, tries, fence in rows
    ]


def renew(
    tx: Tx, tasks: TaskSet, holder: str, fences: Collection[tuple[int, int]], until: datetime
) -> list[int]:
    """Extend these leases (number, fence); returns the numbers the holder no longer has."""
    own = {(task.number, task.fence) for task in held_by(tx, tasks, holder)}
    for number, fence in fences:
        if (number, fence) in own:
            tx.run(
                f"update tasks set lease_until = ? where {_OF} and number = ?",
                (to_micros(until), tasks.job_id, tasks.name, number),
            )
    return sorted(number for number, fence in fences if (number, fence) not in own)


def finish(
    tx: Tx, tasks: TaskSet, holder: str, number: int, fence: int, of_pass: int, now: datetime
) -> tuple[Verdict, TaskSet]:
    """Count a task as done, once. Returns the verdict and the set, in its next pass if this was the
    last task."""
    row = tx.one(
        f"select state, fence, holder from tasks where {_OF} and number = ?",
        (tasks.job_id, tasks.name, number),
    )
    state = None if row is None else TaskState(row[0])
    # A task that is done keeps its fence and its holder until it is leased again.
    own = row is not None and row[1] == fence and (row[2] or "") == holder
    if own and state is TaskState.LEASED and of_pass == tasks.current:
        tx.run(
            # Of a task that is done, `lease_until` is the time when it was finished.
            "update tasks set state = 'done', finished = finished + 1, lease_until = ?"
            f" where {_OF} and number = ?",
            (to_micros(now), tasks.job_id, tasks.name, number),
        )
        return Verdict.COUNTED, _next_pass(tx, tasks)
    before = own and (state is TaskState.DONE or of_pass < tasks.current)
    return Verdict.REPEATED if before else Verdict.LATE, tasks


def put_back(
    tx: Tx, tasks: TaskSet, holder: str, number: int, fence: int, *, counts: bool
) -> tuple[TaskState | None, TaskSet]:
    """Return an unfinished task; None: the holder no longer had it. `counts`: as a failed try."""
    task = next((each for each in held_by(tx, tasks, holder) if each.number == number), None)
    if task is None or task.fence != fence:
        return None, tasks
    return _take(tx, tasks, task, counts=counts), _next_pass(tx, tasks)


def take_back(
    tx: Tx, tasks: TaskSet, live: Collection[str], spared: Collection[str], now: datetime
) -> tuple[TaskSet, list[int]]:
    """Take back expired leases; `live` are the replicas that have not ended.

    An expired lease counts as a failed try, except for a replica among the `spared`, which ended
    for a reason of the platform. Returns the set and the numbers of tasks that were given up.
    """
    lapsed = [task for task in _leased(tx, tasks) if not is_held(task, live, now)]
    states = {
        task.number: _take(tx, tasks, task, counts=replica_of(task.holder) not in spared)
        for task in lapsed
    }
    gone = [number for number, state in states.items() if state is TaskState.GIVEN_UP]
    return (_next_pass(tx, tasks) if lapsed else tasks), gone


def waiting_count(tx: Tx, tasks: TaskSet) -> int:
    """How many tasks of the current pass are open."""
    row = tx.one(
        f"select count(*) from tasks where {_OF} and state = 'todo'", (tasks.job_id, tasks.name)
    )
    return int(row[0]) if row else 0


def tallies(tx: Tx, job_id: str, name: str | None = None) -> list[Tally]:
    """The progress of the task sets of a job, or of the one of that name."""
    only = "" if name is None else " and s.name = ?"
    values = (job_id,) if name is None else (job_id, name)
    counts = ", ".join(
        f"cast(coalesce(sum(case when t.state = '{state.value}' then 1 else 0 end), 0) as bigint)"
        for state in TaskState
    )
    rows = tx.all(
        "select s.name, s.passes, s.current_pass, count(t.number),"
        f" {counts},"
        " cast(coalesce(sum(t.finished), 0) as bigint)"
        " from task_sets s left join tasks t on t.job_id = s.job_id and t.name = s.name"
        f" where s.job_id = ?{only} group by s.name, s.passes, s.current_pass order by s.name",
        values,
    )
    return [_tally(row) for row in rows]


def last_finished(tx: Tx, job_id: str) -> datetime | None:
    """When the last task of this job was counted as done."""
    row = tx.one(
        "select max(lease_until) from tasks where job_id = ? and state <> 'leased'", (job_id,)
    )
    return None if row is None or row[0] is None else from_micros(row[0])


def _take(tx: Tx, tasks: TaskSet, task: Leased, *, counts: bool) -> TaskState:
    """End a lease; the fence grows, so later calls of its holder are ignored."""
    state = state_after_failure(task.tries, tasks.failure_max) if counts else TaskState.OPEN
    tx.run(
        "update tasks set state = ?, tries = ?, fence = fence + 1, holder = null,"
        f" lease_until = null where {_OF} and number = ?",
        (
            state.value,
            task.tries if counts else task.tries - 1,
            tasks.job_id,
            tasks.name,
            task.number,
        ),
    )
    return state


def _next_pass(tx: Tx, tasks: TaskSet) -> TaskSet:
    """Start the next pass if no task of this one is left; returns the set."""
    left = tx.one(
        f"select 1 from tasks where {_OF} and state in ('todo', 'leased') limit 1",
        (tasks.job_id, tasks.name),
    )
    if left is not None or tasks.over:
        return tasks
    following = tasks.current + 1
    tx.run(
        f"update task_sets set current_pass = ? where {_OF}",
        (following, tasks.job_id, tasks.name),
    )
    if following < tasks.passes:
        tx.run(
            f"update tasks set state = 'todo', tries = 0 where {_OF}", (tasks.job_id, tasks.name)
        )
    return replace(tasks, current=following)


def _leased(tx: Tx, tasks: TaskSet, where: str = "", values: tuple[str, ...] = ()) -> list[Leased]:
    rows = tx.all(
        "select number, content, tries, fence, holder, lease_until from tasks"
        f" where {where} {_OF} and state = 'leased' order by number",
        (*values, tasks.job_id, tasks.name),
    )
    return [
        Leased(
            number=number,
            content=content,
            tries=tries,
            fence=fence,
            holder=holder,
            until=from_micros(until),
        )
        for number, content, tries, fence, holder, until in rows
    ]


def _tally(row: Row) -> Tally:
    name, passes, current, total, todo, leased, done, given, finished = row
    whole = min(current, passes)
    # In a pass that is over a task was done or given up. When all are, its rows are the last one's.
    before = whole * total - (finished - (done if current < passes else 0))
    return Tally(
        name=name,
        passes=passes,
        current=current,
        total=total,
        todo=todo,
        leased=leased,
        done=done,
        given_up=given,
        finished=finished,
        given_up_ever=before + (given if current < passes else 0),
    )


def _set(row: Row) -> TaskSet:
    job_id, name, digest, passes, failure_max, current, created_at = row
    return TaskSet(
        job_id=job_id,
        name=name,
        digest=digest,
        passes=passes,
        failure_max=failure_max,
        current=current,
        created_at=from_micros(created_at),
    )
