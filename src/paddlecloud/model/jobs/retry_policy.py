"""The retry policy: which failed attempts are retried, and after what pause.

Retried are temporary causes: a lost machine, preemption, a port in use, and exit codes by which a
program asks for a retry. Other failures would repeat, so they are reported at once.
"""

from __future__ import annotations

from datetime import timedelta

from paddlecloud.model.diagnosis.first_failure import exit_code, first_failure
from paddlecloud.model.jobs.job import (
    PORT_TAKEN,
    UNCOUNTED,
    Attempt,
    ExitCause,
    Failure,
    Job,
    Reason,
)

MOST_PORTS_TAKEN = 5
"""Attempts in a row that may find a port in use before the job fails."""
LONGEST_PAUSE = timedelta(seconds=300)
PORTS_TAKEN = "fail_ports_taken"
"""Code of the reason of a job whose ports were in use in too many attempts."""
PORT_IN_USE = "fail_port_in_use"
"""Code of the reason of a program that found one of its own ports in use."""
LOST = "fail_lost"
UNWATCHED = "fail_unwatched"
UNWATCHED_LEFT = "fail_unwatched_left"
_HOPELESS_CODES = (126, 127)
_PASSING = frozenset({ExitCause.STOPPED, ExitCause.PREEMPTED, ExitCause.UNWATCHED})


def is_tried_again(job: Job, attempt: Attempt, failure: Failure | None) -> bool:
    """Whether this failed attempt is followed by another."""
    code = None if failure is None else failure.reason.code
    if code in UNCOUNTED:
        return True
    return job.retried < job.spec.max_retries and _obstacle(job, attempt, code) is None


def why_not_retried(job: Job, attempt: Attempt, failure: Failure | None) -> Reason | None:
    """Why a job with `max_retries` ends with this attempt; None: it has none, or its failure
    contains the reason."""
    code = None if failure is None else failure.reason.code
    if not job.spec.max_retries or code == PORTS_TAKEN:
        return None
    if job.retried >= job.spec.max_retries:
        return Reason(code="not_retried_more", params={"max_retries": job.spec.max_retries})
    return _obstacle(job, attempt, code)


def times_taken(job: Job) -> int:
    """How many attempts in a row, the current one included, found a port in use.

    The count is in the stored failure, which is cleared when an attempt runs.
    """
    reason = None if job.failure is None else job.failure.reason
    if reason is None or reason.code not in (PORT_TAKEN, PORTS_TAKEN):
        return 1
    return int(reason.params.get("times") or 0) + (reason.params.get("attempt") != job.attempt)


def pause_before_retry(job: Job, failure: Failure | None, first: timedelta) -> timedelta:
    """The pause before the next attempt of `job`; it doubles each time.

    There is no pause after preemption or a port in use, nor after the first lost machine: the job
    itself is fine then.
    """
    code = None if failure is None else failure.reason.code
    if code in UNCOUNTED:
        return timedelta(0)
    steps = job.retried - (code in (LOST, UNWATCHED, UNWATCHED_LEFT))
    if steps < 0 or first <= timedelta(0):
        return timedelta(0)
    doubled: int = 2 ** min(steps, 20)
    return min(first * doubled, LONGEST_PAUSE)


def _obstacle(job: Job, attempt: Attempt, code: str | None) -> Reason | None:
    """Why another attempt would not help; None: the cause may be temporary."""
    spec, culprit = job.spec, first_failure(attempt)
    if culprit is None or culprit.exit is None or culprit.exit.cause in _PASSING:
        return None
    record, ended = culprit.exit, exit_code(culprit)
    if record.cause is ExitCause.HUNG:
        return None if spec.retry_any_exit else Reason(code="not_retried_hang")
    if record.oom:
        return Reason(code="not_retried_memory")
    if record.cause is not ExitCause.EXIT:
        return Reason(code="not_retried_same")
    if spec.retry_any_exit:
        return Reason(code="not_retried_same") if ended in _HOPELESS_CODES else None
    if code == PORT_IN_USE or ended in spec.retry_exit_codes:
        return None
    codes = ",".join(str(one) for one in spec.retry_exit_codes)
    return Reason(code="not_retried_exit", params={"exit_code": ended, "codes": codes})
