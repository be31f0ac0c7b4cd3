"""Resizes elastic jobs: replaces failed trainers, removes trainers for waiting jobs, adds more.

Called only by the schedule loop, around its plan, so nothing else uses capacity at the same time.
Level-triggered: what a trainer's end implies is read from the replicas, and a crash between two
steps is repaired by the next tick.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, data_tasks, jobs
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.diagnosis.first_failure import exit_code
from paddlecloud.model.diagnosis.outcome import explain
from paddlecloud.model.jobs import elastic
from paddlecloud.model.jobs.job import (
    NOTHING,
    Attempt,
    ExitCause,
    Failure,
    Job,
    Reason,
    Replica,
    Resources,
    Role,
    with_changes,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.view import Slot, WaitingJob
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.agents import reports
from paddlecloud.server.services.jobs.settle import current_attempt, settle
from paddlecloud.server.services.placement import apply, planner_input
from paddlecloud.server.services.placement._allocate import NotAvailable, allocate_replicas

log = logging.getLogger(__name__)
WAITING_PER_OWNER = 4
"""Waiting jobs of each owner for which trainers are removed."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """An elastic job that was placed."""

    job: Job
    attempt: Attempt
    leaving: frozenset[str]
    """Replicas that are being stopped."""


@dataclass(frozen=True, kw_only=True)
class Grown:
    """An attempt with additional replicas."""

    attempt: Attempt
    joined: tuple[Replica, ...]


def replace_failed(deps: Deps, now: datetime) -> None:
    """Give every failed trainer a successor, or end the job after too many failures.

    Called before anything else is planned, so the successor gets the capacity that it freed.
    """
    for each in deps.db.read(_running):
        if _needs_replacement(each.job, each.attempt):
            tails = reports.last_bytes(deps, each.attempt)
            work = partial(_replace_in, deps=deps, job_id=each.job.id, now=now, tails=tails)
            _start(deps, deps.db.write(work), now)


def resize(deps: Deps, now: datetime) -> None:
    """Remove trainers for waiting jobs, or add trainers where no job waits."""
    found = deps.db.read(_running)
    if not found:
        return
    rows = deps.db.read(lambda tx: jobs.waiting_jobs(tx, per_owner=WAITING_PER_OWNER))
    views = planner_input.to_waiting(deps, rows, now)
    waiting = [job for job in views if _waits_for_capacity(job, now)]
    if any(elastic.may_leave(each.job, each.attempt, each.leaving) for each in found) and waiting:
        deps.db.write(partial(_shrink, deps=deps, waiting=waiting))
    for each in found:
        busy = any(each.attempt.pool in job.pools for job in waiting)
        if busy or deps.caches.refused_growth.get(now, each.job.id):
            continue
        if elastic.may_grow_by(each.job, each.attempt, each.leaving):
            _start(deps, deps.db.write(partial(_grow, deps=deps, job_id=each.job.id)), now)


def _running(tx: Tx) -> list[Running]:
    found = []
    for job in jobs.elastic_jobs(tx):
        each = _now(tx, job)
        if each is not None:
            found.append(each)
    return found


def _now(tx: Tx, job: Job | None) -> Running | None:
    if job is None or job.spec.elastic is None:
        return None
    if job.state not in (JobState.SCHEDULE, JobState.RUNNING):
        return None
    attempt = current_attempt(tx, job)
    if attempt is None or attempt.ended_at is not None:
        return None
    leaving = attempts.stopping_replicas(tx, job.id, attempt.number)
    return Running(job=job, attempt=attempt, leaving=frozenset(leaving))


def _needs_replacement(job: Job, attempt: Attempt) -> bool:
    if job.state is not JobState.RUNNING or elastic.is_ending(job, attempt):
        return False
    return bool(elastic.unanswered(job, attempt))


def _replace_in(
    tx: Tx, deps: Deps, job_id: str, now: datetime, tails: Mapping[str, bytes]
) -> Grown | None:
    each = _now(tx, jobs.get_job(tx, job_id))
    if each is None or not _needs_replacement(each.job, each.attempt):
        return None
    job, attempt, all_joined = each.job, each.attempt, Grown(attempt=each.attempt, joined=())
    streak = elastic.Streak(job, data_tasks.last_finished(tx, job.id))
    waiting = elastic.unanswered(job, attempt)
    while waiting:
        failed = waiting.pop(0)
        if not streak.add(failed, now):
            _give_up(tx, deps, job, attempt, failed, now, tails)
            return None
        slots = _find_slots(tx, deps, job, attempt, failed.resources, 1, first=failed.node)
        grown = _join(tx, deps, job, attempt, slots)
        if grown is None:
            break
        attempt = grown.attempt
        all_joined = Grown(attempt=attempt, joined=all_joined.joined + grown.joined)
        answered = elastic.settled_ranks(attempt, waiting)
        job = _record_replacement(tx, job, failed, grown.joined[0], streak, answered)
    return all_joined if all_joined.joined else None


def _record_replacement(
    tx: Tx, job: Job, failed: Replica, by: Replica, streak: elastic.Streak, answered: str
) -> Job:
    """Store which trainer replaced which, and how often that happened."""
    reason = Reason(
        code=elastic.REPLACED,
        params={
            "worker": failed.worker,
            "by": by.worker,
            "how": _how(failed),
            "times": streak.times,
            "limit": elastic.MOST_IN_A_ROW,
            "last": streak.last,
            "answered": answered,
        },
    )
    log.info("job %s: %s replaces %s", job.id, by.worker, failed.worker)
    changed = replace(job, failure=Failure(reason=reason))
    saved = jobs.save_job(tx, changed, expected_version=job.version)
    tx.notify("job", job.id)
    return saved


def _how(failed: Replica) -> str:
    code = exit_code(failed)
    if code is not None:
        return f"exit {code}"
    return failed.state.value if failed.exit is None else failed.exit.cause.value


def _give_up(
    tx: Tx,
    deps: Deps,
    job: Job,
    attempt: Attempt,
    failed: Replica,
    now: datetime,
    tails: Mapping[str, bytes],
) -> None:
    """After one failure too many the job fails with it."""
    alone = with_changes(attempt, replicas=(failed,))
    failure = explain(with_changes(job, failure=None), alone, tails)
    assert failure is not None
    failing = replace(job, failure=failure)
    failing = jobs.save_job(tx, failing, expected_version=job.version)
    tx.notify("job", job.id)
    settle(tx, deps, failing, now=now, tails=tails)


def _grow(tx: Tx, deps: Deps, job_id: str) -> Grown | None:
    each = _now(tx, jobs.get_job(tx, job_id))
    if each is None:
        return None
    count = elastic.may_grow_by(each.job, each.attempt, each.leaving)
    claim = next(r.resources for r in each.attempt.replicas if r.role is Role.TRAINER)
    slots = _find_slots(tx, deps, each.job, each.attempt, claim, count)
    return _join(tx, deps, each.job, each.attempt, slots)


def _join(tx: Tx, deps: Deps, job: Job, attempt: Attempt, slots: Sequence[Slot]) -> Grown | None:
    if not slots:
        return None
    gpus = {node.id: node.total.gpu for nodes in deps.nodes().values() for node in nodes}
    try:
        joined = allocate_replicas(tx, job, attempt.number, slots, gpus)
    except NotAvailable as missing:
        log.warning("job %s cannot grow: %s", job.id, missing.reason.code)
        return None
    grown = with_changes(attempt, replicas=attempt.replicas + joined)
    grown = with_changes(grown, handle=deps.backends[attempt.pool].handle(grown))
    attempts.add_replicas(tx, grown, joined)
    tx.notify("job", job.id)
    return Grown(attempt=grown, joined=joined)


def _start(deps: Deps, grown: Grown | None, now: datetime) -> None:
    """Start the stored replicas. If the backend refuses, they are stopped again, in case an agent
    has received their orders, and the other replicas go on."""
    if grown is None or apply.start_attempt(deps, grown.attempt):
        return
    attempt, ids = grown.attempt, {replica.id for replica in grown.joined}
    deps.caches.refused_growth.put(now, True, attempt.job_id)
    deps.db.write(
        partial(
            set_order,
            job_id=attempt.job_id,
            attempt=attempt.number,
            want=Want.STOP,
            cause=ExitCause.STOPPED,
            only=ids,
        )
    )


def _find_slots(
    tx: Tx,
    deps: Deps,
    job: Job,
    attempt: Attempt,
    claim: Resources,
    count: int,
    first: str = "",
) -> list[Slot]:
    """Slots for up to `count` more replicas of this size, on the machine `first` before others."""
    rank = elastic.next_rank(attempt)
    free = _free(tx, deps)
    labelled = [n for n in deps.nodes().get(attempt.pool, ()) if n.has_labels(job.spec.require)]
    machines = sorted(labelled, key=lambda node: node.id != first)
    unschedulable = deps.unschedulable()
    found: list[Slot] = []
    for node in machines:
        if node.id in unschedulable or (node.exclusive and free[node.id] != node.total):
            continue
        while len(found) < count and claim.fits_in(free[node.id]):
            free[node.id] -= claim
            slot = Slot(Role.TRAINER, rank + len(found), node.id, node.host, claim)
            found.append(slot)
    return found


def _free(tx: Tx, deps: Deps) -> dict[str, Resources]:
    used = attempts.used_on_nodes(tx)
    return {
        node.id: node.total - used.get(node.id, NOTHING)
        for nodes in deps.nodes().values()
        for node in nodes
    }


def _shrink(tx: Tx, deps: Deps, waiting: Sequence[WaitingJob]) -> None:
    """Stop, for each waiting job in order, as few trainers as it needs."""
    nodes = deps.nodes()
    soon = _free(tx, deps)
    running = _running(tx)
    for each in running:
        for replica in each.attempt.replicas:
            if replica.id in each.leaving and replica.node in soon:
                soon[replica.node] += replica.resources
    candidates = _by_surplus(running)
    for job in waiting:
        for pool in job.pools:
            machines = tuple(n for n in nodes.get(pool, ()) if n.has_labels(job.require))
            theirs = [r for r in candidates if any(r.node == node.id for node in machines)]
            wish = elastic.Wish(groups=job.groups, machines=machines)
            gone = elastic.who_leaves(wish, soon, theirs)
            if gone:
                _stop_trainers(tx, deps, running, gone)
                candidates = [replica for replica in candidates if replica not in gone]
                # What they free, and what was free there, is meant for this job alone.
                for node in {replica.node for replica in gone}:
                    soon[node] = NOTHING
                break


def _by_surplus(running: Sequence[Running]) -> list[Replica]:
    """Trainers that may be stopped, first those of the job with the most to spare."""
    lists = [elastic.may_leave(each.job, each.attempt, each.leaving) for each in running]
    found: list[Replica] = []
    while any(lists):
        longest = max(lists, key=len)
        found.append(longest.pop(0))
    return found


def _stop_trainers(tx: Tx, deps: Deps, running: Sequence[Running], gone: Sequence[Replica]) -> None:
    for each in running:
        theirs = {r.id for r in each.attempt.replicas} & {replica.id for replica in gone}
        if theirs:
            log.info("job %s loses %d trainers to waiting jobs", each.job.id, len(theirs))
            set_order(
                tx,
                each.job.id,
                each.attempt.number,
                Want.STOP,
                grace=deps.settings.running.grace,
                cause=ExitCause.STOPPED,
                only=theirs,
                over=Want.RUN,
            )


def _waits_for_capacity(job: WaitingJob, now: datetime) -> bool:
    if job.paused or (job.not_before is not None and job.not_before > now):
        return False
    return job.held_reason is None or not job.held_reason.code.startswith("queue_quota_")
