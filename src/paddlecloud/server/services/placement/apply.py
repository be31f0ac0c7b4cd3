"""Carries out what the scheduler decided: places jobs, holds them, gives up, preempts.

The chosen pool, the handle by which the attempt is found there, and the replicas' orders are saved
first, in one transaction; only then is the backend called. After a crash in between the reconcile
loop calls the same backend again: `start` is idempotent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, counters, jobs
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.model.jobs.job import Attempt, ExitCause, Failure, Job, Reason, with_changes
from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE
from paddlecloud.model.jobs.states import WAITING, Event, JobState
from paddlecloud.scheduler.view import Decision, GiveUp, Hold, Place, Preempt
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.agents import join
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.notifications import notify
from paddlecloud.server.services.placement._allocate import NotAvailable, allocate_replicas
from paddlecloud.server.services.placement.planner_input import REFUSED, waits_since
from paddlecloud.server.services.placement.release import lose
from paddlecloud.server.services.user_buckets import logs

log = logging.getLogger(__name__)
Check = Callable[[Tx, Sequence[Decision]], Sequence[Decision]]
"""Drops decisions that do not agree with what a transaction sees."""


def apply(
    deps: Deps,
    decisions: Sequence[Decision],
    known: dict[str, Job],
    now: datetime,
    check: Check | None = None,
) -> int:
    """Carry out decisions; returns how many jobs were placed in a pool that accepted them.

    A decision about a job that has changed since is dropped. `check` drops others, by what the
    transaction sees.
    """
    if not decisions:
        return 0
    ready = [decision for decision in decisions if _ready(deps, decision, known)]
    # What runs on this machine does not survive a loss of power, so its row need not either.
    durable = any(isinstance(d, Place) and deps.pools[d.pool].remote for d in ready)

    def write(tx: Tx) -> list[Attempt]:
        return _write(tx, deps, check(tx, ready) if check else ready, known, now)

    placed = deps.db.write(write, durable=durable)
    for attempt in placed:
        waited = now - known[attempt.job_id].waiting_since
        deps.metrics.placed(attempt.pool, waited.total_seconds())
    return start(deps, placed)


def _ready(deps: Deps, decision: Decision, known: dict[str, Job]) -> bool:
    """False while the logs of the last attempt cannot be moved aside, as on a full disk."""
    if not isinstance(decision, Place) or known[decision.job_id].attempt == 0:
        return True
    job = known[decision.job_id]
    try:
        job_files.set_logs_aside(deps, job)
        return logs.are_aside(deps, job)
    except (PaddleCloudError, OSError) as error:
        log.warning("the next attempt of job %s is delayed: %s", job.id, error)
        return False


def start(deps: Deps, placed: Sequence[Attempt]) -> int:
    """Start placed attempts in their backends; returns how many were not refused. A refused job
    waits again, and other pools are tried first."""
    refused = 0
    for attempt in placed:
        if not start_attempt(deps, attempt):
            first = deps.settings.scheduling.retry_pause
            deps.db.write(partial(_refused, attempt=attempt, now=deps.clock(), first=first))
            refused += 1
    return len(placed) - refused


def start_attempt(deps: Deps, attempt: Attempt) -> bool:
    """Call the backend; False: it refused. What it cannot start yet, the reconcile loop retries."""
    try:
        backend = deps.backends[attempt.pool]
        needed = backend.needs_credentials
        backend.start(attempt, join.credentials_for(deps, attempt) if needed else None)
    except Retry as error:
        log.warning("pool %s cannot start %s yet: %s", attempt.pool, attempt.job_id, error)
    except (PaddleCloudError, OSError) as error:
        log.error("pool %s refused %s: %s", attempt.pool, attempt.job_id, error)
        return False
    return True


def _write(
    tx: Tx, deps: Deps, decisions: Sequence[Decision], known: dict[str, Job], now: datetime
) -> list[Attempt]:
    places = [each for each in decisions if isinstance(each, Place)]
    ledger = quota.Ledger(deps, tx, {known[each.job_id].owner for each in places}, now)
    gpus = _gpus_by_node(deps, places, known)
    fences = counters.next_numbers(tx, "fence", len(places))
    orders = counters.next_numbers(tx, "order", sum(len(each.slots) for each in places))
    placed: list[Attempt] = []
    new: dict[str, tuple[Reason, list[Job]]] = {}
    about = [known[each.job_id] for each in decisions if not isinstance(each, Preempt)]
    current = jobs.unchanged(tx, about)
    for decision in decisions:
        if isinstance(decision, Preempt):
            _preempt(tx, deps, decision)
            continue
        job = known[decision.job_id]
        if job.id not in current:
            log.debug("job %s changed before its decision was applied", job.id)
            continue
        current.discard(job.id)
        match decision:
            case Place(pool=pool) if ledger.allows(job, pool):
                limited = replace(job, time_limit=ledger.time_limit(job, pool))
                attempt = _place(tx, deps, limited, decision, now, gpus, next(fences))
                if attempt is not None:
                    attempts.insert_attempt(tx, attempt, orders=orders)
                    placed.append(attempt)
                    ledger.count(job, pool)
            case Hold(reason=reason) if job.state is JobState.SCHEDULE:
                new.setdefault(f"{job.version} {reason}", (reason, []))[1].append(job)
            case Hold(reason=reason):
                _hold(tx, job, reason, now)
            case GiveUp(reason=reason):
                failure, event = Failure(reason=reason), Event.WAITED_TOO_LONG
                final = jobs.advance(tx, job, event, now=now, sure=True, failure=failure)
                notify.on_change(tx, deps, job, final, now)
    for reason, held in new.values():
        jobs.hold_all(tx, held, now, reason, now if _by_quota(reason) else None)
    return placed


def _gpus_by_node(deps: Deps, places: Sequence[Place], known: Mapping[str, Job]) -> dict[str, int]:
    """How many GPUs each machine has; empty if no placement depends on it."""
    needed = any(
        known[each.job_id].spec.elastic is not None or any(slot.asks.gpu for slot in each.slots)
        for each in places
    )
    nodes = deps.nodes().values() if needed else ()
    return {node.id: node.total.gpu for machines in nodes for node in machines}


def _preempt(tx: Tx, deps: Deps, decision: Preempt) -> None:
    """Store why a job of a lower class is stopped, and order its end. One that has ended or was
    killed since is left alone."""
    job = jobs.get_job(tx, decision.job_id)
    if job is None or job.pool is None or job.state not in (JobState.SCHEDULE, JobState.RUNNING):
        return
    _save(tx, job, replace(job, failure=Failure(reason=decision.reason)))
    grace = deps.settings.running.grace
    set_order(tx, job.id, job.attempt, Want.STOP, grace=grace, cause=ExitCause.PREEMPTED)


def _hold(tx: Tx, job: Job, reason: Reason, now: datetime) -> None:
    """The job goes on waiting; while that is for its owner's quota, its clock stands still."""
    if job.state is JobState.SCHEDULE:
        jobs.hold_all(tx, [job], now, reason)
    elif _by_quota(reason):
        _save(tx, job, replace(job, reason=reason, quota_since=job.quota_since or now))
    else:
        _save(tx, job, replace(_counted_on(job, now), reason=reason))


def _by_quota(reason: Reason) -> bool:
    return reason.code.startswith("queue_quota_")


def _counted_on(job: Job, now: datetime) -> Job:
    """The job without the time that it waited for its owner's quota."""
    if job.quota_since is None:
        return job
    since = waits_since(job, now)
    return replace(job, waiting_since=since, quota_since=None)


def _place(
    tx: Tx,
    deps: Deps,
    job: Job,
    decision: Place,
    now: datetime,
    gpus: Mapping[str, int],
    fence: int,
) -> Attempt | None:
    """The attempt of a job that is placed; None if a port or GPU is missing, so that it waits."""
    pool, number = decision.pool, job.attempt + 1
    try:
        replicas = allocate_replicas(tx, job, number, decision.slots, gpus)
    except NotAvailable as missing:
        if job.reason != missing.reason:
            _hold(tx, job, missing.reason, now)
        return None
    job = _counted_on(job, now)
    reason = Reason(code="queue_starting", params={"pool": pool})
    if job.state is JobState.QUEUE:
        event = Event.CAPACITY_FOUND
        jobs.advance(tx, job, event, now=now, reason=reason, sure=True, pool=pool, attempt=number)
    else:
        _save(tx, job, replace(job, reason=reason, pool=pool, attempt=number))
    attempt = Attempt(
        job_id=job.id,
        number=number,
        fence=fence,
        pool=pool,
        replicas=replicas,
        created_at=now,
    )
    return with_changes(attempt, handle=deps.backends[pool].handle(attempt))


def _save(tx: Tx, job: Job, changed: Job) -> None:
    """Save a change that is no change of state, and notify. The job was read in this write, or
    found unchanged in it."""
    jobs.save_job(tx, changed, expected_version=job.version, sure=True)
    tx.notify("job", job.id)


def _refused(tx: Tx, attempt: Attempt, now: datetime, first: timedelta) -> None:
    """End an attempt that its pool refused to start; the job waits again.

    Other pools are tried at once. Before a pool that refused the job twice is tried again, the job
    pauses, twice as long each time, as before a retry.
    """
    job = jobs.get_job(tx, attempt.job_id)
    if job is None or job.attempt != attempt.number or job.state not in WAITING:
        return
    event = Event.POOL_REFUSED
    lose(tx, attempt, attempt.replicas)
    attempts.end_attempt(tx, job.id, attempt.number, now, event)
    reason = Reason(code=REFUSED, params={"pool": attempt.pool})
    times = attempts.repeated_outcomes(tx, job.id, attempt.pool, event)
    pause = min(first * 2 ** min(times - 2, 20), LONGEST_PAUSE) if times > 1 else timedelta(0)
    begins = now + pause if pause else None
    jobs.advance(tx, job, event, now=now, reason=reason, pool=None, not_before=begins)
