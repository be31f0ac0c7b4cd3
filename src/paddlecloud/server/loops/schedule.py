"""The schedule loop: places waiting jobs, woken by a submit and when capacity comes free.

Reading the queue and all that runs for every event would be nearly all of the work. So the planner
is kept between two rounds (`PlannerCache`), and updated with the jobs that commits have reported
since; only those are read. Of each owner it knows the first `window` waiting jobs, so a long queue
costs neither time nor memory.

What the planner believes is never trusted where it matters: a job is placed in a transaction that
holds the lease of the loop, names the job's version, and checks that the machines have the
capacity. When anything does not agree, after an error or a gap in the notifications, when machines
come or go, and every minute, it is rebuilt from the database. Nothing here survives a restart.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paddlecloud.db.engine.base import EVERYTHING, Tx
from paddlecloud.db.tables import attempts, jobs, usage
from paddlecloud.model.jobs.job import NOTHING, Attempt, Job, Resources
from paddlecloud.model.jobs.states import WAITING
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.view import Allowance, Decision, Hold, Place, Preempt, RunningJob
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import CAPACITY_CHANNEL, SCHEDULE_CHANNEL
from paddlecloud.server.loops._clock_jumps import Steps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.accounts.plans import PLANS
from paddlecloud.server.services.placement import apply, elastic, isolation, planner_input

log = logging.getLogger(__name__)
GATHER = 0.025
"""Seconds that new jobs wait for each other while nothing is free: a burst is then a few plans."""


def loop() -> Loop:
    tick = Schedule().tick_in_time
    return Loop(name="schedule", tick=tick, every=timedelta(seconds=5), channel=SCHEDULE_CHANNEL)


class Schedule:
    """The schedule loop with its planner."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.planner = PlannerCache()

    def tick_in_time(self, deps: Deps, now: datetime) -> float | None:
        """`tick` after jumps of the wall clock were taken out of the waiting times: a laptop that
        slept, or a clock that was corrected, must not end waits and pauses.

        Not on a shared database: other servers may have another clock.
        """
        passed, ahead = self.steps.advance(now, time.monotonic())
        if ahead and not deps.db.shared:
            waited = deps.db.write(lambda tx: usage.shift(tx, ahead, now, passed))
            self.planner.clear()
            if waited:
                log.warning("the clock jumped by %s; that does not count as waiting", ahead)
        return self.tick(deps, now)

    def tick(self, deps: Deps, now: datetime) -> float | None:
        """Place jobs until no more can be placed; then, if nothing is free, wait a moment for more
        new jobs. Returns in how many seconds the next pause of a job ends.
        """
        capacity_freed = deps.hub.wake_event(CAPACITY_CHANNEL)
        capacity_freed.clear()
        elastic.replace_failed(deps, now)
        began = time.perf_counter()
        at, has_capacity = self.planner.plan_all(deps, now)
        deps.metrics.planned(time.perf_counter() - began)
        elastic.resize(deps, now)
        if not has_capacity:
            capacity_freed.wait(GATHER)
        return None if at is None else (at - now).total_seconds()


REBUILD_EVERY = timedelta(minutes=1)
"""Long enough to cost little; shares fade and minutes of a plan run out more slowly than that."""
LAPSE = timedelta(seconds=20)
"""The loop runs every few seconds: after so long another server may have planned."""
SAME_MACHINES = timedelta(seconds=1)
"""So long the machines are not asked for again."""
MAX_REPORTED = 50_000
MAX_REPLANS = 3
"""How often it is planned again at once when a placement was not possible."""
_HAIR = 1e-6
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is stored of the jobs that may have changed."""

    changed: list[Job]
    attempts: dict[str, Attempt]
    """The live attempts of those that were placed, by job."""
    stopping: set[str]
    allowances: dict[str, Allowance]
    deleted: set[str]
    unchanged: set[str]
    refilled: dict[str, int]
    """How many waiting jobs were read of each owner of whom the planner knew too few."""
    more: bool
    """There are further new jobs."""


class PlannerCache:
    """Used by the thread of the schedule loop; `notified` by any thread."""

    def __init__(self) -> None:
        self._reported: deque[str] = deque()
        self._stale = True
        self._unsubscribe: Callable[[], None] | None = None
        self._planner: Planner | None = None
        self._versions: dict[str, int] = {}
        """Of the waiting jobs as the planner knows them."""
        self._reread: set[str] = set()
        """Jobs that are read in the next round whatever their version is: what became of a decision
        about them is not known, or their logs were being moved."""
        self._incomplete: set[str] = set()
        """Owners who have more waiting jobs than the planner knows."""
        self._fresh: dict[str, Job] = {}
        """Waiting jobs that were read in this round."""
        self._frame: planner_input.Frame = {}, ()
        self._unschedulable: frozenset[str] = frozenset()
        self._totals: dict[str, Resources] = {}
        self._exclusive: set[str] = set()
        """Machines that run one job at a time."""
        self._framed_at = self._rebuild_at = self._planned_at = _NEVER

    def plan_all(self, deps: Deps, now: datetime) -> tuple[datetime | None, bool]:
        """Place jobs until no more can be placed. Returns when the next pause of a waiting job
        ends, and whether capacity is left."""
        replans = 0
        try:
            while replans < MAX_REPLANS:
                planner, more = self._current(deps, now)
                decisions = planner.decide(now)
                missed = self._apply(deps, decisions, now)
                more |= self._trim(planner, deps)
                if not missed and not (decisions and more):
                    break
                replans += missed
        except BaseException:
            self.clear()
            raise
        return planner.wake_at(), planner.has_capacity()

    def clear(self) -> None:
        """Rebuild the planner next time."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe = self._planner = None
        self._stale = True
        self._reported.clear()
        self._versions, self._reread, self._incomplete = {}, set(), set()

    def notified(self, channel: str, payload: str) -> None:
        """A commit reported a change."""
        if channel in ("job", CAPACITY_CHANNEL):
            self._reported.append(payload)
            if len(self._reported) > MAX_REPORTED:
                self._reported.clear()
                self._stale = True
        elif channel in (EVERYTHING, PLANS):
            self._stale = True

    # -- reading -------------------------------------------------------------------------

    def _current(self, deps: Deps, now: datetime) -> tuple[Planner, bool]:
        """A planner that knows what is stored now; and whether there are further new jobs."""
        self._read_machines(deps, now)
        gap, self._planned_at = now - self._planned_at, now
        if (
            self._planner is None
            or self._stale
            or now >= self._rebuild_at
            or not timedelta(0) <= gap < LAPSE
        ):
            self._planner = self._rebuild(deps, now)
        more = self._catch_up(self._planner, deps, now)
        return self._planner, more

    def _read_machines(self, deps: Deps, now: datetime) -> None:
        unschedulable = deps.unschedulable()
        recent = timedelta(0) <= now - self._framed_at < SAME_MACHINES
        if recent and unschedulable == self._unschedulable:
            return
        frame = deps.nodes(), isolation.open_pools(deps)
        if frame != self._frame or unschedulable != self._unschedulable:
            self._stale = True
            self._unschedulable = unschedulable
            self._totals = {node.id: node.total for nodes in frame[0].values() for node in nodes}
            self._exclusive = {n.id for nodes in frame[0].values() for n in nodes if n.exclusive}
        self._frame, self._framed_at = frame, now

    def _rebuild(self, deps: Deps, now: datetime) -> Planner:
        self.clear()
        self._stale = False
        self._unsubscribe = deps.db.subscribe(self.notified)
        self._rebuild_at = now + REBUILD_EVERY
        view, known = planner_input.read_view(deps, now)
        self._versions = {job.id: job.version for job in known.values()}
        self._reread = {
            job.id for job in view.waiting if job.pause_reason == planner_input.LOGS_ASIDE
        }
        counts = Counter(job.owner for job in known.values())
        window = deps.settings.scheduling.window
        self._incomplete = {owner for owner, count in counts.items() if count >= window}
        return Planner.of(view)

    def _catch_up(self, planner: Planner, deps: Deps, now: datetime) -> bool:
        """Update the planner with what has changed; True if there are further new jobs."""
        ids, self._reread = self._reread, set()
        for job_id in ids:
            self._versions.pop(job_id, None)
        while self._reported:
            ids.add(self._reported.popleft())
        facts = deps.db.read(lambda tx: self._read_facts(tx, planner, deps, ids, now))
        for job_id in facts.deleted:
            self._leave_queue(planner, job_id)
            planner.ended(job_id)
        for job_id in facts.unchanged:
            if not planner.waits(job_id):  # it was trimmed
                self._versions.pop(job_id, None)
        for job in facts.changed:
            self._leave_queue(planner, job.id)
            self._update_running(planner, job, facts)
        waiting = [job for job in facts.changed if job.pool is None and job.state in WAITING]
        for each in planner_input.to_waiting(deps, waiting, now, self._frame):
            planner.arrived(each)
            if each.pause_reason == planner_input.LOGS_ASIDE:
                self._reread.add(each.id)
        self._versions.update((job.id, job.version) for job in waiting)
        self._fresh = {job.id: job for job in waiting}
        for owner in {job.owner for job in facts.changed}:
            planner.set_allowance(owner, facts.allowances.get(owner))
        window = deps.settings.scheduling.window
        self._incomplete -= {owner for owner, n in facts.refilled.items() if n < window}
        return facts.more

    def _read_facts(
        self, tx: Tx, planner: Planner, deps: Deps, ids: set[str], now: datetime
    ) -> Facts:
        settings = deps.settings.scheduling
        fresh = jobs.newcomers(tx, planner_input.MAX_NEWCOMERS)
        overdue = jobs.overdue_waiting(tx, now - settings.schedule_timeout)
        thin = {owner for owner in self._incomplete if planner.count(owner) < settings.window / 2}
        refill = jobs.waiting_jobs(tx, per_owner=settings.window, owners=sorted(thin))
        found = {
            job.id: job
            for job in (*fresh, *overdue, *refill)
            if not planner.waits(job.id) or self._versions.get(job.id) != job.version
        }
        stored = jobs.versions(tx, ids)
        changed = {id_ for id_, version in stored.items() if version != self._versions.get(id_)}
        found |= {job.id: job for job in jobs.get_jobs(tx, changed - found.keys())}
        placed = [job for job in found.values() if job.pool is not None and not job.final]
        live = attempts.get_attempts(tx, [(job.id, job.attempt) for job in placed])
        preemptible = {name for name, pool in deps.pools.items() if pool.preemption}
        owners = {job.owner for job in found.values()}
        return Facts(
            changed=list(found.values()),
            attempts={each.job_id: each for each in live},
            stopping={
                job.id
                for job in placed
                if job.pool in preemptible and attempts.stopping_replicas(tx, job.id, job.attempt)
            },
            allowances=quota.allowances(deps, tx, owners, now),
            deleted=ids - stored.keys(),
            unchanged=stored.keys() - changed,
            refilled={owner: 0 for owner in thin} | Counter(job.owner for job in refill),
            more=len(fresh) >= planner_input.MAX_NEWCOMERS,
        )

    def _update_running(self, planner: Planner, job: Job, facts: Facts) -> None:
        """Update the planner with where this job runs now."""
        attempt = facts.attempts.get(job.id)
        replicas = [] if attempt is None else [each for each in attempt.replicas if not each.over]
        slots = [(each.node, each.resources) for each in replicas]
        known = planner.slots_of(job.id)
        if known is not None and sorted(known, key=_order) != sorted(slots, key=_order):
            planner.ended(job.id)
            known = None
        if known is None and slots and attempt is not None:
            running = RunningJob(
                id=job.id,
                owner=job.owner,
                priority=job.spec.priority,
                pool=attempt.pool,
                slots=tuple(slots),
                since=attempt.created_at,
            )
            planner.runs(running, news=True)
        if job.id in facts.stopping:
            planner.stops(job.id)

    def _leave_queue(self, planner: Planner, job_id: str) -> None:
        planner.left(job_id)
        self._versions.pop(job_id, None)

    def _trim(self, planner: Planner, deps: Deps) -> bool:
        """Keep no more than `window` waiting jobs of an owner; True if some have too few now."""
        window = deps.settings.scheduling.window
        for owner in {job.owner for job in self._fresh.values()}:
            if planner.trim(owner, window):
                self._incomplete.add(owner)
        self._fresh = {}
        return any(planner.count(owner) < window / 2 for owner in self._incomplete)

    # -- writing -------------------------------------------------------------------------

    def _apply(self, deps: Deps, decisions: Sequence[Decision], now: datetime) -> bool:
        """Carry out decisions; True if a placement was not possible and planning again may help."""
        if not decisions:
            return False
        subjects = {each.job_id for each in decisions if not isinstance(each, Preempt)}
        older = subjects - self._fresh.keys()
        found = deps.db.read(lambda tx: jobs.get_jobs(tx, older)) if older else []
        known = {job.id: job for job in found if self._versions.get(job.id) == job.version}
        known |= {id_: job for id_, job in self._fresh.items() if id_ in subjects}
        ready = [each for each in decisions if isinstance(each, Preempt) or each.job_id in known]
        placed = apply.apply(deps, ready, known, now, self._fitting)
        wanted = sum(isinstance(each, Place) for each in decisions)
        held = {each.job_id for each in ready if isinstance(each, Hold)}
        self._versions.update((job_id, known[job_id].version + 1) for job_id in held)
        self._reread |= subjects - held
        # A job that its pool refused is not tried again at once.
        return placed != wanted and (placed > 0 or self._stale)

    def _fitting(self, tx: Tx, decisions: Sequence[Decision]) -> list[Decision]:
        """Without placements for which the machines have no capacity; then all is read again."""
        slots = [slot for each in decisions if isinstance(each, Place) for slot in each.slots]
        used = attempts.used_on_nodes(tx, {slot.node for slot in slots}) if slots else {}
        totals = self._totals
        kept: list[Decision] = []
        for each in decisions:
            if isinstance(each, Place):
                after = dict(used)
                for slot in each.slots:
                    after[slot.node] = after.get(slot.node, NOTHING) + slot.asks
                shared = any(s.node in self._exclusive and s.node in used for s in each.slots)
                if shared or not all(
                    _suffices(totals.get(slot.node, NOTHING), after[slot.node], slot.asks)
                    for slot in each.slots
                ):
                    self._stale = True
                    continue
                used = after
            kept.append(each)
        return kept


def _suffices(total: Resources, used: Resources, ask: Resources) -> bool:
    """Whether a machine has enough of each kind of resource that is asked for."""
    return (
        used.cpu <= total.cpu + _HAIR
        and (not ask.memory or used.memory <= total.memory)
        and (not ask.gpu or used.gpu <= total.gpu)
    )


def _order(slot: tuple[str, Resources]) -> tuple[str, float, int, int]:
    node, ask = slot
    return node, ask.cpu, ask.memory, ask.gpu
