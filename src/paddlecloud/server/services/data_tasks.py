"""Data tasks of a job for its trainers: define, lease, renew, finish, fail.

The caller is always a replica of the job. Whether that replica is still current is checked in the
same transaction as everything else, so a lost one changes nothing any more, even while its key is
cached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, data_tasks, jobs
from paddlecloud.model.diagnosis.first_failure import ASKED
from paddlecloud.model.errors import Conflict, Invalid, NotFound, Refused, StaleFence
from paddlecloud.model.jobs.data_tasks import Leased, Tally, TaskSet, holder_of
from paddlecloud.model.jobs.job import Attempt, Job, ReplicaState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.data_tasks import (
    LeaseAnswer,
    LeasedTask,
    LeaseRequest,
    RenewAnswer,
    RenewRequest,
    TaskDone,
    TaskDoneAnswer,
    TaskFailed,
    TaskFailedAnswer,
    TasksRequest,
)
from paddlecloud.server.schemas.jobs import TasksView

T = TypeVar("T")
WAIT = 0.5
"""Seconds between two requests of a reader while other readers hold all tasks that are left."""
MAX_NAME = 64
MAX_SETS = 16


def define(deps: Deps, caller: Caller, job_id: str, name: str, asked: TasksRequest) -> TasksView:
    """Define the set of that name, or check that an existing one is the same."""
    _check_name(name)
    if asked.tasks is not None and digest(asked.passes, asked.failure_max, asked.tasks) != (
        asked.digest
    ):
        raise Invalid("tasks_digest", name=name)

    def make(tx: Tx, attempt: Attempt, now: datetime) -> Tally:
        del attempt
        known = data_tasks.get_set(tx, job_id, name)
        if known is None and asked.tasks is None:
            raise NotFound("tasks_unknown", name=name)
        if known is None and len(data_tasks.set_names(tx, job_id)) >= MAX_SETS:
            raise Refused("tasks_too_many", name=name, limit=MAX_SETS)
        if known is None:
            new = TaskSet(
                job_id=job_id,
                name=name,
                digest=asked.digest,
                passes=asked.passes,
                failure_max=asked.failure_max,
                current=0,
                created_at=now,
            )
            data_tasks.define(tx, new, asked.tasks or ())
        elif known.digest != asked.digest:
            raise Conflict("tasks_differ", name=name)
        return data_tasks.tallies(tx, job_id, name)[0]

    return view(_write(deps, caller, job_id, make))


def digest(passes: int, failure_max: int, contents: Sequence[str]) -> str:
    """Digest of a set, on which all trainers have to agree."""
    digest_ = hashlib.sha256(f"{passes} {failure_max} {len(contents)}".encode())
    for content in contents:
        data = content.encode("utf-8", "surrogatepass")
        digest_.update(b" %d:%b" % (len(data), data))
    return digest_.hexdigest()


def lease(deps: Deps, caller: Caller, job_id: str, name: str, asked: LeaseRequest) -> LeaseAnswer:
    """Lease tasks. Those that the reader holds without knowing, after a lost response, are returned
    again."""
    holder = holder_of(caller.ak, asked.reader)

    def take(tx: Tx, attempt: Attempt, now: datetime) -> LeaseAnswer:
        known = _found(tx, job_id, name)
        until = now + timedelta(seconds=asked.seconds)
        unknown = [t for t in data_tasks.held_by(tx, known, holder) if t.number not in asked.held]
        again = unknown[: asked.count]
        data_tasks.renew(tx, known, holder, [(task.number, task.fence) for task in again], until)
        missing = asked.count - len(again)
        before, gone = known.current, list[int]()
        if missing and data_tasks.waiting_count(tx, known) < missing:
            known, gone = data_tasks.take_back(tx, known, _live(attempt), _spared(attempt), now)
        new = data_tasks.lease(tx, known, holder, missing, until) if missing else []
        return LeaseAnswer(
            tasks=[_leased(task) for task in (*again, *new)],
            current_pass=known.current,
            over=known.over,
            wait=WAIT,
            given_up=[(before, number) for number in gone],
        )

    # A lease that is lost with the power is requested again; only finished tasks must be durable.
    return _write(deps, caller, job_id, take, durable=False)


def renew(deps: Deps, caller: Caller, job_id: str, name: str, asked: RenewRequest) -> RenewAnswer:
    holder = holder_of(caller.ak, asked.reader)

    def go_on(tx: Tx, attempt: Attempt, now: datetime) -> RenewAnswer:
        del attempt
        until = now + timedelta(seconds=asked.seconds)
        lost = data_tasks.renew(tx, _found(tx, job_id, name), holder, asked.leases, until)
        return RenewAnswer(lost=lost)

    return _write(deps, caller, job_id, go_on, durable=False)


def finish(deps: Deps, caller: Caller, job_id: str, name: str, asked: TaskDone) -> TaskDoneAnswer:
    holder = holder_of(caller.ak, asked.reader)

    def count(tx: Tx, attempt: Attempt, now: datetime) -> TaskDoneAnswer:
        del attempt
        known = _found(tx, job_id, name)
        task = (asked.number, asked.fence, asked.of_pass, now)
        verdict, after = data_tasks.finish(tx, known, holder, *task)
        return TaskDoneAnswer(verdict=verdict.value, current_pass=after.current, over=after.over)

    return _write(deps, caller, job_id, count)


def fail(deps: Deps, caller: Caller, job_id: str, name: str, asked: TaskFailed) -> TaskFailedAnswer:
    holder = holder_of(caller.ak, asked.reader)

    def put_back(tx: Tx, attempt: Attempt, now: datetime) -> TaskFailedAnswer:
        del attempt, now
        known = _found(tx, job_id, name)
        task = (asked.number, asked.fence)
        state, _ = data_tasks.put_back(tx, known, holder, *task, counts=asked.counts)
        return TaskFailedAnswer(state="late" if state is None else state.value)

    return _write(deps, caller, job_id, put_back)


def show(deps: Deps, caller: Caller, job_id: str, name: str) -> TasksView:
    def read(tx: Tx) -> Tally:
        _own_attempt(tx, caller, job_id)
        return data_tasks.tallies(tx, job_id, _found(tx, job_id, name).name)[0]

    return view(deps.db.read(read))


def of_job(tx: Tx, job: Job) -> list[TasksView]:
    return [view(tally) for tally in data_tasks.tallies(tx, job.id)]


def view(tally: Tally) -> TasksView:
    return TasksView(
        name=tally.name,
        passes=tally.passes,
        current_pass=tally.current,
        total=tally.total,
        waiting=tally.todo,
        leased=tally.leased,
        done=tally.done,
        given_up=tally.given_up,
        finished_in_all=tally.finished,
        given_up_in_all=tally.given_up_ever,
    )


def _write(
    deps: Deps,
    caller: Caller,
    job_id: str,
    work: Callable[[Tx, Attempt, datetime], T],
    *,
    durable: bool = True,
) -> T:
    now = deps.clock()
    return deps.db.write(
        lambda tx: work(tx, _own_attempt(tx, caller, job_id), now), durable=durable
    )


def _own_attempt(tx: Tx, caller: Caller, job_id: str) -> Attempt:
    """The attempt of the calling replica, which has to be a live one of this job's current."""
    attempt = attempts.attempt_of(tx, caller.ak)
    if attempt is None or attempt.job_id != job_id:
        raise NotFound("job_unknown", job_id=job_id[:100])
    job = jobs.get_job(tx, job_id)
    current = job is not None and not job.final and job.attempt == attempt.number
    if not current or caller.ak not in _live(attempt):
        raise StaleFence("task_worker_over", worker=caller.ak.rpartition(".")[2])
    return attempt


def _found(tx: Tx, job_id: str, name: str) -> TaskSet:
    _check_name(name)
    known = data_tasks.get_set(tx, job_id, name)
    if known is None:
        raise NotFound("tasks_unknown", name=name[:MAX_NAME])
    return known


def _live(attempt: Attempt) -> set[str]:
    return {replica.id for replica in attempt.replicas if not replica.over}


def _spared(attempt: Attempt) -> set[str]:
    """Those whose end is no fault of what they worked at."""
    return {
        one.id
        for one in attempt.replicas
        if one.state is ReplicaState.LOST or (one.exit is not None and one.exit.cause in ASKED)
    }


def _leased(task: Leased) -> LeasedTask:
    return LeasedTask(number=task.number, content=task.content, fence=task.fence, tries=task.tries)


def _check_name(name: str) -> None:
    plain = name.replace("-", "a").replace("_", "a").replace(".", "a")
    if not plain.isascii() or not plain.isalnum() or len(name) > MAX_NAME:
        raise Invalid("tasks_name", name=name[:MAX_NAME], limit=MAX_NAME)
