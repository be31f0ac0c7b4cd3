"""From a plan to places: reads what the scheduler may look at, and applies what it decides.

The chosen pool, the handle by which the attempt is found there, and the replicas' orders are saved
first, in one transaction; only then is the backend asked. After a crash in between the watch loop
asks the same backend again, and starting twice is starting once. An attempt that is over is stopped
by its handle whether or not anybody saw it start, so no orphan is left anywhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.backends.base import NAME, Backend, CanReap, Handle, attempt_name
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, counters, jobs
from paddlecloud.db.tables.attempts import Want
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.job import (
    NOTHING,
    Attempt,
    ExitCause,
    Failure,
    Job,
    Reason,
    Replica,
    ReplicaState,
    Resources,
)
from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE
from paddlecloud.model.jobs.states import WAITING, Event, JobState
from paddlecloud.model.policy.admission import Nodes, seating
from paddlecloud.model.policy.pool import Node, Pool
from paddlecloud.scheduler.view import (
    Allowance,
    Decision,
    GiveUp,
    Hold,
    NodeView,
    Place,
    PoolView,
    Preempt,
    RunningJob,
    View,
    WaitingJob,
    has_room,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.files import job_files, storage_usage
from paddlecloud.server.services.notifications import notify
from paddlecloud.server.services.placement import isolation, shares
from paddlecloud.server.services.placement.allocate import Lacking, members
from paddlecloud.server.services.user_buckets import logs

log = logging.getLogger(__name__)
MAX_NEWCOMERS = 1000
_EVERYTHING = 1 << 30
Frame = tuple[Mapping[str, tuple[Node, ...]], tuple[Pool, ...]]
"""The machines, and the pools that take jobs."""
Check = Callable[[Tx, Sequence[Decision]], Sequence[Decision]]
REFUSED, REFUSED_AGAIN = "queue_pool_refused", "queue_pool_refused_again"
MAX_RELEASED = 256
"""Ended attempts that are let go at once: each batch costs one wait for the disk."""
ASIDE_PAUSE = timedelta(seconds=2)
"""Until it is asked again whether log files in a bucket have gone aside, unless that is told."""
MAX_FAILURES = 8
"""So many attempts that cannot be let go, and their pool is not asked again in this round."""


def read_view(deps: Deps, now: datetime, window: int | None) -> tuple[View, dict[str, Job]]:
    """The world as the scheduler sees it, and the waiting jobs in it by id.

    Of each owner it sees the first `window` jobs, and every job it has not seen before. Where no
    CPU is free and nobody could be asked to go, it sees only those and the ones that waited too
    long: nothing else could change. Without a `window` it sees everything, and all that runs.
    """

    nodes, silent = deps.nodes(), deps.silent()
    heard_of = {name: tuple(n for n in own if n.id not in silent) for name, own in nodes.items()}
    whole, most = window is None, window or _EVERYTHING
    preemptible = [name for name, pool in deps.pools.items() if whole or pool.preemption]

    def read(tx: Tx) -> tuple[tuple[PoolView, ...], list[Job], list[RunningJob], _Shares]:
        pools = _pool_views(deps.pools, heard_of, attempts.used_on_nodes(tx))
        latest = now - deps.settings.scheduling.schedule_timeout
        waiting = (
            jobs.waiting_jobs(tx, per_owner=most)
            if preemptible or has_room(pools)
            else jobs.overdue_waiting(tx, latest)
        )
        known = {job.id for job in waiting}
        fresh = [job for job in jobs.newcomers(tx, MAX_NEWCOMERS) if job.id not in known]
        found = waiting + fresh
        left = quota.allowances(deps, tx, {job.owner for job in found}, now)
        running = [_running(each) for each in attempts.holders(tx, preemptible)]
        return pools, found, running, (shares.in_use(deps, tx, now), left)

    pools, waiting, running, (used, left) = deps.db.read(read)
    places = isolation.open_pools(deps)
    rules = deps.settings.scheduling
    view = View(
        now=now,
        pools=pools,
        waiting=tuple(wanting(deps, waiting, now, (nodes, places))),
        usage=used,
        allowances=left,
        running=tuple(running),
        schedule_timeout=rules.schedule_timeout,
        reserve_after=rules.reserve_after,
        preempt_after=rules.preempt_after,
        min_run=rules.min_run,
        age_after=rules.age_after,
    )
    return view, {job.id: job for job in waiting}


def wanting(
    deps: Deps, jobs_: Sequence[Job], now: datetime, frame: Frame | None = None
) -> list[WaitingJob]:
    """These waiting jobs as the scheduler sees them. `frame`: where it was asked for just now."""
    nodes, places = frame or (deps.nodes(), isolation.open_pools(deps))
    return [_pausing(deps, job, _waiting(job, places, nodes, now), now) for job in jobs_]


def apply(
    deps: Deps,
    decisions: Sequence[Decision],
    known: dict[str, Job],
    now: datetime,
    check: Check | None = None,
) -> int:
    """Carry out a plan and say how many jobs got a place that took them.

    A decision about a job that has moved on since is dropped. `check` drops others, by what is true
    in the transaction.
    """
    if not decisions:
        return 0
    ready = [decision for decision in decisions if _ready(deps, decision, known)]
    # What starts on this machine is gone after a loss of power, and so may be the note of it.
    durable = any(isinstance(d, Place) and deps.pools[d.pool].remote for d in ready)

    def write(tx: Tx) -> list[Attempt]:
        return _write(tx, deps, check(tx, ready) if check else ready, known, now)

    placed = deps.db.write(write, durable=durable)
    return start(deps, placed)


def _ready(deps: Deps, decision: Decision, known: dict[str, Job]) -> bool:
    """False while the logs of the last attempt cannot be set aside (a full disk, say)."""
    if not isinstance(decision, Place) or known[decision.job_id].attempt == 0:
        return True
    job = known[decision.job_id]
    try:
        job_files.set_logs_aside(deps, job)
        return logs.are_aside(deps, job)
    except (PaddleCloudError, OSError) as error:
        log.warning("job %s has to wait with its next attempt: %s", job.id, error)
        return False


def start(deps: Deps, placed: Sequence[Attempt]) -> int:
    """Ask the backends for the agents of placed attempts, and say how many were not refused. One
    that was refused waits again, and other pools are asked first.
    """
    refused = 0
    for attempt in placed:
        if not is_taken(deps, attempt):
            first = deps.settings.scheduling.retry_pause
            deps.db.write(partial(_refused, attempt=attempt, now=deps.clock(), first=first))
            refused += 1
    return len(placed) - refused


def is_taken(deps: Deps, attempt: Attempt) -> bool:
    """Ask the backend for the agents of an attempt; False: it will not have it. What it cannot make
    yet the watch loop asks for again."""
    try:
        deps.backends[attempt.pool].start(attempt)
    except Retry as error:
        log.warning("pool %s cannot start %s yet: %s", attempt.pool, attempt.job_id, error)
    except (PaddleCloudError, OSError) as error:
        log.error("pool %s refused %s: %s", attempt.pool, attempt.job_id, error)
        return False
    return True


def handle_of(backend: Backend, attempt: Attempt) -> Handle:
    """By which its backend finds it; an old row may have none, but it follows from the attempt."""
    return backend.handle(attempt) if attempt.handle is None else attempt.handle


def release_ended(deps: Deps) -> int:
    """Let go of attempts that are over, and say how many: until then their agents keep every byte.

    An agent may forget a replica only when its log and its outputs would survive a loss of power
    here. That costs a wait for the disk, so it is done for many at a time, behind the answers; a
    job is over before it. A pool of which one cannot be let go keeps no other pool waiting.
    """
    released, failed = 0, Counter[str]()
    while True:
        stuck = tuple(failed)
        ended = deps.db.read(partial(attempts.ended_attempts, limit=MAX_RELEASED, without=stuck))
        stopped = []
        for attempt in ended:
            if failed[attempt.pool] < MAX_FAILURES and _stopped(deps, attempt):
                stopped.append(attempt)
            else:
                failed[attempt.pool] += 1
        if stopped:
            _let_go(deps, stopped)
        released += len(stopped)
        if len(ended) < MAX_RELEASED:
            return released


def _let_go(deps: Deps, stopped: Sequence[Attempt]) -> None:
    _flush(deps, stopped)
    to_count = quota.binding(deps)
    deps.db.write(lambda tx: _release(tx, stopped, to_count))


def _release(tx: Tx, stopped: Sequence[Attempt], to_count: bool) -> None:
    attempts.release(tx, stopped, to_count=to_count)
    if to_count:
        tx.notify(storage_usage.BELL, "")


def _stopped(deps: Deps, attempt: Attempt) -> bool:
    """What the backend made for this attempt alone ceases; False if it has to be asked again."""
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        _tell_of_unstopped(deps, attempt)
        return True
    try:
        backend.stop(handle_of(backend, attempt), timedelta(0))
    except (PaddleCloudError, OSError) as error:
        log.warning("pool %s cannot let go of %s yet: %s", attempt.pool, attempt.job_id, error)
        return False
    return True


def _tell_of_unstopped(deps: Deps, attempt: Attempt) -> None:
    """A pool that left the settings between the end of an attempt and this; nobody else knows."""
    if all(pool.name != attempt.pool for pool in deps.settings.pool_list):
        name = attempt_name(attempt.job_id, attempt.number)
        log.warning(
            "pool %s is not in the settings any more: what it made for %s was not stopped, and is "
            "called %s there",
            attempt.pool,
            attempt.job_id,
            name,
        )


def reap(deps: Deps) -> int:
    """Stop what backends have and no row tells of any more, and say how many that were."""
    reaped = 0
    for pool, backend in deps.backends.items():
        if not isinstance(backend, CanReap):
            continue
        try:
            # Listed first: whatever exists by then has had its row before.
            found = {handle.get(NAME, ""): handle for handle in backend.existing()}
            for attempt in deps.db.read(attempts.unreleased) if found else ():
                found.pop(attempt_name(*attempt), None)
        except (PaddleCloudError, OSError) as error:
            log.warning("pool %s cannot be looked through now: %s", pool, error)
            continue
        reaped += sum(_is_reaped(pool, backend, handle) for handle in found.values())
    return reaped


def _is_reaped(pool: str, backend: Backend, handle: Handle) -> bool:
    """One that cannot be stopped now has its turn again, and keeps no other from it."""
    name = handle.get(NAME, "")
    log.warning("pool %s still has %s, which is over: it is stopped", pool, name)
    try:
        backend.stop(handle, timedelta(0))
    except (PaddleCloudError, OSError) as error:
        log.warning("pool %s cannot stop %s now: %s", pool, name, error)
        return False
    return True


def _flush(deps: Deps, ended: Sequence[Attempt]) -> None:
    logged = [a for a in ended if any(replica.log_bytes for replica in a.replicas)]
    known = deps.db.read(lambda tx: {a.job_id: jobs.get_job(tx, a.job_id) for a in logged})
    paths = [
        job_files.log_path(deps, job, replica.worker, attempt.number)
        for attempt in logged
        if (job := known[attempt.job_id]) is not None
        for replica in attempt.replicas
    ]
    if paths:
        deps.logs.flush(paths)
    deps.store.flush()


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
                )
                for node in machines
            ),
        )
        for name, machines in nodes.items()
    )


def _write(
    tx: Tx, deps: Deps, decisions: Sequence[Decision], known: dict[str, Job], now: datetime
) -> list[Attempt]:
    owners = {known[d.job_id].owner for d in decisions if isinstance(d, Place)}
    ledger = quota.Ledger(deps, tx, owners, now)
    cards = _cards(deps, decisions, known)
    seats = [len(d.nodes) for d in decisions if isinstance(d, Place)]
    fences = counters.next_numbers(tx, "fence", len(seats))
    orders = counters.next_numbers(tx, "order", sum(seats))
    placed: list[Attempt] = []
    newcomers: dict[str, tuple[Reason, list[Job]]] = {}
    about = [known[d.job_id] for d in decisions if not isinstance(d, Preempt)]
    current = jobs.unchanged(tx, about)
    for decision in decisions:
        if isinstance(decision, Preempt):
            _preempt(tx, deps, decision)
            continue
        job = known[decision.job_id]
        if job.id not in current:
            log.debug("job %s moved on before its decision was applied", job.id)
            continue
        current.discard(job.id)
        try:
            match decision:
                case Place(pool=pool) if ledger.allows(job, pool):
                    limit = ledger.time_limit(job, pool)
                    limited = replace(job, time_limit=limit)
                    attempt = _place(tx, limited, decision, now, cards, next(fences))
                    attempt = with_changes(attempt, handle=deps.backends[pool].handle(attempt))
                    attempts.insert_attempt(tx, attempt, orders=orders)
                    placed.append(attempt)
                    ledger.count(job, pool)
                case Hold(reason=reason) if job.state is JobState.SCHEDULE:
                    alike = f"{job.version} {reason}"
                    newcomers.setdefault(alike, (reason, []))[1].append(job)
                case Hold():
                    _save(tx, job, _held(job, decision.reason, now))
                case GiveUp():
                    failure = Failure(reason=decision.reason)
                    event = Event.WAITED_TOO_LONG
                    gone = jobs.advance(tx, job, event, now=now, sure=True, failure=failure)
                    notify.on_change(tx, deps, job, gone, now)
        except Lacking as lacking:
            _wait_for(tx, job, lacking.reason, now)
    for reason, held in newcomers.values():
        since = now if _by_quota(reason) else None
        jobs.hold_all(tx, held, now, reason, since)
    return placed


def _cards(deps: Deps, decisions: Sequence[Decision], known: Mapping[str, Job]) -> dict[str, int]:
    """How many cards each machine has, where somebody has to know."""
    places = [each for each in decisions if isinstance(each, Place)]
    needed = any(
        known[each.job_id].spec.elastic is not None or any(seat.asks.gpu for seat in each.nodes)
        for each in places
    )
    nodes = deps.nodes().values() if needed else ()
    return {node.id: node.total.gpu for machines in nodes for node in machines}


def _preempt(tx: Tx, deps: Deps, decision: Preempt) -> None:
    """Order a job of a lower class to stop; why is written before it begins to.

    One that ends by itself or is killed meanwhile is left to that.
    """
    job = jobs.get_job(tx, decision.job_id)
    if job is None or job.pool is None or job.state not in (JobState.SCHEDULE, JobState.RUNNING):
        return
    _save(tx, job, replace(job, failure=Failure(reason=decision.reason)))
    grace = deps.settings.running.grace
    attempts.set_wanted(tx, job.id, job.attempt, Want.STOP, grace=grace, cause=ExitCause.PREEMPTED)


def _wait_for(tx: Tx, job: Job, reason: Reason, now: datetime) -> None:
    """It had a place, but not all that it needs there."""
    if job.state is JobState.SCHEDULE:
        jobs.hold_all(tx, [job], now, reason)
    elif job.reason != reason:
        _save(tx, job, _held(job, reason, now))


def _held(job: Job, reason: Reason, now: datetime) -> Job:
    """It goes on waiting, for this; while that is its owner's quota its clock stands still."""
    if not _by_quota(reason):
        return replace(_counted_on(job, now), reason=reason)
    return replace(job, reason=reason, quota_since=job.quota_since or now)


def _by_quota(reason: Reason) -> bool:
    return reason.code.startswith("queue_quota_")


def _counted_on(job: Job, now: datetime) -> Job:
    """Without the time that it waited for its owner's quota."""
    if job.quota_since is None:
        return job
    since = _waits_since(job, now)
    return replace(job, waiting_since=since, quota_since=None)


def _waits_since(job: Job, now: datetime) -> datetime:
    stood = now - job.quota_since if job.quota_since is not None else timedelta(0)
    return job.waiting_since + max(stood, timedelta(0))


def _place(
    tx: Tx, job: Job, decision: Place, now: datetime, cards: Mapping[str, int], fence: int
) -> Attempt:
    job = _counted_on(job, now)
    replicas = members(tx, job, job.attempt + 1, decision.nodes, cards)
    reason = Reason(code="queue_starting", params={"pool": decision.pool})
    number = job.attempt + 1
    if job.state is JobState.QUEUE:
        job = jobs.advance(
            tx,
            job,
            Event.ROOM_FOUND,
            now=now,
            reason=reason,
            sure=True,
            pool=decision.pool,
            attempt=number,
        )
    else:
        job = _save(tx, job, replace(job, reason=reason, pool=decision.pool, attempt=number))
    return Attempt(
        job_id=job.id,
        number=number,
        fence=fence,
        pool=decision.pool,
        replicas=replicas,
        created_at=now,
    )


def _save(tx: Tx, job: Job, changed: Job) -> Job:
    """Keep a change that is no change of state, and tell who waits for one.

    The job was read in this write, or found unchanged in it.
    """
    saved = jobs.save_job(tx, changed, expected_version=job.version, sure=True)
    tx.notify("job", job.id)
    return saved


def _refused(tx: Tx, attempt: Attempt, now: datetime, first: timedelta) -> None:
    """The pool will not have it: the try is over before it began, and the job waits again.

    Other pools are asked at once. Before it comes to one that refused it twice it pauses, twice as
    long each time, as before a retry.
    """
    job = jobs.get_job(tx, attempt.job_id)
    if job is None or job.attempt != attempt.number or job.state not in WAITING:
        return
    event = Event.POOL_REFUSED
    lose(tx, attempt, attempt.replicas)
    attempts.end_attempt(tx, job.id, attempt.number, now, event)
    reason = Reason(code=REFUSED, params={"pool": attempt.pool})
    times = attempts.ended_so(tx, job.id, attempt.pool, event)
    pause = min(first * 2 ** min(times - 2, 20), LONGEST_PAUSE) if times > 1 else timedelta(0)
    begins = now + pause if pause else None
    jobs.advance(tx, job, event, now=now, reason=reason, pool=None, not_before=begins)


def lose(tx: Tx, attempt: Attempt, replicas: Sequence[Replica]) -> None:
    """Count these replicas as lost, and order their end in case they are not.

    Their agent may have seen the order to run and be out of reach; when it comes back it ends them
    and says so, and only then is it told to forget them.
    """
    for replica in replicas:
        attempts.update_replica(tx, replace(replica, state=ReplicaState.LOST))
    attempts.set_wanted(
        tx,
        attempt.job_id,
        attempt.number,
        Want.STOP,
        cause=ExitCause.STOPPED,
        only={replica.id for replica in replicas},
    )


def _waiting(job: Job, pools: Sequence[Pool], nodes: Nodes, now: datetime) -> WaitingJob:
    try:
        theirs = [pool for pool in pools if pool.serves(job.owner)]
        open_to_it, groups = seating(job.spec, theirs, nodes)
        asked = [pool.name for pool in open_to_it]
    except Refused:  # what it was admitted for is gone: it waits for that to come back
        asked, groups = [], job.spec.groups
    reason = job.reason
    if reason is not None and reason.code in (REFUSED, REFUSED_AGAIN):
        asked.sort(key=lambda name: name == reason.params["pool"])
    return WaitingJob(
        id=job.id,
        owner=job.owner,
        priority=job.spec.priority,
        number=job.number,
        waiting_since=_waits_since(job, now),
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
        return replace(waiting, not_before=later, pause_reason=Reason(code="queue_logs_aside"))
    if job.not_before is None:
        return waiting
    at = job.not_before.astimezone(deps.settings.zone).isoformat(" ", "seconds")[:19]
    if job.reason is not None and job.reason.code in (REFUSED, REFUSED_AGAIN):
        reason = Reason(code=REFUSED_AGAIN, params={"pool": job.reason.params["pool"], "at": at})
    else:
        told = {"retry": job.retried, "most": job.spec.max_retries}
        reason = Reason(code="queue_retry", params={**told, "at": at})
    return replace(waiting, not_before=job.not_before, pause_reason=reason)


def _running(holder: attempts.Holder) -> RunningJob:
    return RunningJob(
        id=holder.job_id,
        owner=holder.owner,
        priority=holder.priority,
        pool=holder.pool,
        seats=holder.seats,
        since=holder.since,
        stopping=holder.stopping,
    )


_Shares = tuple[dict[str, float], dict[str, Allowance]]
"""What each owner uses, and what each owner's plan leaves."""
