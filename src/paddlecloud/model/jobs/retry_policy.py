"""Whether an attempt that failed is tried again, and how long the job waits before that.

Trying again helps where the cause can pass: a machine that is gone, a place that was needed for
another job, a port that another program has, and exit codes by which a program asks for it. Any
other failure repeats itself, so it is told at once instead of being paid for several times.
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
    JobSpec,
)

MOST_PORTS_TAKEN = 5
"""So many attempts in a row may find a port in use before the job fails."""
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
    """Whether this attempt, which is over and did not end well, is followed by another."""
    code = None if failure is None else failure.reason.code
    if code in UNCOUNTED:
        return True
    return job.retried < job.spec.max_retries and _can_pass(job.spec, attempt, code)


def times_taken(job: Job) -> int:
    """How many attempts in a row, the current one included, found a port in use.

    It is counted in the failure that is kept: one that runs clears it.
    """
    told = None if job.failure is None else job.failure.reason
    if told is None or told.code not in (PORT_TAKEN, PORTS_TAKEN):
        return 1
    return int(told.params.get("times") or 0) + (told.params.get("attempt") != job.attempt)


def pause_before_retry(job: Job, failure: Failure | None, first: timedelta) -> timedelta:
    """How long `job`, whose attempt just failed so, waits before its next: twice as long each time.

    None for a job that gave up its place or its ports, nor for the first machine that it lost:
    nothing is wrong with the job itself then.
    """
    code = None if failure is None else failure.reason.code
    if code in UNCOUNTED:
        return timedelta(0)
    steps = job.retried - (code in (LOST, UNWATCHED, UNWATCHED_LEFT))
    if steps < 0 or first <= timedelta(0):
        return timedelta(0)
    doubled: int = 2 ** min(steps, 20)
    return min(first * doubled, LONGEST_PAUSE)


def _can_pass(spec: JobSpec, attempt: Attempt, code: str | None) -> bool:
    culprit = first_failure(attempt)
    if culprit is None or culprit.exit is None or culprit.exit.cause in _PASSING:
        return True
    if culprit.exit.cause is ExitCause.HUNG:
        return spec.retry_any_exit
    if culprit.exit.cause is not ExitCause.EXIT or culprit.exit.oom:
        return False
    ended = exit_code(culprit)
    if spec.retry_any_exit:
        return ended not in _HOPELESS_CODES
    return code == PORT_IN_USE or ended in spec.retry_exit_codes
