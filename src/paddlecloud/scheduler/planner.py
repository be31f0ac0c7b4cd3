"""Decides which waiting job starts where next; the server carries the decisions out.

The rule, which `query_job` explains and the tests check:

1. A job that waited longer than `schedule_timeout` gives up, whatever is free.
2. Order: higher priority first, where a job counts one class higher for every `age_after` that it
   waited, up to the highest; within one priority the user with the smallest usage, now and
   recently, including what this plan has placed; within one user, and between users with the same
   usage, the job that arrived first.
3. A job starts in the first pool of its list in which every replica fits at once and which its
   owner's quota allows, or not at all.
4. A job that does not fit lets later ones pass until it has waited `reserve_after`. From then on
   the capacity that it needs is reserved on certain machines of one pool: later jobs may use only
   what is left beside it. What runs there ends some day and is not replaced, so the job starts.
   Each pool reserves capacity for one such job at a time, the first in order.
5. In a pool that allows preemption, a job that waited `preempt_after` and does not fit replaces
   running jobs of lower classes, as few as possible, none of which began within `min_run`. What
   they free is reserved for it. Its own class counts here, not the one that it gained by waiting.
6. A job that pauses before its next attempt (`not_before`) is left out until then.
7. A job is held only if its reason is new. Far back in the queue a reason that differs only in the
   free numbers is not, so a long queue costs no writes while jobs come and go at its head.

A `Planner` is informed of arrivals, departures, ends and changes, and `decide` checks only what
these can affect. Jobs that ask for the same share one result (`Demand`): once one of them does not
fit, none does until capacity comes free where it could run. When in doubt, a new planner made from
a view knows everything that matters.

Nothing here reads a clock, and the same input gives the same decisions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from heapq import heapify, heappop, heappush, heapreplace

from paddlecloud.model.jobs.job import Reason, Resources
from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.priority import aged, rank
from paddlecloud.model.units import format_duration
from paddlecloud.scheduler._fair_queue import (
    Demand,
    DemandKey,
    Entry,
    Level,
    Queue,
    QueueTurn,
    demand_key,
    first,
    foremost,
)
from paddlecloud.scheduler._hold_reasons import (
    PREEMPTING,
    is_news,
    why_held,
    why_preempted,
    why_preempting,
    why_reserved,
)
from paddlecloud.scheduler._pool_state import PoolState, Promise, Run, Slots, to_slots
from paddlecloud.scheduler._preemption import find_victims
from paddlecloud.scheduler.quota_reason import over_quota
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import (
    Allowance,
    Decision,
    GiveUp,
    Hold,
    Place,
    PoolView,
    Preempt,
    Rules,
    RunningJob,
    View,
    WaitingJob,
    spent,
)

EXACT_REASONS = 10
"""Jobs at the head of the queue whose reasons follow every change of the free numbers."""
RETRY_PREEMPTION = (5.0, 80.0)
"""Seconds until victims are searched again when none were found: the first time, and at most. They
double, so that jobs further back get their turn."""
MAX_DEMANDS = 10_000
"""Demands without waiting jobs of which these pauses are kept."""
PREEMPTIONS = 64
"""Jobs for which victims are searched in one call of `decide`; the rest follow in the next."""
MANY_CHANGES = 256
"""From so many changes on, one walk over the whole queue costs less than many small ones."""
_NEVER = (0.0, 0.0)


class Planner:
    """What waits, what runs and what is free."""

    def __init__(self, rules: Rules) -> None:
        self._timeout = rules.schedule_timeout.total_seconds()
        self._reserve_after = rules.reserve_after.total_seconds()
        self._preempt_after = rules.preempt_after.total_seconds()
        self._min_run = rules.min_run.total_seconds()
        self._age_after = rules.age_after.total_seconds()
        self._limit = format_duration(self._timeout)
        self.usage: dict[str, float] = {}
        self._allowances: dict[str, Allowance] = {}
        self._pools: dict[str, PoolState] = {}
        self._demands: dict[DemandKey, Demand] = {}
        self._entries: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._pausing: dict[str, WaitingJob] = {}
        """Jobs that may not start yet (`not_before`)."""
        self._levels: dict[int, Level] = {}
        self._queues_of: dict[str, set[Queue]] = {}
        self._runs: dict[str, Run] = {}
        self._promised: dict[int, Promise | None] = {}
        """Jobs for which others are being stopped; what these free is reserved for them."""
        self._timers: list[tuple[float, int]] = []
        self._newcomers: dict[int, None] = {}
        self._reserved: dict[int, Reason] = {}
        self._no_victims: dict[DemandKey, dict[int, tuple[float, float]]] = {}
        """`Demand.no_victims` of demands without waiting jobs."""
        self._now = 0.0
        self._round = 0
        self._decisions: list[Decision] = []
        self._unreserved = 0
        """How many pools have no reservation for a job that waited `reserve_after`."""
        self._preemptions = 0
        self._changes = 0

    @classmethod
    def of(cls, view: View) -> Planner:
        """A planner that knows this view."""
        planner = cls(view.rules)
        planner._now = view.now.timestamp()
        planner.usage.update(view.usage)
        planner._allowances.update(view.allowances)
        for pool in view.pools:
            planner.set_pool(pool)
        for run in view.running:
            planner.runs(run)
        for job in view.waiting:
            planner.arrived(job)
        return planner

    # -- events --------------------------------------------------------------------------

    def set_pool(self, view: PoolView) -> None:
        """Replace a pool with its machines and what is free on each. The jobs that run there have
        to be given again by `runs`."""
        old = self._pools.get(view.pool.name)
        if old is not None:
            self._runs = {id_: run for id_, run in self._runs.items() if run.state is not old}
        self._pools[view.pool.name] = PoolState(view)
        self._promised = dict.fromkeys(self._promised)
        for demand in self._demands.values():
            demand.resolve(self._pools)
        self._newcomers = dict.fromkeys(self._entries)

    def arrived(self, job: WaitingJob) -> None:
        """A job waits; what was known of it is replaced."""
        self.left(job.id)
        if job.not_before is None:
            self._enter(job)
        else:
            self._pausing[job.id] = job

    def _enter(self, job: WaitingJob) -> None:
        key = demand_key(job)
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = Demand(key, job)
            demand.no_victims = self._no_victims.pop(key, demand.no_victims)
            demand.resolve(self._pools)
        demand.jobs += 1
        entry = Entry(job, demand, rank(job.priority), job.waiting_since.timestamp())
        self._entries[job.number] = entry
        self._numbers[job.id] = job.number
        self._newcomers[job.number] = None
        self._changes += 1
        if job.held_reason is not None and job.held_reason.code == PREEMPTING:
            self._promised[job.number] = None
        self._enqueue(entry)

    def left(self, job_id: str) -> None:
        """A job waits no longer, for whatever reason."""
        self._pausing.pop(job_id, None)
        number = self._numbers.pop(job_id, None)
        if number is not None:
            self._remove(self._entries[number])

    def waits(self, job_id: str) -> bool:
        """Whether this job is known as a waiting one."""
        return job_id in self._numbers or job_id in self._pausing

    def count(self, owner: str) -> int:
        """How many waiting jobs of this owner are known."""
        queued = sum(len(level.owners.get(owner, ())) for level in self._levels.values())
        return queued + sum(job.owner == owner for job in self._pausing.values())

    def trim(self, owner: str, most: int) -> bool:
        """Drop the last jobs of this owner beyond so many; False if there were no more."""
        numbers = [
            number
            for level in sorted(self._levels, reverse=True)
            for number in self._levels[level].owners.get(owner, ())
        ]
        for number in numbers[most:]:
            self._remove(self._entries[number])
        return len(numbers) > most

    def runs(self, job: RunningJob, *, news: bool = False) -> None:
        """A job runs in a pool. `news`: its resources are still counted as free, and not as usage
        of its owner."""
        state = self._pools.get(job.pool)
        if state is None:
            return
        nodes = state.by_node
        held = [(nodes[node], ask) for node, ask in job.slots if node in nodes]
        cost = sum(weight(ask) for _, ask in job.slots)
        run = self._runs[job.id] = Run(
            id=job.id,
            owner=job.owner,
            rank=rank(job.priority),
            state=state,
            slots=held,
            since=job.since.timestamp(),
            cost=cost,
            stopping=job.stopping,
        )
        if news:
            state.occupy(held)
            self.usage[job.owner] = self.usage.get(job.owner, 0.0) + cost
        state.enter(run)

    def slots_of(self, job_id: str) -> list[tuple[str, Resources]] | None:
        """Machine and resources of each replica of a running job; None: it does not run."""
        run = self._runs.get(job_id)
        return None if run is None else [(node.view.id, ask) for node, ask in run.slots]

    def stops(self, job_id: str) -> None:
        """A running job is being stopped: its capacity comes free soon."""
        run = self._runs.get(job_id)
        if run is not None and run.state.pool.preemption:
            run.state.stop(run)

    def has_capacity(self) -> bool:
        """Whether any machine has free CPU, reserved or not."""
        return any(not state.full or state.reserved for state in self._pools.values())

    def ended(self, job_id: str) -> None:
        """A running job ended: its capacity is free and its owner's usage is smaller."""
        run = self._runs.pop(job_id, None)
        if run is None:
            return
        self._changes += 1
        run.state.leave(run)
        freed = list({node.index: node for node, _ in run.slots}.values())
        for demand in self._demands.values():
            demand.capacity_freed(run.state, freed)
        self.set_usage(run.owner, max(0.0, self.usage.get(run.owner, 0.0) - run.cost))

    def set_usage(self, owner: str, used: float) -> None:
        """Set what counts against this owner: usage now and recently."""
        before = self.usage.get(owner, 0.0)
        self.usage[owner] = used
        if used < before:
            for level in self._levels.values():
                level.rise(owner, used)
            for queue in self._queues_of.get(owner, ()):
                queue.rise(owner, used)

    def set_allowance(self, owner: str, allowance: Allowance | None) -> None:
        """Set what the owner's plan leaves; None: it has no limits."""
        if allowance is None:
            self._allowances.pop(owner, None)
        else:
            self._allowances[owner] = allowance
        for queue in self._queues_of.get(owner, ()):
            queue.unpark(owner, self.usage.get(owner, 0.0))

    # -- decisions -----------------------------------------------------------------------

    def decide(self, now: datetime) -> list[Decision]:
        """What to do now; jobs that are not mentioned go on waiting."""
        self._now = now.timestamp()
        self._round += 1
        self._preemptions = 0
        self._decisions = []
        self._end_pauses(now)
        self._pass_time()
        self._walk()
        self._report_holds()
        self._changes = 0
        return self._decisions

    def wake_at(self) -> datetime | None:
        """When the next pause of a waiting job ends; None: no job pauses."""
        ends = (job.not_before for job in self._pausing.values())
        return min((end for end in ends if end is not None), default=None)

    def _end_pauses(self, now: datetime) -> None:
        """Jobs whose pause is over enter the queue; others are held with its reason, once.

        A pause that is longer than the longest one comes from a clock that was set back.
        """
        for job in list(self._pausing.values()):
            if job.not_before is None or not now < job.not_before <= now + LONGEST_PAUSE:
                del self._pausing[job.id]
                self._enter(job)
            elif job.pause_reason is not None and (
                job.state is not JobState.QUEUE or job.held_reason != job.pause_reason
            ):
                self._pausing[job.id] = replace(job, pause_reason=None)
                self._decisions.append(Hold(job_id=job.id, reason=job.pause_reason))

    def _pass_time(self) -> None:
        """Requeue jobs that have passed a time limit since the last call, or give them up."""
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, number = heappop(timers)
            entry = self._entries.get(number)
            if entry is None:
                continue
            if entry.since + self._timeout < self._now and not entry.job.paused:
                reason = Reason(code="queue_timeout", params={"limit": self._limit})
                self._decisions.append(GiveUp(job_id=entry.job.id, reason=reason))
                self.left(entry.job.id)
            else:
                self._dequeue(entry)
                self._enqueue(entry)

    def _enqueue(self, entry: Entry) -> None:
        """Put a job into its queue, and set a timer for when that changes."""
        waited = self._now - entry.since
        steps = int(waited / self._age_after)
        entry.level = aged(entry.job.priority, steps)
        ready = waited >= self._preempt_after and entry.rank > 0
        can = ready and any(state.pool.preemption for state in entry.demand.pools)
        reserving = waited >= self._reserve_after
        owner = entry.job.owner
        level = self._levels.setdefault(entry.level, Level())
        used = self.usage.get(owner, 0.0)
        queue = level.add(entry, entry.rank if can else 0, reserve=reserving, used=used)
        entry.queue = queue
        self._queues_of.setdefault(owner, set()).add(queue)
        self._set_timer(entry, waited, steps)

    def _set_timer(self, entry: Entry, waited: float, steps: int) -> None:
        after = [(steps + 1) * self._age_after]
        if waited <= self._timeout:
            after.append(self._timeout + 1e-6)
        elif entry.job.paused:
            after.append(waited + 60)
        else:
            after.append(waited)
        if waited < self._reserve_after:
            after.append(self._reserve_after)
        if waited < self._preempt_after and entry.rank > 0:
            after.append(self._preempt_after)
        heappush(self._timers, (entry.since + min(after), entry.job.number))

    def _dequeue(self, entry: Entry) -> None:
        queue = entry.queue
        assert queue is not None
        level, owner = self._levels[entry.level], entry.job.owner
        level.remove(entry)
        if owner not in queue.owners:
            queues = self._queues_of[owner]
            queues.discard(queue)
            if not queues:
                del self._queues_of[owner]
        if not level.queues:
            del self._levels[entry.level]

    def _remove(self, entry: Entry) -> None:
        number, demand = entry.job.number, entry.demand
        self._dequeue(entry)
        del self._entries[number]
        self._numbers.pop(entry.job.id, None)
        self._newcomers.pop(number, None)
        self._promised.pop(number, None)
        demand.jobs -= 1
        if not demand.jobs:
            del self._demands[demand.key]
            if len(self._no_victims) > MAX_DEMANDS:
                self._no_victims.clear()
            if demand.no_victims:
                self._no_victims[demand.key] = demand.no_victims

    # -- the walk over the queues --------------------------------------------------------

    def _walk(self) -> None:
        self._reserved = {}
        for state in self._pools.values():
            state.clear_reservations()
        self._unreserved = len(self._pools)
        for number in sorted(self._levels, reverse=True):
            level = self._levels.get(number)
            if level is None:
                continue
            for promised in sorted(self._promised):
                entry = self._entries[promised]
                if entry.level == number and not self._keep_promise(entry):
                    self._promised.pop(promised, None)
            if self._changes >= MANY_CHANGES:
                self._walk_all(level)
            else:
                self._walk_queues(level)

    def _keep_promise(self, entry: Entry) -> bool:
        """Start the job in the slots that were freed for it, or reserve them until they are."""
        promise = self._promised[entry.job.number]
        if promise is None or self._over_quota(entry) is not None:
            return self._handle(entry)
        if promise.state.all_free(promise.slots):
            self._start(entry, promise.state, promise.slots)
            return True
        if any(run.id in promise.state.stopping for run in promise.victims):
            promise.state.reserve(entry.job.number, promise.slots)
            self._reserved[entry.job.number] = promise.reason
            return True
        self._promised[entry.job.number] = None
        return self._handle(entry)

    def _walk_all(self, level: Level) -> None:
        """Try every job in order; for when much has changed."""
        jobs_of = {owner: iter(list(numbers)) for owner, numbers in level.owners.items()}
        turns = [(self.usage.get(owner, 0.0), next(jobs), owner) for owner, jobs in jobs_of.items()]
        heapify(turns)
        while turns:
            used, number, owner = turns[0]
            now = self.usage.get(owner, 0.0)
            if now != used:
                heapreplace(turns, (now, number, owner))
                continue
            queue = self._entries[number].queue
            if queue is not None and owner not in queue.parked and self._wanted(queue):
                self._take_turn(queue, self._entries[number])
            following = next(jobs_of[owner], None)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, (used, following, owner))
        for queue in level.queues.values():
            queue.renew(self.usage)

    def _walk_queues(self, level: Level) -> None:
        """The same for the queues in which something can have changed.

        Usage only grows during a walk, so the first of the jobs that wait for a reservation is
        tried in time; once it has one, the others have nothing to try. A queue is asked for its
        next job only when no other job can come before it; most queues are closed by then.
        """
        turns, reserving = self._turns(level)
        longest = foremost(reserving, self.usage)
        if longest is not None:
            turns.append(longest)
        heapify(turns)
        walked = [turn[4] for turn in turns]
        while turns:
            turn = heappop(turns)
            self._serve(turn, turns)
            if turn is longest and self._unreserved:
                walked += [each[4] for each in reserving]
                for each in reserving:
                    heappush(turns, each)
        for queue in walked:
            queue.renew(self.usage)

    def _serve(self, turn: QueueTurn, turns: list[QueueTurn]) -> None:
        """Try this turn if it is still up to date, and push the queue's next one."""
        used, job, owner, position, queue = turn
        if not self._wanted(queue):
            return
        top = queue.top(self.usage)
        if top == (used, job, owner):
            self._take_turn(queue, self._entries[job])
            top = queue.top(self.usage) if self._wanted(queue) else None
        if top is not None:
            heappush(turns, (*top, position, queue))

    def _turns(self, level: Level) -> tuple[list[QueueTurn], list[QueueTurn]]:
        """The queues in which a job may be placed; and those in which nothing can be done but to
        reserve capacity for the first job of them all."""
        found: list[QueueTurn] = []
        reserving: list[QueueTurn] = []
        for position, queue in enumerate(level.queues.values()):
            demand = queue.demand
            if demand.open or ((queue.rank or demand.blocked_by) and self._can_act(queue)):
                into = found
            elif self._unreserved > 0 and queue.reserve:
                into = reserving
            else:
                continue
            bound = queue.bound()
            if bound is not None:
                into.append((*bound, position, queue))
        return found, reserving

    def _wanted(self, queue: Queue) -> bool:
        """False if trying a job of this queue would change nothing."""
        if queue.demand.still_open() or self._can_act(queue):
            return True
        return queue.reserve and self._unreserved > 0 and queue.demand.may_reserve()

    def _can_act(self, queue: Queue) -> bool:
        """Whether a job of this queue, which is not open, might be placed now or preempt others."""
        demand = queue.demand
        if demand.blocked_by and demand.worth_trying():
            return True
        return bool(queue.rank) and self._may_preempt(demand, queue.rank)

    def _may_preempt(self, demand: Demand, own: int) -> bool:
        if self._preemptions >= PREEMPTIONS:
            return False
        return demand.no_victims.get(own, _NEVER)[0] <= self._now

    def _take_turn(self, queue: Queue, entry: Entry) -> None:
        if entry.job.number in self._reserved:
            queue.skip(entry.job.owner)
            return
        blocked = self._over_quota(entry) is not None
        if not self._handle(entry) and blocked and not entry.demand.mixed:
            queue.park(entry.job.owner)
        elif entry.job.number in self._entries and self._wanted(queue):
            queue.skip(entry.job.owner)

    def _handle(self, entry: Entry) -> bool:
        """Place this job or reserve capacity for it; False if neither was possible."""
        demand, queue = entry.demand, entry.queue
        assert queue is not None
        pools, blocked = demand.pools, self._over_quota(entry) is not None
        if blocked:
            pools = [state for state in pools if not state.pool.metered]
        if demand.worth_trying():
            for state in pools:
                slots = state.find_slots(demand.asks, demand.job.require)
                if slots is not None:
                    self._start(entry, state, slots)
                    return True
            if not blocked:
                demand.close()
        if queue.rank and self._make_way(entry, pools):
            return True
        return queue.reserve and self._reserve(entry, pools)

    def _over_quota(self, entry: Entry) -> Reason | None:
        if not self._allowances:
            return None
        allowance = self._allowances.get(entry.job.owner)
        if allowance is None or not any(state.pool.metered for state in entry.demand.pools):
            return None
        demand = entry.demand
        return over_quota(allowance, demand.cpu, demand.memory, demand.gpu)

    def _start(self, entry: Entry, state: PoolState, slots: Slots) -> None:
        job, demand = entry.job, entry.demand
        state.take(slots)
        run = self._runs[job.id] = Run(
            id=job.id,
            owner=job.owner,
            rank=entry.rank,
            state=state,
            slots=[(node, ask) for _, _, ask, node in slots],
            since=self._now,
            cost=demand.cost,
        )
        state.enter(run)
        self.usage[job.owner] = self.usage.get(job.owner, 0.0) + demand.cost
        if state.pool.metered and job.owner in self._allowances:
            left = self._allowances[job.owner]
            self._allowances[job.owner] = spent(left, demand.cpu, demand.memory, demand.gpu)
        self._remove(entry)
        place = Place(job_id=job.id, pool=state.pool.name, slots=to_slots(slots))
        self._decisions.append(place)

    def _make_way(self, entry: Entry, pools: list[PoolState]) -> bool:
        """Stop jobs of lower classes for it, or wait for those that are being stopped."""
        demand, own = entry.demand, entry.rank
        if entry.job.number not in self._promised and not self._may_preempt(demand, own):
            return False
        self._preemptions += entry.job.number not in self._promised
        for state in pools:
            found = (
                find_victims(state, demand.asks, own, self._now - self._min_run, demand.job.require)
                if state.pool.preemption
                else None
            )
            if found is None:
                continue
            demand.no_victims.pop(own, None)
            self._preempt(entry, state, *found)
            return True
        least, most = RETRY_PREEMPTION
        delay = min(most, max(least, 2 * demand.no_victims.get(own, _NEVER)[1]))
        demand.no_victims[own] = (self._now + delay, delay)
        return False

    def _preempt(self, entry: Entry, state: PoolState, victims: list[Run], slots: Slots) -> None:
        for run in victims:
            reason = why_preempted(entry.job.id, entry.rank, run.rank)
            self._decisions.append(Preempt(job_id=run.id, for_job=entry.job.id, reason=reason))
            state.stop(run)
        state.reserve(entry.job.number, slots)
        reason = why_preempting(entry.demand.asks, state)
        awaited = victims or list(state.stopping.values())
        promise = Promise(state=state, slots=slots, victims=tuple(awaited), reason=reason)
        self._promised[entry.job.number] = promise
        self._reserved[entry.job.number] = reason

    def _reserve(self, entry: Entry, pools: list[PoolState]) -> bool:
        for state in pools:
            slots = (
                state.slots_when_empty(entry.demand.asks, entry.job.require)
                if state.reserved_for is None
                else None
            )
            if slots is None:
                continue
            if state.all_free(slots):
                # First fit can miss a combination that the reservation has.
                self._start(entry, state, slots)
                return True
            state.reserve(entry.job.number, slots)
            state.reserved_for = entry.job.id
            self._unreserved -= 1
            self._reserved[entry.job.number] = why_reserved(entry.demand.asks, state)
            return True
        return False

    # -- reasons -------------------------------------------------------------------------

    def _report_holds(self) -> None:
        """Hold new jobs, those with a reservation and the first in order, if the reason is new."""
        heads = set(first(self._levels, self.usage, EXACT_REASONS))
        for number in dict.fromkeys([*self._newcomers, *self._reserved, *heads]):
            entry = self._entries.get(number)
            if entry is None:
                continue
            reason, exact = self._reason(entry), number in heads or number in self._reserved
            if not entry.queued or is_news(entry.held, reason, exact=exact):
                entry.queued, entry.held = True, reason
                self._decisions.append(Hold(job_id=entry.job.id, reason=reason))
        self._newcomers = {}

    def _reason(self, entry: Entry) -> Reason:
        reserved = self._reserved.get(entry.job.number)
        if reserved is not None:
            return reserved
        quota = self._over_quota(entry)
        if quota is not None:
            return quota
        demand = entry.demand
        if demand.reason is None or demand.reason_round != self._round:
            demand.reason = why_held(demand.job, demand.asks, demand.pools)
            demand.reason_round = self._round
        return demand.reason
