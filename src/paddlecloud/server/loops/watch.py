"""Repairs what no message will: agents that vanished, starts cut short, ends nobody reported, jobs
that do nothing any more; and lets go of what is over, once it is safe.

An agent counts as lost only after this loop itself has watched it be silent for long enough: a
laptop that slept for a night must not wake to find its jobs given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.backends.base import Presence
from paddlecloud.db import agents as agent_rows
from paddlecloud.db import attempts, jobs, live_usage, usage
from paddlecloud.db.base import Tx
from paddlecloud.db.live_usage import Use
from paddlecloud.model.elastic import judged
from paddlecloud.model.failure import HUNG, hung_words
from paddlecloud.model.failure import settle as implied
from paddlecloud.model.job import Attempt, ExitCause, Failure, Job
from paddlecloud.model.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import agents, placement, quota
from paddlecloud.server.services import jobs as job_service

log = logging.getLogger(__name__)
LONGEST_STEP = 5.0
MONITOR_LATE = timedelta(seconds=30)
LONGEST_TRUST = timedelta(seconds=12)
"""An agent says at least every 10 seconds what its replicas use."""


@dataclass
class Watch:
    """What this process has watched: the silence of each node, and jumps of the clock."""

    silent: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)
    last_now: datetime | None = None
    jumped: timedelta = timedelta()
    """How far the clock ran ahead of the time that passed: a sleep, or somebody set it."""

    def tick(self, deps: Deps, now: datetime) -> None:
        live = deps.db.read(attempts.live_attempts)
        for attempt in live:
            self._keep_agents(deps, attempt)
        self._lose_silent(deps, live, now, min(self._step(deps, now), LONGEST_STEP))
        _end_hung(deps, now, _settle_all(deps, now))
        _end_spent(deps, now)
        _end_overdue(deps, now, self.jumped)
        placement.release_ended(deps)

    def _step(self, deps: Deps, now: datetime) -> float:
        """Seconds since the last tick."""
        passed, self.last = time.monotonic() - self.last, time.monotonic()
        ahead = now - (self.last_now or now) - timedelta(seconds=passed)
        if ahead.total_seconds() > LONGEST_STEP:
            self.jumped += ahead
            if not deps.db.shared:
                # Nothing ran for that time, so nobody's minutes were used. Machines of other
                # servers went on, and what ran there is not told apart.
                before = now - ahead
                deps.db.write(lambda tx: usage.shift_running(tx, ahead, before))
        self.last_now = now
        return passed

    def _keep_agents(self, deps: Deps, attempt: Attempt) -> None:
        """Ask the backend again where a start was cut short or an agent died."""
        backend = deps.backends.get(attempt.pool)
        if backend is None:
            return
        if attempt.handle is None or backend.look(attempt.handle).presence is not Presence.UP:
            placement.start(deps, [attempt])

    def _lose_silent(self, deps: Deps, live: list[Attempt], now: datetime, step: float) -> None:
        seen = {agent.id: agent.seen_at for agent in deps.db.read(agent_rows.list_agents)}
        fresh = now - 2 * agent_rows.SEEN_EVERY - timedelta(seconds=35)
        nodes = {replica.node for attempt in live for replica in attempt.replicas}
        self.silent = {
            node: self.silent.get(node, 0.0) + step
            for node in nodes
            if node not in seen or seen[node] < fresh
        }
        for node, seconds in self.silent.items():
            if seconds > deps.settings.running.lost_after.total_seconds():
                log.warning("agent %s was silent for %.0f s: its replicas are lost", node, seconds)
                agents.mark_lost(deps, node)


def _settle_all(deps: Deps, now: datetime) -> list[Job]:
    """Draw what was not drawn. Nearly always there is nothing, so the question is a read.

    Answers the jobs that run and may be found hung: all of them were looked at anyway.
    """
    unsettled, watched = deps.db.read(_unsettled)
    for job_id, attempt in unsettled:
        tails = agents.last_bytes(deps, attempt) if attempt is not None else {}
        deps.db.write(partial(_settle, deps=deps, job_id=job_id, now=now, tails=tails))
    return watched


def _unsettled(tx: Tx) -> tuple[list[tuple[str, Attempt | None]], list[Job]]:
    """The jobs whose replicas imply something that is not written down, and those that run with a
    limit to their silence."""
    running = {(attempt.job_id, attempt.number): attempt for attempt in attempts.live_attempts(tx)}
    placed = jobs.placed_jobs(tx)
    found: dict[str, Attempt | None] = {}
    for job in placed + jobs.jobs_in_state(tx, JobState.KILLING):
        attempt = judged(job, running.get((job.id, job.attempt)))
        if implied(job, attempt) is not None:
            found[job.id] = attempt
    return list(found.items()), [job for job in placed if job.spec.hang_timeout is not None]


def _settle(tx: Tx, deps: Deps, job_id: str, now: datetime, tails: Mapping[str, bytes]) -> None:
    job = jobs.get_job(tx, job_id)
    if job is not None:
        job_service.settle(tx, deps, job, now=now, tails=tails)


def _end_overdue(deps: Deps, now: datetime, jumped: timedelta) -> None:
    """The monitor beside a replica ends it in time; this is for the day when it does not.

    What the clock jumped was no running time.
    """
    late = now - deps.settings.running.grace - MONITOR_LATE - jumped
    overdue = deps.db.read(lambda tx: jobs.overdue_running(tx, late))
    if overdue:
        deps.db.write(lambda tx: _stop_all(tx, deps, overdue))


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


def _end_hung(deps: Deps, now: datetime, watched: Sequence[Job]) -> None:
    """Stop what does nothing any more; why is written first."""
    for job in watched:
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
