"""Repairs what no message will: lost agents, interrupted starts, unreported ends, hung jobs; and
releases ended attempts.

An agent counts as lost only after this loop itself has observed its silence for long enough: a
laptop that slept for a night must not lose its jobs. Wall times are counted the same way, whatever
is done to the clock (`_clock_jumps`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.backends.base import AgentState
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents as agent_rows
from paddlecloud.db.tables import attempts, jobs, usage
from paddlecloud.model.diagnosis.outcome import settle as implied
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.jobs.elastic import judged
from paddlecloud.model.jobs.job import Attempt, ExitCause, Failure, Job
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops._clock_jumps import Silences, Steps, Stopwatches
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.agents import lost_agents, reports
from paddlecloud.server.services.jobs import hang_detection
from paddlecloud.server.services.jobs.settle import settle, stop_failed, stop_replicas
from paddlecloud.server.services.placement import apply, release

log = logging.getLogger(__name__)
SUPERVISOR_LATE = timedelta(seconds=30)
REAP_EVERY = 60.0
"""Seconds. Leftovers cost money, but no request waits for them."""


@dataclass
class Watch:
    """The reconcile loop with what it has observed: elapsed time, and the silence of each node."""

    steps: Steps = field(default_factory=Steps)
    silences: Silences = field(default_factory=Silences)
    stopwatches: Stopwatches = field(default_factory=Stopwatches)
    reap_at: float = 0.0

    def tick(self, deps: Deps, now: datetime) -> None:
        passed, ahead = self.steps.advance(now, time.monotonic())
        if ahead and not deps.db.shared:
            # That was no running time. On a shared database machines of other servers went on.
            deps.db.write(lambda tx: usage.shift_running(tx, ahead, now, passed))
        live = deps.db.read(attempts.live_attempts)
        for attempt in live:
            if not attempt.over:  # else it is only to be settled
                _keep_agents(deps, attempt, now)
        self._lose_silent(deps, live, now, passed)
        placed = _settle_all(deps, now)
        hang_detection.stop_hung(deps, now, placed)
        _end_spent(deps, now)
        self._end_overdue(deps, placed, now, passed)
        if self.steps.seconds >= self.reap_at:
            self.reap_at = self.steps.seconds + REAP_EVERY
            release.reap(deps)
        # Last: it waits for the disk, and fails if that is full.
        release.release_ended(deps)

    def _lose_silent(
        self, deps: Deps, live: list[Attempt], now: datetime, passed: timedelta
    ) -> None:
        contacts = {agent.id: agent.seen_at for agent in deps.db.read(agent_rows.list_agents)}
        nodes = {replica.node for attempt in live for replica in attempt.replicas}
        silent = self.silences.advance(nodes, contacts, now, passed.total_seconds())
        lost_agents.lose_silent(deps, live, silent, contacts)

    def _end_overdue(
        self, deps: Deps, placed: Sequence[Job], now: datetime, passed: timedelta
    ) -> None:
        """Stop what the supervisor of a replica should have stopped at its wall time."""
        limited = {
            (job.id, job.attempt): job
            for job in placed
            if job.state is JobState.RUNNING and job.running_since and job.time_left is not None
        }
        since = {run: job.running_since or now for run, job in limited.items()}
        ran = self.stopwatches.advance(since, now, passed)
        late = deps.settings.running.grace + SUPERVISOR_LATE
        overdue = [
            job for run, job in limited.items() if ran[run] >= (job.time_left or timedelta()) + late
        ]

        def stop(tx: Tx) -> None:
            for job in overdue:
                stop_replicas(tx, deps, job, ExitCause.WALL_TIME)

        if overdue:
            deps.db.write(stop)


def _keep_agents(deps: Deps, attempt: Attempt, now: datetime) -> None:
    """Start an attempt again whose start was interrupted or whose agent died; if all its replicas
    are being stopped, end it instead."""
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        return
    try:
        status = backend.status(release.handle_of(backend, attempt))
    except (PaddleCloudError, OSError) as error:
        log.warning("pool %s has no status of %s now: %s", attempt.pool, attempt.job_id, error)
        return
    if status.state is AgentState.GONE and deps.db.read(partial(_ends_anyway, attempt=attempt)):
        deps.db.write(partial(_end_unmade, deps=deps, attempt=attempt, now=now))
    elif status.state is not AgentState.UP:
        apply.start(deps, [attempt])


def _ends_anyway(tx: Tx, attempt: Attempt) -> bool:
    left = {replica.id for replica in attempt.replicas if not replica.over}
    return left <= attempts.stopping_replicas(tx, attempt.job_id, attempt.number)


def _end_unmade(tx: Tx, deps: Deps, attempt: Attempt, now: datetime) -> None:
    job = jobs.get_job(tx, attempt.job_id)
    if job is None or job.attempt != attempt.number or not _ends_anyway(tx, attempt):
        return
    release.lose(tx, attempt, [one for one in attempt.replicas if not one.over])
    settle(tx, deps, job, now=now)


def _settle_all(deps: Deps, now: datetime) -> list[Job]:
    """Settle jobs whose replicas imply something that is not stored yet; returns all placed jobs.
    There is nearly always nothing to settle, so that is found out by a read."""

    def settle_one(tx: Tx, job_id: str, tails: Mapping[str, bytes]) -> None:
        job = jobs.get_job(tx, job_id)
        if job is not None:
            settle(tx, deps, job, now=now, tails=tails)

    unsettled, placed = deps.db.read(_unsettled)
    for job_id, attempt in unsettled:
        tails = reports.last_bytes(deps, attempt) if attempt is not None else {}
        deps.db.write(partial(settle_one, job_id=job_id, tails=tails))
    return placed


def _unsettled(tx: Tx) -> tuple[list[tuple[str, Attempt | None]], list[Job]]:
    """Jobs whose replicas imply something that is not stored yet, and all placed jobs."""
    running = {(attempt.job_id, attempt.number): attempt for attempt in attempts.live_attempts(tx)}
    placed = jobs.placed_jobs(tx)
    found: dict[str, Attempt | None] = {}
    for job in placed + jobs.jobs_in_state(tx, JobState.KILLING):
        attempt = judged(job, running.get((job.id, job.attempt)))
        if implied(job, attempt) is not None:
            found[job.id] = attempt
    return list(found.items()), placed


def _end_spent(deps: Deps, now: datetime) -> None:
    """Stop jobs whose owner has used up the minutes of the day; the reason is stored first."""

    def stop(tx: Tx) -> None:
        for job, failure in _over_minutes(tx, deps, now):
            stop_failed(tx, deps, job, failure, ExitCause.WALL_TIME)

    if deps.db.read(lambda tx: _over_minutes(tx, deps, now)):
        deps.db.write(stop)


def _over_minutes(tx: Tx, deps: Deps, now: datetime) -> list[tuple[Job, Failure]]:
    """Running jobs that have to end for this and are not being stopped yet."""
    found = []
    for run, failure in quota.spent(deps, tx, now):
        job = jobs.get_job(tx, run.job_id)
        runs = job is not None and job.state is JobState.RUNNING and job.attempt == run.attempt
        if runs and job is not None and not quota.is_over_quota(job):
            found.append((job, failure))
    return found


LOOP = Loop(name="reconcile", tick=Watch().tick, every=timedelta(seconds=2))
