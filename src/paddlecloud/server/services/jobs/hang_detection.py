"""Hang detection: stops jobs whose workers neither write nor use CPU for `hang_timeout`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, live_usage
from paddlecloud.db.tables.live_usage import Use
from paddlecloud.model.diagnosis.outcome import HUNG, diagnose_hang
from paddlecloud.model.jobs.job import ExitCause, Failure, Job
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.jobs.settle import current_attempt, stop_failed

LONGEST_TRUST = timedelta(seconds=12)
"""Agents report the usage of their replicas at least every 10 seconds."""


def stop_hung(deps: Deps, now: datetime, placed: Sequence[Job]) -> None:
    """Stop jobs that do nothing any more; the reason is stored first."""

    def stop(tx: Tx, job_id: str) -> None:
        hung = _find_hung(tx, job_id, now)
        if hung is not None:
            job, worker = hung
            words = diagnose_hang(job, worker)
            failure = Failure(reason=words.reason, advice=words.advice, worker=worker)
            stop_failed(tx, deps, job, failure, ExitCause.HUNG)

    for job in placed:
        if job.spec.hang_timeout is None:
            continue
        if deps.db.read(partial(_find_hung, job_id=job.id, now=now)) is not None:
            deps.db.write(partial(stop, job_id=job.id))


def _find_hung(tx: Tx, job_id: str, now: datetime) -> tuple[Job, str] | None:
    """The job and the worker that is silent for the longest time, if all workers are silent for too
    long and the job is not being stopped for that yet."""
    job = jobs.get_job(tx, job_id)
    if job is None or job.state is not JobState.RUNNING or job.spec.hang_timeout is None:
        return None
    attempt = current_attempt(tx, job)
    if attempt is None or (job.failure is not None and job.failure.reason.code == HUNG):
        return None
    uses = live_usage.of_attempt(tx, job.id, job.attempt)
    live = [replica for replica in attempt.replicas if not replica.over]
    limit = job.spec.hang_timeout
    if not live or not all(_is_silent(uses.get(replica.id), limit, now) for replica in live):
        return None
    return job, min(live, key=lambda one: (uses[one.id].quiet_since, one.rank)).worker


def _is_silent(use: Use | None, limit: timedelta, now: datetime) -> bool:
    """By the last report of its agent, which is extrapolated for a moment only: without contact to
    the agent the replica may have gone on."""
    if use is None or use.quiet_since >= use.at:
        return False
    counted = min(now, use.at + min(LONGEST_TRUST, limit / 2))
    return counted - use.quiet_since >= limit
