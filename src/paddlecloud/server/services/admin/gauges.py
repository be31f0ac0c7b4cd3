"""The gauges of `/metrics`, measured for each scrape: jobs, agents, deliveries, use by user.

All come from the database, so on a shared one every server reports the same values: take the
maximum over servers, never the sum.
"""

from __future__ import annotations

from collections import Counter

from paddlecloud import __version__
from paddlecloud.db.tables import agents, jobs, outbox
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.metrics import Gauge
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.admin.health import AGENT_FRESH

MOST = 1000
"""Series of one gauge that has a label for each agent or user."""
_OTHER_POOL = "other"


def measure(deps: Deps, only: str | None) -> list[Gauge]:
    """`only`: the user whose figures are shown; None: those of all users."""
    return [
        Gauge(
            name="paddlecloud_server_info",
            help="1, with the version of this server",
            labels=("version",),
            values={(__version__,): 1.0},
        ),
        _jobs(deps),
        _outbox(deps),
        *_agents(deps),
        *_quota(deps, only),
    ]


def _jobs(deps: Deps) -> Gauge:
    counts = deps.db.read(jobs.count_by_state)
    return Gauge(
        name="paddlecloud_jobs",
        help="Jobs by state",
        labels=("state",),
        values={(state.value,): float(counts.get(state, 0)) for state in JobState},
    )


def _outbox(deps: Deps) -> Gauge:
    waiting = deps.db.read(outbox.count_waiting)
    return Gauge(
        name="paddlecloud_outbox_waiting",
        help="Mails and webhooks that are still to be delivered",
        labels=("kind",),
        values={(kind,): float(waiting.get(kind, 0)) for kind in (outbox.MAIL, outbox.WEBHOOK)},
    )


def _agents(deps: Deps) -> tuple[Gauge, Gauge]:
    now = deps.clock()
    known = deps.db.read(agents.list_agents)
    counts: Counter[tuple[str, str]] = Counter()
    for agent in known:
        # Agents from before they had a pool have their own name in its place.
        pool = agent.pool if agent.pool in deps.pools else _OTHER_POOL
        counts[pool, "connected" if now - agent.seen_at <= AGENT_FRESH else "silent"] += 1
    pools = sorted({*deps.pools, *(pool for pool, _ in counts)})
    by_state = Gauge(
        name="paddlecloud_agents",
        help="Agents by pool: connected, or silent for longer than two long polls",
        labels=("pool", "state"),
        values={
            (pool, state): float(counts[pool, state])
            for pool in pools
            for state in ("connected", "silent")
        },
    )
    longest = sorted(known, key=lambda agent: agent.seen_at)[:MOST]
    silent = Gauge(
        name="paddlecloud_agent_silent_seconds",
        help=f"Time since the last contact, of the {MOST} agents that are silent for longest",
        labels=("agent",),
        values={(agent.id,): (now - agent.seen_at).total_seconds() for agent in longest},
    )
    return by_state, silent


def _quota(deps: Deps, only: str | None) -> list[Gauge]:
    used = list(quota.in_use(deps, only).items())[:MOST]
    figures = {
        "running_jobs": "Running jobs that count against a quota, by user",
        "minutes_today": "Minutes that count against today's quota, by user",
        "cpu": "CPUs in use that count against a quota, by user",
        "gpu": "GPUs in use that count against a quota, by user",
    }
    return [
        Gauge(
            name=f"paddlecloud_quota_{figure}",
            help=help_text,
            labels=("user",),
            values={(owner,): values[figure] for owner, values in used},
        )
        for figure, help_text in figures.items()
    ]
