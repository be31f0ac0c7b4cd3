"""Repairs what no message will: agents that vanished, starts cut short, ends nobody reported, jobs
that do nothing any more; and lets go of what is over, once it is safe.

An agent counts as lost only after this loop itself has watched it be silent for long enough: a
laptop that slept for a night must not wake to find its jobs given up. Wall times are counted the
same way (`passing.py`), whatever is done to the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.backends.base import Presence
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents as agent_rows
from paddlecloud.db.tables import attempts, jobs, live_usage, usage
from paddlecloud.db.tables.live_usage import Use
from paddlecloud.model.diagnosis.outcome import HUNG, hung_words
from paddlecloud.model.diagnosis.outcome import settle as implied
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.jobs.elastic import judged
from paddlecloud.model.jobs.job import Attempt, ExitCause, Failure, Job
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.clock_jumps import Silences, Steps, Stopwatches
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.agents import orders
from paddlecloud.server.services.jobs import actions as job_service
from paddlecloud.server.services.placement import apply

log = logging.getLogger(__name__)
MONITOR_LATE = timedelta(seconds=30)
LONGEST_TRUST = timedelta(seconds=12)
"""An agent says at least every 10 seconds what its replicas use."""
REAP_EVERY = 60.0
"""Seconds. What there is to be found costs money, but nobody waits for it."""


@dataclass
class Watch:
    """What this process has watched: the time that passed, and the silence of each node."""

    steps: Steps = field(default_factory=Steps)
    silences: Silences = field(default_factory=Silences)
    stopwatches: Stopwatches = field(default_factory=Stopwatches)
    reap_at: float = 0.0

    def tick(self, deps: Deps, now: datetime) -> None:
        passed, ahead = self.steps.look(now, time.monotonic())
        if ahead and not deps.db.shared:
            # That was no running time. Machines of other servers went on, and what ran there is
            # not told apart.
            deps.db.write(lambda tx: usage.shift_running(tx, ahead, now, passed))
        live = deps.db.read(attempts.live_attempts)
        for attempt in live:
            _keep_agents(deps, attempt, now)
        self._lose_silent(deps, live, now, passed)
        placed = _settle_all(deps, now)
        _end_hung(deps, now, placed)
        _end_spent(deps, now)
        self._end_overdue(deps, placed, now, passed)
        if self.steps.seconds >= self.reap_at:
            self.reap_at = self.steps.seconds + REAP_EVERY
            apply.reap(deps)
        # Last: it waits for the disk, and fails where that takes nothing.
        apply.release_ended(deps)

    def _lose_silent(
        self, deps: Deps, live: list[Attempt], now: datetime, passed: timedelta
    ) -> None:
        heard = {agent.id: agent.seen_at for agent in deps.db.read(agent_rows.list_agents)}
        nodes = {replica.node for attempt in live for replica in attempt.replicas}
        for node, seconds in self.silences.look(nodes, heard, now, passed.total_seconds()).items():
            if seconds > deps.settings.running.lost_after.total_seconds():
                log.warning("agent %s was silent for %.0f s: its replicas are lost", node, seconds)
                orders.mark_lost(deps, node, heard.get(node))

    def _end_overdue(
        self, deps: Deps, placed: Sequence[Job], now: datetime, passed: timedelta
    ) -> None:
        """The monitor beside a replica ends it in time; this is for the day when it does not."""
        limited = {
            (job.id, job.attempt): job
            for job in placed
            if job.state is JobState.RUNNING and job.running_since and job.time_left is not None
        }
        since = {run: job.running_since or now for run, job in limited.items()}
        ran = self.stopwatches.look(since, now, passed)
        late = deps.settings.running.grace + MONITOR_LATE
        overdue = [job for run, job in limited.items() if ran[run] >= _left(job) + late]
        if overdue:
            deps.db.write(lambda tx: _stop_all(tx, deps, overdue))


def _keep_agents(deps: Deps, attempt: Attempt, now: datetime) -> None:
    """Ask the backend again where a start was cut short or an agent died.

    Where nothing exists and everybody is told to end, nothing has to be made for that.
    """
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        return
    try:
        seen = backend.look(apply.handle_of(backend, attempt))
    except (PaddleCloudError, OSError) as error:
        log.warning("pool %s cannot tell of %s now: %s", attempt.pool, attempt.job_id, error)
        return
    if seen.presence is Presence.GONE and deps.db.read(partial(_ends_anyway, attempt=attempt)):
        deps.db.write(partial(_end_unmade, deps=deps, attempt=attempt, now=now))
    elif seen.presence is not Presence.UP:
        apply.start(deps, [attempt])


def _ends_anyway(tx: Tx, attempt: Attempt) -> bool:
    left = {replica.id for replica in attempt.replicas if not replica.over}
    return left <= attempts.leaving(tx, attempt.job_id, attempt.number)


def _end_unmade(tx: Tx, deps: Deps, attempt: Attempt, now: datetime) -> None:
    job = jobs.get_job(tx, attempt.job_id)
    if job is None or job.attempt != attempt.number or not _ends_anyway(tx, attempt):
        return
    apply.lose(tx, attempt, [one for one in attempt.replicas if not one.over])
    job_service.settle(tx, deps, job, now=now)


def _left(job: Job) -> timedelta:
    """What a job with a limit may run in its current attempt."""
    return job.time_left or timedelta(0)


def _settle_all(deps: Deps, now: datetime) -> list[Job]:
    """Draw what was not drawn. Nearly always there is nothing, so the question is a read.

    Answers the jobs that had a place: all of them were looked at anyway.
    """
    unsettled, placed = deps.db.read(_unsettled)
    for job_id, attempt in unsettled:
        tails = orders.last_bytes(deps, attempt) if attempt is not None else {}
        deps.db.write(partial(_settle, deps=deps, job_id=job_id, now=now, tails=tails))
    return placed


def _unsettled(tx: Tx) -> tuple[list[tuple[str, Attempt | None]], list[Job]]:
    """The jobs whose replicas imply something that is not written down, and all that have a
    place."""
    running = {(attempt.job_id, attempt.number): attempt for attempt in attempts.live_attempts(tx)}
    placed = jobs.placed_jobs(tx)
    found: dict[str, Attempt | None] = {}
    for job in placed + jobs.jobs_in_state(tx, JobState.KILLING):
        attempt = judged(job, running.get((job.id, job.attempt)))
        if implied(job, attempt) is not None:
            found[job.id] = attempt
    return list(found.items()), placed


def _settle(tx: Tx, deps: Deps, job_id: str, now: datetime, tails: Mapping[str, bytes]) -> None:
    job = jobs.get_job(tx, job_id)
    if job is not None:
        job_service.settle(tx, deps, job, now=now, tails=tails)


def _end_spent(deps: Deps, now: datetime) -> None:
    """Stop what runs on the minutes of a day that are used up; why is written first."""
    if deps.db.read(lambda tx: _untold(tx, deps, now)):
        deps.db.write(lambda tx: _stop_spent(tx, deps, now))


def _stop_spent(tx: Tx, deps: Deps, now: datetime) -> None:
    for job, failure in _untold(tx, deps, now):
        told = jobs.save_job(tx, replace(job, failure=failure), expected_version=job.version)
        tx.notify("job", job.id)
        job_service.stop_replicas(tx, deps, told, ExitCause.WALL_TIME)


def _untold(tx: Tx, deps: Deps, now: datetime) -> list[tuple[Job, Failure]]:
    """Jobs that have to end for this and have not been told so."""
    found = []
    for run, failure in quota.spent(deps, tx, now):
        job = jobs.get_job(tx, run.job_id)
        runs = job is not None and job.state is JobState.RUNNING and job.attempt == run.attempt
        if runs and job is not None and not quota.is_told(job):
            found.append((job, failure))
    return found


def _end_hung(deps: Deps, now: datetime, placed: Sequence[Job]) -> None:
    """Stop what does nothing any more; why is written first."""
    for job in placed:
        if job.spec.hang_timeout is None:
            continue
        if deps.db.read(partial(_silence, job_id=job.id, now=now)) is not None:
            deps.db.write(partial(_stop_hung, deps=deps, job_id=job.id, now=now))


def _stop_hung(tx: Tx, deps: Deps, job_id: str, now: datetime) -> None:
    found = _silence(tx, job_id, now)
    if found is None:
        return
    job, worker = found
    words = hung_words(job, worker)
    failure = Failure(reason=words.reason, advice=words.advice, worker=worker)
    told = jobs.save_job(tx, replace(job, failure=failure), expected_version=job.version)
    tx.notify("job", job.id)
    job_service.stop_replicas(tx, deps, told, ExitCause.HUNG)


def _silence(tx: Tx, job_id: str, now: datetime) -> tuple[Job, str] | None:
    """The job and its worker that is silent for the longest time, if all of it is silent for too
    long and that was not told yet."""
    job = jobs.get_job(tx, job_id)
    if job is None or job.state is not JobState.RUNNING or job.spec.hang_timeout is None:
        return None
    attempt = job_service.current_attempt(tx, job)
    if attempt is None or (job.failure is not None and job.failure.reason.code == HUNG):
        return None
    uses = live_usage.of_attempt(tx, job.id, job.attempt)
    live = [replica for replica in attempt.replicas if not replica.over]
    limit = job.spec.hang_timeout
    if not live or not all(_is_silent(uses.get(replica.id), limit, now) for replica in live):
        return None
    return job, min(live, key=lambda one: (uses[one.id].quiet_since, one.rank)).worker


def _is_silent(use: Use | None, limit: timedelta, now: datetime) -> bool:
    """By what its agent last said, which counts on for a moment only: an agent that is away tells
    nothing, and what it watched may have gone on."""
    if use is None or use.quiet_since >= use.at:
        return False
    counted = min(now, use.at + min(LONGEST_TRUST, limit / 2))
    return counted - use.quiet_since >= limit


def _stop_all(tx: Tx, deps: Deps, overdue: Sequence[Job]) -> None:
    for job in overdue:
        job_service.stop_replicas(tx, deps, job, ExitCause.WALL_TIME)


LOOP = Loop(name="watch", tick=Watch().tick, every=timedelta(seconds=2))
