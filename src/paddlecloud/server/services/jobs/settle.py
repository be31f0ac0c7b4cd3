"""Moves a job on: what the facts in the database imply for its state.

`settle` is level-triggered: it reads what the replicas reported so far, asks the pure rules what
that implies, and writes it. Reports, kills and the reconcile loop all call it, so a crash between
any two steps is repaired by the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs, usage
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.diagnosis.outcome import has_run, moment, trouble, wants_stop
from paddlecloud.model.diagnosis.outcome import settle as implied
from paddlecloud.model.jobs.elastic import judged
from paddlecloud.model.jobs.job import Attempt, ExitCause, Failure, Job, with_changes
from paddlecloud.model.jobs.retry_policy import pause_before_retry
from paddlecloud.model.jobs.states import Event
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import CAPACITY_CHANNEL, SCHEDULE_CHANNEL
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.notifications import notify

Tails = Mapping[str, bytes]
"""The last log bytes of workers, for the message about a failure."""


def settle(tx: Tx, deps: Deps, job: Job, *, now: datetime, tails: Tails | None = None) -> Job:
    """Move `job` as far as the facts in the database imply, and end an attempt that is over.

    The job has to be read in this very write, so that no other write can have changed it since. Its
    agents are ordered to delete it later, when its log is on disk (`placement.release`).
    """
    while not job.final:
        attempt = judged(job, current_attempt(tx, job))
        step = implied(job, attempt, tails or {})
        if step is None:
            return _while_it_runs(tx, deps, job, attempt, tails or {})
        event, failure = step
        # Between two attempts the job waits, and the end of the last one is why.
        retried = event is Event.ATTEMPT_LOST
        first_pause = deps.settings.scheduling.retry_pause
        pause = pause_before_retry(job, failure, first_pause) if retried else None
        at = moment(event, job, attempt, now)
        before = job
        job = jobs.advance(
            tx,
            job,
            event,
            now=now,
            at=at,
            reason=failure.reason if failure and retried else None,
            sure=True,
            failure=failure,
            not_before=now + pause if pause else None,
        )
        notify.on_change(tx, deps, before, job, now)
        if attempt is not None and event is Event.STARTED:
            usage.begin(tx, job, attempt, public=quota.is_metered(deps, attempt.pool), at=at)
        if attempt is not None and attempt.over and (job.final or job.pool is None):
            _close_usage(tx, deps, job, attempt, at)
            attempts.end_attempt(tx, attempt.job_id, attempt.number, now, event)
            _notify_capacity(tx, job)
    return job


def current_attempt(tx: Tx, job: Job) -> Attempt | None:
    """The attempt of a placed job; None while the job waits."""
    if job.pool is None or job.attempt == 0:
        return None
    return attempts.get_attempt(tx, job.id, job.attempt)


def stop_replicas(tx: Tx, deps: Deps, job: Job, cause: ExitCause) -> None:
    """Order the end of the running replicas: SIGTERM, grace, SIGKILL, the whole process tree."""
    grace = deps.settings.running.grace
    set_order(tx, job.id, job.attempt, Want.STOP, grace=grace, cause=cause)


def stop_failed(tx: Tx, deps: Deps, job: Job, failure: Failure, cause: ExitCause) -> None:
    """Store why the job fails, then stop its replicas."""
    failing = jobs.save_job(tx, with_changes(job, failure=failure), expected_version=job.version)
    tx.notify("job", job.id)
    stop_replicas(tx, deps, failing, cause)


def _while_it_runs(tx: Tx, deps: Deps, job: Job, attempt: Attempt | None, tails: Tails) -> Job:
    """Store why a gang has begun to fail, and stop the rest of it: when one member failed, or when
    only pservers are left."""
    failure = trouble(job, attempt, tails)
    if failure is not None:
        job = jobs.save_job(tx, with_changes(job, failure=failure), expected_version=job.version)
        tx.notify("job", job.id)
    if attempt is None:
        return job
    if len(attempt.replicas) > 1 and wants_stop(attempt):
        set_order(
            tx,
            attempt.job_id,
            attempt.number,
            Want.STOP,
            grace=deps.settings.running.grace,
            cause=ExitCause.STOPPED,
            only={replica.id for replica in attempt.replicas if not replica.over},
            over=Want.RUN,  # an earlier order to stop stays as it is
        )
    if job.spec.elastic is not None or any(replica.over for replica in attempt.replicas):
        # A replica may have to be replaced, or other jobs may use what it has freed.
        _notify_capacity(tx, job)
    return job


def _notify_capacity(tx: Tx, job: Job) -> None:
    tx.notify(SCHEDULE_CHANNEL, "")
    tx.notify(CAPACITY_CHANNEL, job.id)


def _close_usage(tx: Tx, deps: Deps, job: Job, attempt: Attempt, at: datetime) -> None:
    if usage.end(tx, attempt, at) or not any(map(has_run, attempt.replicas)):
        return
    # It was killed after it began and before its start was reported.
    began = moment(Event.STARTED, job, attempt, at)
    usage.begin(tx, job, attempt, public=quota.is_metered(deps, attempt.pool), at=began)
    usage.end(tx, attempt, at)
