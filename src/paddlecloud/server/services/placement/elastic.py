"""Acts for jobs whose trainers come and go: replaces who failed, sends away, lets more join.

Called by the schedule loop alone, around its plan, so that nobody else gives out room meanwhile. It
is level-triggered like everything there: what a trainer's end implies is read from the replicas,
and a crash between two steps is repaired by the next tick.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, data_tasks, jobs
from paddlecloud.db.tables.attempts import Want
from paddlecloud.model.diagnosis.first_failure import exit_code
from paddlecloud.model.diagnosis.outcome import explain
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs import elastic
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    Failure,
    Job,
    Reason,
    Replica,
    Resources,
    Role,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Node
from paddlecloud.scheduler.view import Seat, WaitingJob
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.agents import orders
from paddlecloud.server.services.jobs import actions as job_service
from paddlecloud.server.services.placement import apply
from paddlecloud.server.services.placement.allocate import Lacking, members

log = logging.getLogger(__name__)
LOOKED_AT = 4
"""Of each owner, so many waiting jobs are looked at when room is to be made."""
REFUSED_PAUSE = timedelta(minutes=5)
"""A pool that would not have more of a job is not asked for more of it before that."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """An elastic job that has a place."""

    job: Job
    attempt: Attempt
    leaving: frozenset[str]
    """Replicas that were told to end and have not yet."""


@dataclass(frozen=True, kw_only=True)
class Grown:
    """An attempt which others have joined."""

    attempt: Attempt
    joined: tuple[Replica, ...]


def replace_failed(deps: Deps, now: datetime) -> None:
    """Give every trainer that failed a successor, or end the job where that leads nowhere.

    Before anything else is planned: the room that it left is its successor's.
    """
    for each in deps.db.read(_running):
        if _lacks(each.job, each.attempt):
            tails = orders.last_bytes(deps, each.attempt)
            answer = partial(_answer, deps=deps, job_id=each.job.id, now=now, tails=tails)
            _start(deps, deps.db.write(answer), now)


def resize(deps: Deps, now: datetime) -> None:
    """Send trainers away for jobs that wait, or let more of them join where nobody does."""
    found = deps.db.read(_running)
    if not found:
        return
    waiting = deps.db.read(lambda tx: jobs.waiting_jobs(tx, per_owner=LOOKED_AT))
    wanting = [job for job in apply.wanting(deps, waiting, now) if _waits_for_room(job, now)]
    if any(elastic.may_leave(each.job, each.attempt, each.leaving) for each in found) and wanting:
        deps.db.write(partial(_send_away, deps=deps, wanting=wanting))
    for each in found:
        busy = any(each.attempt.pool in job.pools for job in wanting)
        if busy or _is_refused(deps, each.job.id, now):
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
    attempt = job_service.current_attempt(tx, job)
    if attempt is None or attempt.ended_at is not None:
        return None
    leaving = attempts.leaving(tx, job.id, attempt.number)
    return Running(job=job, attempt=attempt, leaving=frozenset(leaving))


def _lacks(job: Job, attempt: Attempt) -> bool:
    if job.state is not JobState.RUNNING or elastic.is_ending(job, attempt):
        return False
    return bool(elastic.unanswered(job, attempt))


def _answer(
    tx: Tx, deps: Deps, job_id: str, now: datetime, tails: Mapping[str, bytes]
) -> Grown | None:
    each = _now(tx, jobs.get_job(tx, job_id))
    if each is None or not _lacks(each.job, each.attempt):
        return None
    job, attempt, all_joined = each.job, each.attempt, Grown(attempt=each.attempt, joined=())
    streak = elastic.Streak(job, data_tasks.last_finished(tx, job.id))
    waiting = elastic.unanswered(job, attempt)
    while waiting:
        failed = waiting.pop(0)
        if not streak.add(failed, now):
            _give_up(tx, deps, job, attempt, failed, now, tails)
            return None
        seats = _seats(tx, deps, attempt, failed.resources, 1, first=failed.node)
        grown = _join(tx, deps, job, attempt, seats)
        if grown is None:
            break
        attempt = grown.attempt
        all_joined = Grown(attempt=attempt, joined=all_joined.joined + grown.joined)
        answered = elastic.settled_ranks(attempt, waiting)
        job = _tell(tx, job, failed, grown.joined[0], streak, answered)
    return all_joined if all_joined.joined else None


def _tell(
    tx: Tx, job: Job, failed: Replica, by: Replica, streak: elastic.Streak, answered: str
) -> Job:
    """Show who took whose place, and count it."""
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
    log.info("job %s: %s takes the place of %s", job.id, by.worker, failed.worker)
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
    """One failure too many: from here on it is the job's own, told as any other is."""
    alone = with_changes(attempt, replicas=(failed,))
    failure = explain(with_changes(job, failure=None), alone, tails)
    assert failure is not None
    told = replace(job, failure=failure)
    told = jobs.save_job(tx, told, expected_version=job.version)
    tx.notify("job", job.id)
    job_service.settle(tx, deps, told, now=now, tails=tails)


def _grow(tx: Tx, deps: Deps, job_id: str) -> Grown | None:
    each = _now(tx, jobs.get_job(tx, job_id))
    if each is None:
        return None
    count = elastic.may_grow_by(each.job, each.attempt, each.leaving)
    claim = next(r.resources for r in each.attempt.replicas if r.role is Role.TRAINER)
    seats = _seats(tx, deps, each.attempt, claim, count)
    return _join(tx, deps, each.job, each.attempt, seats)


def _join(tx: Tx, deps: Deps, job: Job, attempt: Attempt, seats: Sequence[Seat]) -> Grown | None:
    if not seats:
        return None
    cards = {node.id: node.total.gpu for nodes in deps.nodes().values() for node in nodes}
    try:
        joined = members(tx, job, attempt.number, seats, cards)
    except Lacking as lacking:
        log.warning("job %s cannot grow: %s", job.id, lacking.reason.code)
        return None
    grown = with_changes(attempt, replicas=attempt.replicas + joined)
    grown = with_changes(grown, handle=deps.backends[attempt.pool].handle(grown))
    attempts.add_replicas(tx, grown, joined)
    tx.notify("job", job.id)
    return Grown(attempt=grown, joined=joined)


def _start(deps: Deps, grown: Grown | None, now: datetime) -> None:
    """As the first replicas were: what is written down is asked of the backend. If it will not have
    more, those who joined are sent away again, and the others go on."""
    if grown is None or apply.is_taken(deps, grown.attempt):
        return
    deps.refused[grown.attempt.job_id] = now + REFUSED_PAUSE
    deps.db.write(partial(_send_back, grown=grown))


def _send_back(tx: Tx, grown: Grown) -> None:
    """An agent that is there all the same may have heard of them: it ends them and says so."""
    attempt, ids = grown.attempt, {replica.id for replica in grown.joined}
    attempts.set_wanted(
        tx, attempt.job_id, attempt.number, Want.STOP, cause=ExitCause.STOPPED, only=ids
    )


def _is_refused(deps: Deps, job_id: str, now: datetime) -> bool:
    for other in [each for each, until in deps.refused.items() if until <= now]:
        del deps.refused[other]
    return job_id in deps.refused


def _seats(
    tx: Tx, deps: Deps, attempt: Attempt, claim: Resources, count: int, first: str = ""
) -> list[Seat]:
    """Where up to `count` more of this claim have room, on the machine `first` before others."""
    rank = elastic.next_rank(attempt)
    free = _free(tx, deps)
    machines = sorted(deps.nodes().get(attempt.pool, ()), key=lambda node: node.id != first)
    silent = deps.silent()
    found: list[Seat] = []
    for node in machines:
        if node.id in silent:
            continue
        while len(found) < count and claim.fits_in(free[node.id]):
            free[node.id] -= claim
            seat = Seat(Role.TRAINER, rank + len(found), node.id, node.host, claim)
            found.append(seat)
    return found


def _free(tx: Tx, deps: Deps) -> dict[str, Resources]:
    used = attempts.used_on_nodes(tx)
    nothing = Resources(cpu=0.0, memory=0, gpu=0)
    return {
        node.id: node.total - used.get(node.id, nothing)
        for nodes in deps.nodes().values()
        for node in nodes
    }


def _send_away(tx: Tx, deps: Deps, wanting: Sequence[WaitingJob]) -> None:
    """For each job that waits, in order, as few trainers as make room for it."""
    nodes = deps.nodes()
    soon = _free(tx, deps)
    running = _running(tx)
    for each in running:
        for replica in each.attempt.replicas:
            if replica.id in each.leaving and replica.node in soon:
                soon[replica.node] += replica.resources
    candidates = _by_surplus(running)
    for job in wanting:
        for pool in job.pools:
            machines = tuple(nodes.get(pool, ()))
            theirs = [r for r in candidates if any(r.node == node.id for node in machines)]
            wish = elastic.Wish(groups=job.groups, machines=machines)
            gone = elastic.who_leaves(wish, soon, theirs)
            if gone:
                _order_to_leave(tx, deps, running, gone)
                candidates = [replica for replica in candidates if replica not in gone]
                _take(soon, machines, gone)
                break


def _by_surplus(running: Sequence[Running]) -> list[Replica]:
    """Who may leave, those first whose job has the most to spare."""
    lists = [elastic.may_leave(each.job, each.attempt, each.leaving) for each in running]
    found: list[Replica] = []
    while any(lists):
        longest = max(lists, key=len)
        found.append(longest.pop(0))
    return found


def _order_to_leave(
    tx: Tx, deps: Deps, running: Sequence[Running], gone: Sequence[Replica]
) -> None:
    for each in running:
        theirs = {r.id for r in each.attempt.replicas} & {replica.id for replica in gone}
        if theirs:
            log.info("job %s gives up %d trainers for jobs that wait", each.job.id, len(theirs))
            attempts.set_wanted(
                tx,
                each.job.id,
                each.attempt.number,
                Want.STOP,
                grace=deps.settings.running.grace,
                cause=ExitCause.STOPPED,
                only=theirs,
                over=Want.RUN,
            )


def _take(soon: dict[str, Resources], machines: Sequence[Node], gone: Sequence[Replica]) -> None:
    """What comes free is promised to the job that it was made free for: nobody else counts on it,
    nor on what was free on its machines."""
    for node in machines:
        if any(replica.node == node.id for replica in gone):
            soon[node.id] = Resources(cpu=0.0, memory=0, gpu=0)


def _waits_for_room(job: WaitingJob, now: datetime) -> bool:
    if job.paused or (job.not_before is not None and job.not_before > now):
        return False
    return job.held_reason is None or not job.held_reason.code.startswith("queue_quota_")
