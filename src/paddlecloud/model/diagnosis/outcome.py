"""Derives a job's next event, and the reason of its end, from the observed state of its replicas.

`settle` is level-triggered: its result depends on the current facts and not on the order in which
they arrived, so a report may be late, repeated or lost in a crash. The caller applies the event and
calls again until the result is None. Nothing here acts: the caller stops the rest of a gang
(`wants_stop`, `trouble`) and fetches the last bytes of a log.

`first_failure` finds the replica that caused a failure, `exit_status` explains how one process
ended, `retry_policy` decides whether another attempt follows. Pservers never exit by themselves, so
their exit is ignored once every trainer has succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from paddlecloud.model.diagnosis.exit_status import (
    NOT_EXECUTABLE,
    Diagnosis,
    diagnose_exit,
    with_message,
)
from paddlecloud.model.diagnosis.first_failure import (
    ASKED,
    NEVER_RAN,
    exit_code,
    first_failure,
    trainers_ok,
)
from paddlecloud.model.diagnosis.reasons import caused, of_unsent
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
    with_changes,
)
from paddlecloud.model.jobs.retry_policy import (
    LOST,
    MOST_PORTS_TAKEN,
    PORTS_TAKEN,
    UNWATCHED,
    UNWATCHED_LEFT,
    is_tried_again,
    times_taken,
    why_not_retried,
)
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.model.logs.tail import last_lines
from paddlecloud.model.policy.priority import class_name
from paddlecloud.model.units import format_duration

HUNG = "fail_hung"
"""Reason code of a job without output and CPU use for longer than its hang_timeout."""
RESTORED = "fail_restored"
"""Reason code of what ran when the backup was taken that the server was restored from."""
_UNSENT = ("unsent_given_up", "unsent_kept")
_ENDS = frozenset(
    {Event.SUCCEEDED, Event.BROKE, Event.WALL_TIME_OVER, Event.ATTEMPT_LOST, Event.STOPPED}
)


class Outcome(StrEnum):
    """How an attempt ended as a whole; stored with it."""

    SUCCEEDED = "succeeded"
    BROKE = "broke"
    WALL_TIME = "wall time"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    LOST = "lost"


def settle(
    job: Job, attempt: Attempt | None, tails: Mapping[str, bytes] | None = None
) -> tuple[Event, Failure | None] | None:
    """The next event of the job, with the failure to store; None: no change.

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
    """When `event` happened according to the replicas, never before they were ordered.

    A report may be late, and a machine's clock may be wrong, so the reported time is clamped to the
    possible range.
    """
    if attempt is None:
        return now
    if event is Event.STARTED:
        began = [r.started_at or (r.exit.started_at if r.exit else None) for r in attempt.replicas]
        reported = min((at for at in began if at is not None), default=now)
    elif event in _ENDS and all(r.exit and r.exit.finished_at for r in attempt.replicas):
        reported = max(r.exit.finished_at or now for r in attempt.replicas if r.exit is not None)
    else:
        reported = now
    return min(now, max(reported, job.running_since or attempt.created_at))


def explain(job: Job, attempt: Attempt, tails: Mapping[str, bytes]) -> Failure | None:
    """Why this attempt failed, as far as is known; None: it has not failed.

    If the log of the culprit is not among the tails, the stored failure stays: a gang is settled
    when its last replica is over, and the log of the first came with an earlier report.
    """
    if job.state is JobState.KILLING or job.kill_asked:
        return _killed(job, attempt, tails)
    culprit = first_failure(attempt)
    if culprit is None:
        return None
    stored = job.failure
    hung = culprit.exit is not None and culprit.exit.cause is ExitCause.HUNG
    if hung and stored is not None and stored.reason.code == HUNG:
        return _with_exit(stored, attempt, tails)
    same = stored is not None and (stored.worker, stored.exit_code) == (
        culprit.worker,
        exit_code(culprit),
    )
    if same and culprit.worker not in tails:
        return stored
    diagnosis = _diagnose(job, culprit, tails.get(culprit.worker, b""))
    return Failure(
        reason=diagnosis.reason,
        advice=diagnosis.advice,
        worker=culprit.worker,
        exit_code=exit_code(culprit),
        last_lines=last_lines(tails.get(culprit.worker, b"")),
    )


def trouble(job: Job, attempt: Attempt | None, tails: Mapping[str, bytes]) -> Failure | None:
    """The failure to store before the rest of a failed gang is stopped; None: nothing new.

    It keeps the cause and the last lines, whatever the other replicas do afterwards.
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
    """Whether the running replicas should be stopped: a rank failed, or all trainers have
    succeeded and only pservers are left."""
    if attempt.over:
        return False
    return first_failure(attempt) is not None or trainers_ok(attempt)


def has_run(replica: Replica) -> bool:
    """Whether its command was started."""
    if replica.exit is None:
        return replica.state is ReplicaState.RUNNING or replica.pid is not None
    if replica.exit.cause in NEVER_RAN:
        return False
    return not (replica.exit.cause in ASKED and replica.exit.started_at is None)


def has_started(attempt: Attempt) -> bool:
    """Whether the attempt counts as started: every replica runs, or one has run and is over.

    A gang in which one replica could not start has not started, unless the others completed the
    work or reached the wall time.
    """
    if outcome(attempt) in (Outcome.SUCCEEDED, Outcome.WALL_TIME):
        return True
    if any(replica.exit is not None and not has_run(replica) for replica in attempt.replicas):
        return False
    ran = [replica for replica in attempt.replicas if has_run(replica)]
    return len(ran) == len(attempt.replicas) or any(replica.over for replica in ran)


def unsent(job: Job, replicas: Sequence[Replica]) -> Reason | None:
    """The outputs of an ended job that could not be read or stored, unless its failure already
    lists them."""
    left = _unsent(
        [r for r in replicas if r.exit is None or r.exit.cause is not ExitCause.OUTPUTS_LOST]
    )
    if left is None or job.kill_asked:
        return None
    code = of_unsent(left.params, own_bucket=not job.spec.public_bos)
    return caused(code, left.code, left.params)


def _unsent(replicas: Sequence[Replica]) -> Reason | None:
    """The reason of the first replica that has unsent outputs."""
    reasons = (one.exit.said for one in replicas if one.exit is not None)
    return next((one for one in reasons if one is not None and one.code in _UNSENT), None)


def _current(job: Job, attempt: Attempt | None) -> bool:
    """False for a past attempt: the job waits for its next placement, or has a newer attempt."""
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
    if ended is Outcome.PREEMPTED or is_tried_again(job, attempt, failure):
        return Event.ATTEMPT_LOST, failure
    if failure is not None:
        failure = with_changes(failure, not_retried=why_not_retried(job, attempt, failure))
    return Event.BROKE, failure


def _killed(job: Job, attempt: Attempt | None, tails: Mapping[str, bytes]) -> Failure:
    replica = None if attempt is None else next(iter(attempt.replicas), None)
    waited = "killed_waiting" if job.started_at is None else "killed_between"
    if attempt is None or replica is None:
        return Failure(reason=Reason(code=waited))
    diagnosis = _diagnose_kill(attempt, waited)
    return Failure(
        reason=diagnosis.reason,
        advice=diagnosis.advice,
        worker=replica.worker,
        exit_code=exit_code(replica),
        last_lines=last_lines(tails.get(replica.worker, b"")),
    )


def _diagnose_kill(attempt: Attempt, waited: str) -> Diagnosis:
    """Explains a killed attempt; `waited` is the code of one that never started."""
    lost = [one for one in attempt.replicas if one.state is ReplicaState.LOST]
    unsure = next((one for one in lost if one.exit is None or not one.exit.all_ended), None)
    if unsure is not None:
        unknown = unsure.exit is None or _is_restored(unsure.exit)
        code = "killed_lost" if unknown else "killed_unwatched"
        about = {"worker": unsure.worker, "node": unsure.node}
        advice = Reason(code=f"advice_{code}", params={"node": unsure.node})
        return Diagnosis(Reason(code=code, params=about), advice)
    if all(one.exit is not None and not has_run(one) for one in attempt.replicas):
        return Diagnosis(Reason(code=waited), None)
    left = _unsent(attempt.replicas)
    if left is None:
        return Diagnosis(Reason(code="killed_running"), None)
    return Diagnosis(caused("killed_unsent", left.code, left.params), None)


def _diagnose(job: Job, replica: Replica, tail: bytes) -> Diagnosis:
    if replica.state is ReplicaState.LOST or replica.exit is None:
        return _lost(job, replica)
    if replica.exit.cause is ExitCause.WALL_TIME:
        by_plan = _stopped_by_plan(job)
        if by_plan is not None:
            return by_plan
        seconds = job.spec.wall_time.total_seconds() if job.spec.wall_time else 0
        return Diagnosis(
            Reason(code="fail_wall_time", params={"wall_time": format_duration(seconds)}),
            Reason(code="advice_wall_time"),
        )
    if replica.exit.cause is ExitCause.PREEMPTED:
        return _preempted(job)
    if replica.exit.cause is ExitCause.PORT_TAKEN:
        return _port_taken(job, replica.worker, replica.exit)
    if replica.exit.cause is ExitCause.HUNG:
        return diagnose_hang(job, replica.worker)
    if replica.exit.cause is ExitCause.OUTPUTS_LOST:
        which = "untaken" if job.spec.public_bos else "lost"
        reason = with_message(f"fail_outputs_{which}", replica.worker, replica.exit)
        return Diagnosis(reason, Reason(code=f"advice_outputs_{which}"))
    logged = bool(replica.log_bytes or tail)
    diagnosis = diagnose_exit(
        job.id, replica.worker, replica.exit, replica.resources, tail, logged=logged
    )
    advice = diagnosis.advice
    if not job.spec.public_bos and advice is not None and advice.code == NOT_EXECUTABLE:
        # A bucket does not keep the executable bit.
        return diagnosis._replace(advice=Reason(code="advice_no_rights", params=advice.params))
    return diagnosis


def _lost(job: Job, replica: Replica) -> Diagnosis:
    """Contact with the machine was lost, or its agent found the supervisor killed."""
    about = {"worker": replica.worker, "node": replica.node}
    retries: dict[str, str | int] = {"max_retries": job.spec.max_retries}
    if replica.exit is not None and replica.exit.said is not None and _is_restored(replica.exit):
        reason = Reason(code=RESTORED, params={**replica.exit.said.params, **about})
        return Diagnosis(reason, Reason(code="advice_restored"))
    if replica.exit is None or replica.exit.cause is not ExitCause.UNWATCHED:
        return Diagnosis(
            Reason(code=LOST, params=about), Reason(code="advice_lost", params=retries)
        )
    code, advice = UNWATCHED, "advice_unwatched"
    if not replica.exit.all_ended:
        code, advice = UNWATCHED_LEFT, "advice_unwatched_left"
    given = retries | {"node": replica.node}
    return Diagnosis(Reason(code=code, params=about), Reason(code=advice, params=given))


def _is_restored(record: ExitRecord) -> bool:
    return record.said is not None and record.said.code == RESTORED


def diagnose_hang(job: Job, worker: str) -> Diagnosis:
    """Explains a hung job; `worker` is the one that was inactive first."""
    seconds = job.spec.hang_timeout.total_seconds() if job.spec.hang_timeout else 0
    quiet = format_duration(seconds)
    return Diagnosis(
        Reason(code=HUNG, params={"worker": worker, "quiet": quiet}),
        Reason(code="advice_hung", params={"job_id": job.id}),
    )


def _with_exit(hang: Failure, attempt: Attempt, tails: Mapping[str, bytes]) -> Failure:
    """The failure stored when the hang was detected, completed with the exit of its worker."""
    replica = next((one for one in attempt.replicas if one.worker == hang.worker), None)
    tail = tails.get(hang.worker)
    return with_changes(
        hang,
        exit_code=hang.exit_code if replica is None else exit_code(replica),
        last_lines=hang.last_lines if tail is None else last_lines(tail),
    )


def _port_taken(job: Job, worker: str, record: ExitRecord) -> Diagnosis:
    times = times_taken(job)
    code, advice = PORT_TAKEN, "advice_port_taken"
    if times >= MOST_PORTS_TAKEN:
        code, advice = PORTS_TAKEN, "advice_ports_taken"
    params: dict[str, str | int] = {
        "worker": worker,
        "message": record.message or "?",
        "times": times,
        "attempt": job.attempt,
    }
    return Diagnosis(Reason(code=code, params=params), Reason(code=advice))


def _preempted(job: Job) -> Diagnosis:
    """Names the job that preempted it, which was stored with the stop order."""
    reason = job.failure.reason if job.failure is not None else None
    if reason is None or reason.code != PREEMPTED:
        own = class_name(job.spec.priority)
        reason = Reason(code=PREEMPTED, params={"for_job": "?", "by": "?", "own": own})
    return Diagnosis(reason, Reason(code="advice_preempted"))


def _stopped_by_plan(job: Job) -> Diagnosis | None:
    """The limit of the owner's plan that stopped it; None: its own wall time did."""
    stored, limit = job.failure, job.time_limit
    if stored is not None and stored.reason.code == "fail_minutes_a_day":
        return Diagnosis(stored.reason, stored.advice)
    if limit is None or job.may_run != limit:
        return None
    minutes = int(limit.total_seconds()) // 60
    return Diagnosis(
        Reason(code="fail_minutes_a_job", params={"limit": minutes}),
        Reason(code="advice_minutes_a_job"),
    )
