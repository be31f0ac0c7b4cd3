"""Declares agents lost that were silent for too long, and their replicas with them.

How long each was silent is counted by `server/loops/reconcile`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from paddlecloud.backends.base import AgentState
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, attempts, jobs
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.jobs.job import Attempt, Replica
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.agents.reports import last_bytes
from paddlecloud.server.services.jobs.settle import current_attempt, settle
from paddlecloud.server.services.placement import release

log = logging.getLogger(__name__)


def lose_silent(
    deps: Deps,
    live: Sequence[Attempt],
    silent: Mapping[str, float],
    contacts: Mapping[str, datetime],
) -> None:
    """Lose what runs on the nodes whose agents are `silent`, in seconds, for longer than their pool
    allows; `contacts` are their last ones."""
    pools = {replica.node: attempt.pool for attempt in live for replica in attempt.replicas}
    for node, seconds in silent.items():
        own = getattr(deps.backends.get(pools[node]), "lost_after", None)
        if seconds > (own or deps.settings.running.lost_after).total_seconds():
            log.warning("no contact with agent %s for %.0f s: replicas lost", node, seconds)
            mark_lost(deps, node, contacts.get(node))


def mark_lost(deps: Deps, node: str, seen_at: datetime | None = None) -> None:
    """Lose everything that runs on this node. `seen_at` is the last contact with its agent; without
    it, the stored one."""
    now = deps.clock()
    known = deps.db.read(lambda tx: agents.get_agent(tx, node)) if seen_at is None else None
    contact = known.seen_at if known is not None else seen_at or now
    live = [a for a in deps.db.read(attempts.live_attempts) if _running_on(a, node)]
    tails = {attempt.job_id: last_bytes(deps, attempt) for attempt in live}

    def lose(tx: Tx, job_id: str) -> None:
        job = jobs.get_job(tx, job_id)
        attempt = current_attempt(tx, job) if job is not None else None
        if job is not None and attempt is not None:
            release.lose(tx, attempt, _running_on(attempt, node))
            settle(tx, deps, job, now=now, tails=tails[job_id])

    if any(_is_up(deps, attempt) for attempt in live):
        # The agent runs but is silent, so nothing may be placed there. Where it is gone, the next
        # placement starts another one.
        deps.db.write(lambda tx: agents.give_up(tx, node, contact))
        deps.caches.machines.clear()
    for attempt in live:
        deps.db.write(partial(lose, job_id=attempt.job_id))


def _is_up(deps: Deps, attempt: Attempt) -> bool:
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        return False
    try:
        return backend.status(release.handle_of(backend, attempt)).state is AgentState.UP
    except (PaddleCloudError, OSError):
        return True


def _running_on(attempt: Attempt, node: str) -> list[Replica]:
    return [replica for replica in attempt.replicas if replica.node == node and not replica.over]
