"""What the observed replicas mean for their job: the event that comes next, and why, in words.

`settle` is level-triggered: it looks at what is known now and never at how it became known, so a
report may be late, repeated or lost with a crash, and the next look still gives the same answer.
The caller applies the event and asks again until the answer is None. Nothing here acts: stopping
the rest of a gang is the caller's work (`wants_stop`, `trouble`), and so is fetching the last bytes
of a log.

Who is to blame is the question of `blame.py`, how one process ended that of `exitwords.py`, and
whether another attempt follows that of `retries.py`. Pservers never end by themselves, so their
exit counts for nothing once every trainer ended well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from paddlecloud.model.diagnosis.exit_status import NOT_EXECUTABLE, Words, with_message, words_for
from paddlecloud.model.diagnosis.first_failure import (
    ASKED,
    NEVER_RAN,
    exit_code,
    first_failure,
    trainers_ok,
)
from paddlecloud.model.diagnosis.reasons import caused, of_unsent
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.job import (
    PORT_TAKEN,
    PREEMPTED,
    Attempt,
    ExitCause,
    ExitRecord,
    Failure,
    Job,
    Reason,
    Replica,
    ReplicaState,
)
from paddlecloud.model.jobs.retry_policy import (
    LOST,
    MOST_PORTS_TAKEN,
    PORTS_TAKEN,
    UNWATCHED,
    UNWATCHED_LEFT,
    is_tried_again,
    times_taken,
)
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.model.logs.tail import last_lines
from paddlecloud.model.policy.priority import class_name
from paddlecloud.model.units import format_duration

HUNG = "fail_hung"
"""Code of the reason of a job that did nothing for too long."""
_UNSENT = ("unsent_given_up", "unsent_kept")
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
    if job.state is JobState.SCHEDULE and has_started(attempt):
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
    """Why this attempt did not end well, as far as is known now; None while or if it did.

    Of a culprit whose log is not among the tails, what was told before stands: the end of a gang is
    drawn when its last replica is over, and the log of the first came with an earlier report.
    """
    if job.state is JobState.KILLING or job.kill_asked:
        return _killed(job, attempt, tails)
    culprit = first_failure(attempt)
    if culprit is None:
        return None
    told = job.failure
    if culprit.exit is not None and culprit.exit.cause is ExitCause.HUNG and _is(told, HUNG):
        return _hung(told, attempt, tails)
    if told is not None and culprit.worker not in tails and _tells_of(told, culprit):
        return told
    words = _words(job, culprit, tails.get(culprit.worker, b""))
    return Failure(
        reason=words.reason,
        advice=words.advice,
        worker=culprit.worker,
        exit_code=exit_code(culprit),
        last_lines=last_lines(tails.get(culprit.worker, b"")),
    )


def trouble(job: Job, attempt: Attempt | None, tails: Mapping[str, bytes]) -> Failure | None:
    """What to write down before the rest of a failed gang is stopped; None: nothing new.

    The cause is known from then on, whatever the others do, and the last lines are kept with it.
    """
    if attempt is None or not _current(job, attempt) or attempt.over or job.kill_asked:
        return None
    failure = explain(job, attempt, tails)
    return None if failure == job.failure else failure


def outcome(attempt: Attempt) -> Outcome | None:
    """How the attempt ended, once all of it is over."""
    if not attempt.over:
        return None
    if trainers_ok(attempt):
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
    return first_failure(attempt) is not None or trainers_ok(attempt)


def has_run(replica: Replica) -> bool:
    """Whether its command ever began."""
    if replica.exit is None:
        return replica.state is ReplicaState.RUNNING or replica.pid is not None
    if replica.exit.cause in NEVER_RAN:
        return False
    return not (replica.exit.cause in ASKED and replica.exit.started_at is None)


def has_started(attempt: Attempt) -> bool:
    """Whether the attempt counts as begun: all of it runs, or some of it has run and is over.

    A gang in which one replica could not begin never did, whatever the others got to: unless they
    got to the end of the work or of its time.
    """
    if outcome(attempt) in (Outcome.SUCCEEDED, Outcome.WALL_TIME):
        return True
    if any(replica.exit is not None and not has_run(replica) for replica in attempt.replicas):
        return False
    ran = [replica for replica in attempt.replicas if has_run(replica)]
    return len(ran) == len(attempt.replicas) or any(replica.over for replica in ran)


def unsent(job: Job, replicas: Sequence[Replica]) -> Reason | None:
    """What could not be read of a job that is over, or neither the store nor a bucket took, if its
    end does not say it by itself."""
    left = _unsent([one for one in replicas if not _fails_for_outputs(one)])
    if left is None or job.kill_asked:
        return None
    code = of_unsent(left.params, own_bucket=not job.spec.public_bos)
    return caused(code, left.code, left.params)


def _unsent(replicas: Sequence[Replica]) -> Reason | None:
    """How the first that left something tells of it."""
    told = (one.exit.said for one in replicas if one.exit is not None)
    return next((said for said in told if said is not None and said.code in _UNSENT), None)


def _fails_for_outputs(replica: Replica) -> bool:
    return replica.exit is not None and replica.exit.cause is ExitCause.OUTPUTS_LOST


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
    if is_tried_again(job, attempt, failure):
        return Event.ATTEMPT_LOST, failure
    return Event.BROKE, failure


def _is(failure: Failure | None, code: str) -> bool:
    return failure is not None and failure.reason.code == code


def _tells_of(told: Failure, culprit: Replica) -> bool:
    return (told.worker, told.exit_code) == (culprit.worker, exit_code(culprit))


def _killed(job: Job, attempt: Attempt | None, tails: Mapping[str, bytes]) -> Failure:
    replica = None if attempt is None else next(iter(attempt.replicas), None)
    waited = "killed_waiting" if job.started_at is None else "killed_between"
    if attempt is None or replica is None:
        return Failure(reason=Reason(code=waited))
    words = _words_of_kill(attempt, waited)
    return Failure(
        reason=words.reason,
        advice=words.advice,
        worker=replica.worker,
        exit_code=exit_code(replica),
        last_lines=last_lines(tails.get(replica.worker, b"")),
    )


def _words_of_kill(attempt: Attempt, waited: str) -> Words:
    """What is known of a killed attempt; `waited` is the code for one that never began."""
    unsure = next((one for one in attempt.replicas if _may_run(one)), None)
    if unsure is not None:
        code = "killed_lost" if unsure.exit is None else "killed_unwatched"
        about = {"worker": unsure.worker, "node": unsure.node}
        advice = Reason(code=f"advice_{code}", params={"node": unsure.node})
        return Words(Reason(code=code, params=about), advice)
    if _never_began(attempt):
        return Words(Reason(code=waited), None)
    left = _unsent(attempt.replicas)
    if left is None:
        return Words(Reason(code="killed_running"), None)
    return Words(caused("killed_unsent", left.code, left.params), None)


def _may_run(replica: Replica) -> bool:
    """Whether processes of it may be running although it is over."""
    lost = replica.state is ReplicaState.LOST
    return lost and (replica.exit is None or not replica.exit.all_ended)


def _never_began(attempt: Attempt) -> bool:
    """Whether it is known of every replica that its command did not begin: of a lost one it is
    not."""
    return all(one.exit is not None and not has_run(one) for one in attempt.replicas)


def _words(job: Job, replica: Replica, tail: bytes) -> Words:
    if replica.state is ReplicaState.LOST or replica.exit is None:
        return _lost(job, replica)
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
    if replica.exit.cause is ExitCause.PORT_TAKEN:
        return _port_taken(job, replica.worker, replica.exit)
    if replica.exit.cause is ExitCause.HUNG:
        return hung_words(job, replica.worker)
    if replica.exit.cause is ExitCause.OUTPUTS_LOST:
        return _outputs_lost(job, replica.worker, replica.exit)
    logged = bool(replica.log_bytes or tail)
    words = words_for(job.id, replica.worker, replica.exit, replica.resources, tail, logged=logged)
    advice = words.advice
    if not job.spec.public_bos and advice is not None and advice.code == NOT_EXECUTABLE:
        # A bucket keeps no right to execute, whatever was done to the file before.
        return words._replace(advice=Reason(code="advice_no_rights", params=advice.params))
    return words


def _lost(job: Job, replica: Replica) -> Words:
    """A machine that is silent, or one whose agent says that nobody watched how it ended."""
    about = {"worker": replica.worker, "node": replica.node}
    retries: dict[str, str | int] = {"max_retries": job.spec.max_retries}
    if replica.exit is None or replica.exit.cause is not ExitCause.UNWATCHED:
        return Words(Reason(code=LOST, params=about), Reason(code="advice_lost", params=retries))
    code, advice = UNWATCHED, "advice_unwatched"
    if not replica.exit.all_ended:
        code, advice = UNWATCHED_LEFT, "advice_unwatched_left"
    given = retries | {"node": replica.node}
    return Words(Reason(code=code, params=about), Reason(code=advice, params=given))


def hung_words(job: Job, worker: str) -> Words:
    """That nothing of the job did anything; `worker` is the one that fell silent first."""
    seconds = job.spec.hang_timeout.total_seconds() if job.spec.hang_timeout else 0
    quiet = format_duration(seconds)
    return Words(
        Reason(code=HUNG, params={"worker": worker, "quiet": quiet}),
        Reason(code="advice_hung", params={"job_id": job.id}),
    )


def _hung(told: Failure | None, attempt: Attempt, tails: Mapping[str, bytes]) -> Failure:
    """What was told when it was found out, completed by how that worker ended."""
    assert told is not None
    replica = next((one for one in attempt.replicas if one.worker == told.worker), None)
    tail = tails.get(told.worker)
    return with_changes(
        told,
        exit_code=told.exit_code if replica is None else exit_code(replica),
        last_lines=told.last_lines if tail is None else last_lines(tail),
    )


def _port_taken(job: Job, worker: str, record: ExitRecord) -> Words:
    times = times_taken(job)
    code, advice = PORT_TAKEN, "advice_port_taken"
    if times >= MOST_PORTS_TAKEN:
        code, advice = PORTS_TAKEN, "advice_ports_taken"
    told = {"worker": worker, "message": record.message or "?"}
    counted = {"times": times, "attempt": job.attempt}
    return Words(Reason(code=code, params={**told, **counted}), Reason(code=advice))


def _outputs_lost(job: Job, worker: str, record: ExitRecord) -> Words:
    which = "untaken" if job.spec.public_bos else "lost"
    reason = with_message(f"fail_outputs_{which}", worker, record)
    return Words(reason, Reason(code=f"advice_outputs_{which}"))


def _made_room(job: Job) -> Words:
    """For which class it had to go: written down with the order."""
    told = job.failure.reason if job.failure is not None else None
    if told is None or told.code != PREEMPTED:
        own = class_name(job.spec.priority)
        told = Reason(code=PREEMPTED, params={"for_job": "?", "by": "?", "own": own})
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
