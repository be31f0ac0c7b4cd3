"""Repairs what no message will: agents that vanished, starts cut short, ends nobody reported.

An agent counts as lost only after this loop itself has watched it be silent for long enough: a
laptop that slept for a night must not wake to find its jobs given up.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paddlecloud.backends.base import Presence
from paddlecloud.db import agents as agent_rows
from paddlecloud.db import attempts, jobs
from paddlecloud.db.base import Tx
from paddlecloud.model.job import Attempt, ExitCause
from paddlecloud.model.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import agents, placement
from paddlecloud.server.services import jobs as job_service

log = logging.getLogger(__name__)
LONGEST_STEP = 5.0
MONITOR_LATE = timedelta(seconds=30)


@dataclass
class Watch:
    """Seconds of silence of each node, as watched by this process."""

    silent: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)

    def tick(self, deps: Deps, now: datetime) -> None:
        live = deps.db.read(attempts.live_attempts)
        for attempt in live:
            self._keep_agents(deps, attempt)
        self._lose_silent(deps, live, now)
        deps.db.write(lambda tx: _repair(tx, deps, now))

    def _keep_agents(self, deps: Deps, attempt: Attempt) -> None:
        """Ask the backend again where a start was cut short or an agent died."""
        backend = deps.backends.get(attempt.pool)
        if backend is None:
            return
        if attempt.handle is None or backend.look(attempt.handle).presence is not Presence.UP:
            placement.start(deps, attempt)

    def _lose_silent(self, deps: Deps, live: list[Attempt], now: datetime) -> None:
        step, self.last = min(time.monotonic() - self.last, LONGEST_STEP), time.monotonic()
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


def _repair(tx: Tx, deps: Deps, now: datetime) -> None:
    for job in jobs.placed_jobs(tx) + jobs.jobs_in_state(tx, JobState.KILLING):
        job_service.settle(tx, job, now=now)
    # The monitor beside a replica ends it in time; this is for the day when it does not.
    for job in jobs.overdue_running(tx, now - deps.settings.running.grace - MONITOR_LATE):
        job_service.stop_replicas(tx, deps, job, ExitCause.WALL_TIME)


LOOP = Loop(name="watch", tick=Watch().tick, every=timedelta(seconds=2))
