"""Reads what the scheduler decides on: machines, what runs, who waits, shares and quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs, usage
from paddlecloud.model.errors import Refused
from paddlecloud.model.jobs.job import NOTHING, Job, Reason, Resources
from paddlecloud.model.policy.admission import Nodes, seating
from paddlecloud.model.policy.pool import Node, Pool
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import (
    Allowance,
    NodeView,
    PoolView,
    Rules,
    RunningJob,
    View,
    WaitingJob,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.placement import isolation
from paddlecloud.server.services.user_buckets import logs

MAX_NEWCOMERS = 256
"""Jobs that are planned for the first time in one round."""
REFUSED, REFUSED_AGAIN = "queue_pool_refused", "queue_pool_refused_again"
LOGS_ASIDE = Reason(code="queue_logs_aside")
ASIDE_PAUSE = timedelta(seconds=2)
"""Pause before it is checked again whether log files in a bucket were moved aside."""
Frame = tuple[Mapping[str, tuple[Node, ...]], tuple[Pool, ...]]
"""The machines by pool, and the pools that accept jobs."""


def read_view(deps: Deps, now: datetime) -> tuple[View, dict[str, Job]]:
    """What the scheduler decides on: all that runs and the first `window` waiting jobs of each
    owner; and these jobs by id."""
    nodes, closed = deps.nodes(), deps.unschedulable()
    usable = {name: tuple(n for n in own if n.id not in closed) for name, own in nodes.items()}
    settings = deps.settings.scheduling

    def read(tx: Tx) -> tuple[tuple[PoolView, ...], list[Job], list[RunningJob], _Shares]:
        pools = _pool_views(deps.pools, usable, attempts.used_on_nodes(tx))
        found = jobs.waiting_jobs(tx, per_owner=settings.window)
        left = quota.allowances(deps, tx, {job.owner for job in found}, now)
        running = [_running(each) for each in attempts.placements(tx, list(deps.pools))]
        return pools, found, running, (_shares(deps, tx, now), left)

    pools, waiting, running, (used, left) = deps.db.read(read)
    frame = nodes, isolation.open_pools(deps)
    view = View(
        now=now,
        pools=pools,
        waiting=tuple(to_waiting(deps, waiting, now, frame)),
        usage=used,
        allowances=left,
        running=tuple(running),
        rules=Rules(
            schedule_timeout=settings.schedule_timeout,
            reserve_after=settings.reserve_after,
            preempt_after=settings.preempt_after,
            min_run=settings.min_run,
            age_after=settings.age_after,
        ),
    )
    return view, {job.id: job for job in waiting}


def to_waiting(
    deps: Deps, jobs_: Sequence[Job], now: datetime, frame: Frame | None = None
) -> list[WaitingJob]:
    """Waiting jobs as the scheduler gets them. `frame`: if the caller has read it just now."""
    nodes, pools = frame or (deps.nodes(), isolation.open_pools(deps))
    elastic = {name for name, own in nodes.items() if any(node.exclusive for node in own)}
    by_owner = {job.owner: (pools, nodes) for job in jobs_}
    for owner in by_owner if elastic else ():
        own = deps.nodes(owner)
        usable = tuple(pool for pool in pools if pool.name not in elastic or own[pool.name])
        by_owner[owner] = usable, {**nodes, **{name: own[name] for name in elastic}}
    return [_pausing(deps, job, _waiting(job, *by_owner[job.owner], now), now) for job in jobs_]


def waits_since(job: Job, now: datetime) -> datetime:
    """Since when it waits, without the time that it waited for its owner's quota."""
    stood = now - job.quota_since if job.quota_since is not None else timedelta(0)
    return job.waiting_since + max(stood, timedelta(0))


def _shares(deps: Deps, tx: Tx, now: datetime) -> dict[str, float]:
    """What counts against each user in the order of the queue, in CPU-equivalents: what is in use
    now and, on a team server, what was on average lately."""
    used = {owner: weight(taken) for owner, taken in attempts.used_by_owner(tx).items()}
    if not deps.settings.team:
        return used
    half_life = deps.settings.scheduling.share_half_life
    recent = deps.caches.decayed_usage.load(
        now, lambda: usage.decayed_usage(tx, now, half_life, weight)
    )
    return {owner: used.get(owner, 0.0) + recent.get(owner, 0.0) for owner in used.keys() | recent}


def _pool_views(
    pools: Mapping[str, Pool], nodes: Nodes, used: Mapping[str, Resources]
) -> tuple[PoolView, ...]:
    return tuple(
        PoolView(
            pool=pools[name],
            nodes=tuple(
                NodeView(
                    id=node.id,
                    host=node.host,
                    total=node.total,
                    free=node.total - used.get(node.id, NOTHING),
                    exclusive=node.exclusive,
                    labels=node.labels,
                )
                for node in machines
            ),
        )
        for name, machines in nodes.items()
    )


def _waiting(job: Job, pools: Sequence[Pool], nodes: Nodes, now: datetime) -> WaitingJob:
    try:
        theirs = [pool for pool in pools if pool.serves(job.owner)]
        open_to_it, groups = seating(job.spec, theirs, nodes)
        asked = [pool.name for pool in open_to_it]
    except Refused:  # the pools it was admitted for are gone: it waits for them to come back
        asked, groups = [], job.spec.groups
    reason = job.reason
    if reason is not None and reason.code in (REFUSED, REFUSED_AGAIN):
        asked.sort(key=lambda name: name == reason.params["pool"])
    return WaitingJob(
        id=job.id,
        owner=job.owner,
        require=job.spec.require,
        priority=job.spec.priority,
        number=job.number,
        waiting_since=waits_since(job, now),
        state=job.state,
        groups=groups,
        job_type=job.spec.job_type,
        pools=tuple(asked),
        held_reason=job.reason,
        paused=job.quota_since is not None,
    )


def _pausing(deps: Deps, job: Job, waiting: WaitingJob, now: datetime) -> WaitingJob:
    """The same, with the pause before its next attempt."""
    if not logs.are_aside(deps, job):
        later = max(now + ASIDE_PAUSE, job.not_before or now)
        return replace(waiting, not_before=later, pause_reason=LOGS_ASIDE)
    if job.not_before is None:
        return waiting
    at = deps.settings.format_time(job.not_before, "seconds")
    if job.reason is not None and job.reason.code in (REFUSED, REFUSED_AGAIN):
        reason = Reason(code=REFUSED_AGAIN, params={"pool": job.reason.params["pool"], "at": at})
    else:
        count, most = job.retried, job.spec.max_retries
        reason = Reason(code="queue_retry", params={"retry": count, "most": most, "at": at})
    return replace(waiting, not_before=job.not_before, pause_reason=reason)


def _running(holder: attempts.Placement) -> RunningJob:
    return RunningJob(
        id=holder.job_id,
        owner=holder.owner,
        priority=holder.priority,
        pool=holder.pool,
        slots=holder.slots,
        since=holder.since,
        stopping=holder.stopping,
    )


_Shares = tuple[dict[str, float], dict[str, Allowance]]
"""What each owner uses, and what each owner's plan leaves."""
