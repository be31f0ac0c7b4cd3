"""What the observed replicas mean for their job: the event that comes next, and why, in words.

`settle` is level-triggered: it looks at what is known now and never at how it became known, so a
report may be late, repeated or lost with a crash, and the next look still gives the same answer.
The caller applies the event and asks again until the answer is None. Nothing here acts: stopping
the rest of a gang is the caller's work (`wants_stop`), and so is fetching the last bytes of a log.

The first failure in time is the cause; peers of a gang that die after it only follow. Pservers
never end by themselves, so their exit counts for nothing once every trainer ended well.

While the job has retries left (`max_retries`), a lost machine and a bad exit both lead to a new
attempt. So does, whatever its retries, an attempt that made room for a job of a higher class.
There is none where trying again cannot help: a kill, the wall time, a command that does
not exist or may not be executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum

from paddlecloud.model.exitwords import Words, words_for
from paddlecloud.model.job import (
    PREEMPTED,
    Attempt,
    ExitCause,
    Failure,
    Job,
    Reason,
    Replica,
    ReplicaState,
    Role,
)
from paddlecloud.model.priority import class_name
from paddlecloud.model.quantities import format_duration
from paddlecloud.model.states import Event, JobState
from paddlecloud.model.tail import last_lines

_NEVER = datetime.max.replace(tzinfo=UTC)
_HOPELESS_CODES = (126, 127)
_ASKED = frozenset({ExitCause.STOPPED, ExitCause.PREEMPTED})
"""Ends that the platform ordered: nobody failed by them."""
_ENDS = frozenset(
    {Event.SUCCEEDED, Event.BROKE, Event.WALL_TIME_OVER, Event.ATTEMPT_LOST, Event.STOPPED}
)


class Outcome(StrEnum):
    """How an attempt ended as a whole; kept with it."""

    SUCCEEDED = "succeeded"
    BROKE = "broke"
    WALL_TIME = "wall time"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    LOST = "lost"


def settle(
    job: Job, attempt: Attempt | None, tails: Mapping[str, bytes] | None = None
) -> tuple[Event, Failure | None] | None:
    """The event that the replicas imply for the job now, with the failure to keep; or None.

    `tails` are the last bytes of each worker's log; without them a failure has no last lines.
    """
    if job.state is JobState.KILLING:
        done = not _current(job, attempt) or attempt is None or attempt.over
        return (Event.STOPPED, _killed(job, attempt, tails or {})) if done else None
    if attempt is None or not _current(job, attempt):
        return None
    if job.state is JobState.SCHEDULE and any(has_run(replica) for replica in attempt.replicas):
        return Event.STARTED, None
    if job.state not in (JobState.SCHEDULE, JobState.RUNNING) or not attempt.over:
        return None
    return _end(job, attempt, tails or {})


def moment(event: Event, job: Job, attempt: Attempt | None, now: datetime) -> datetime:
    """When `event` really happened, by what its replicas tell; never before they were ordered.

    A report may be late, and the clock of a machine may be wrong, so the words of a replica count
    as far as they are possible.
    """
    if attempt is None:
        return now
    if event is Event.STARTED:
        began = [r.started_at or (r.exit.started_at if r.exit else None) for r in attempt.replicas]
        told = min((at for at in began if at is not None), default=now)
    elif event in _ENDS and all(r.exit and r.exit.finished_at for r in attempt.replicas):
        told = max(r.exit.finished_at or now for r in attempt.replicas if r.exit is not None)
    else:
        told = now
    return min(now, max(told, job.running_since or attempt.created_at))


def explain(job: Job, attempt: Attempt, tails: Mapping[str, bytes]) -> Failure | None:
    """Why this attempt did not end well, as far as is known now; None while or if it did."""
    if job.state is JobState.KILLING or job.kill_asked:
        return _killed(job, attempt, tails)
    culprit = first_failure(attempt)
    if culprit is None:
        return None
    words = _words(job, culprit, tails.get(culprit.worker, b""))
    return Failure(
        reason=words.reason,
        advice=words.advice,
        worker=culprit.worker,
        exit_code=_exit_code(culprit),
        last_lines=last_lines(tails.get(culprit.worker, b"")),
    )


def outcome(attempt: Attempt) -> Outcome | None:
    """How the attempt ended, once all of it is over."""
    if not attempt.over:
        return None
    if _trainers_ok(attempt):
        return Outcome.SUCCEEDED
    culprit = first_failure(attempt)
    if culprit is None or culprit.state is ReplicaState.LOST or culprit.exit is None:
        return Outcome.LOST
    causes = {
        ExitCause.WALL_TIME: Outcome.WALL_TIME,
        ExitCause.STOPPED: Outcome.STOPPED,
        ExitCause.PREEMPTED: Outcome.PREEMPTED,
    }
    return causes.get(culprit.exit.cause, Outcome.BROKE)


def wants_stop(attempt: Attempt) -> bool:
    """True if what still runs of this attempt should be stopped: a rank failed, or all trainers
    are done and only pservers are left."""
    if attempt.over:
        return False
    return first_failure(attempt) is not None or _trainers_ok(attempt)


def first_failure(attempt: Attempt) -> Replica | None:
    """The replica that failed first in time. One that was stopped counts only if nothing else
    failed, because whoever stops the peers of a culprit does so after it."""
    if _trainers_ok(attempt):
        return None
    failed = [replica for replica in attempt.replicas if _failed(replica)]
    return min(failed, key=_blame, default=None)


def has_run(replica: Replica) -> bool:
    """Whether its command ever began."""
    if replica.exit is None:
        return replica.state is ReplicaState.RUNNING or replica.pid is not None
    never = replica.exit.cause is ExitCause.START_FAILED
    return not never and not (replica.exit.cause in _ASKED and replica.exit.started_at is None)


def _current(job: Job, attempt: Attempt | None) -> bool:
    """False for an attempt that is history: the job waits for a place again, or has a newer one."""
    return (
        attempt is not None
        and job.pool is not None
        and attempt.number == job.attempt
        and attempt.ended_at is None
    )


def _end(job: Job, attempt: Attempt, tails: Mapping[str, bytes]) -> tuple[Event, Failure | None]:
    failure = explain(job, attempt, tails)
    ended = outcome(attempt)
    if ended is Outcome.SUCCEEDED:
        return Event.SUCCEEDED, None
    if ended is Outcome.WALL_TIME:
        return Event.WALL_TIME_OVER, failure
    if ended is Outcome.PREEMPTED:
        return Event.ATTEMPT_LOST, failure
    if job.retried < job.spec.max_retries and _worth_retrying(attempt):
        return Event.ATTEMPT_LOST, failure
    return Event.BROKE, failure


def _worth_retrying(attempt: Attempt) -> bool:
    culprit = first_failure(attempt)
    if culprit is None or culprit.exit is None:
        return True
    return culprit.exit.exit_code not in _HOPELESS_CODES


def _trainers_ok(attempt: Attempt) -> bool:
    trainers = [replica for replica in attempt.replicas if replica.role is Role.TRAINER]
    return bool(trainers) and all(r.exit is not None and r.exit.ok for r in trainers)


def _failed(replica: Replica) -> bool:
    return replica.over and (replica.exit is None or not replica.exit.ok)


def _blame(replica: Replica) -> tuple[bool, datetime, Role, int]:
    stopped = replica.exit is not None and replica.exit.cause in _ASKED
    at = replica.exit.finished_at if replica.exit is not None else None
    return stopped, at or _NEVER, replica.role, replica.rank


def _killed(job: Job, attempt: Attempt | None, tails: Mapping[str, bytes]) -> Failure:
    del job
    replica = None if attempt is None else next(iter(attempt.replicas), None)
    if replica is None:
        return Failure(reason=Reason(code="killed_waiting"))
    return Failure(
        reason=Reason(code="killed_running"),
        worker=replica.worker,
        exit_code=_exit_code(replica),
        last_lines=last_lines(tails.get(replica.worker, b"")),
    )


def _words(job: Job, replica: Replica, tail: bytes) -> Words:
    if replica.state is ReplicaState.LOST or replica.exit is None:
        return Words(
            Reason(code="fail_lost", params={"worker": replica.worker, "node": replica.node}),
            Reason(code="advice_lost", params={"max_retries": job.spec.max_retries}),
        )
    if replica.exit.cause is ExitCause.WALL_TIME:
        by_plan = _stopped_by_plan(job)
        if by_plan is not None:
            return by_plan
        seconds = job.spec.wall_time.total_seconds() if job.spec.wall_time else 0
        return Words(
            Reason(code="fail_wall_time", params={"wall_time": format_duration(seconds)}),
            Reason(code="advice_wall_time"),
        )
    if replica.exit.cause is ExitCause.PREEMPTED:
        return _made_room(job)
    return words_for(job.id, replica.worker, replica.exit, replica.resources, tail)


def _made_room(job: Job) -> Words:
    """For which class it had to go: written down with the order."""
    told = job.failure.reason if job.failure is not None else None
    if told is None or told.code != PREEMPTED:
        own = class_name(job.spec.priority)
        told = Reason(code="preempted", params={"for_job": "?", "by": "?", "own": own})
    return Words(told, Reason(code="advice_preempted"))


def _stopped_by_plan(job: Job) -> Words | None:
    """Why its owner's plan ended it; None if it was its own wall time."""
    told, limit = job.failure, job.time_limit
    if told is not None and told.reason.code == "fail_minutes_a_day":
        return Words(told.reason, told.advice)
    if limit is None or job.may_run != limit:
        return None
    minutes = int(limit.total_seconds()) // 60
    return Words(
        Reason(code="fail_minutes_a_job", params={"limit": minutes}),
        Reason(code="advice_minutes_a_job"),
    )


def _exit_code(replica: Replica) -> int | None:
    """As a shell tells it: 128 + n for an end by signal n."""
    if replica.exit is None:
        return None
    if replica.exit.signal is not None:
        return 128 + replica.exit.signal
    return replica.exit.exit_code
