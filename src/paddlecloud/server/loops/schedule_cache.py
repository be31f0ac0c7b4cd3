"""What the schedule loop of a large server remembers between two rounds: a planner that is fed.

Where many users wait, or machines are many, reading the world anew for every event would be nearly
all of the work. So the planner is kept, and fed with the jobs of which a commit has told since: of
those alone the database is asked. What it believes is never trusted where it matters. A place is
given in a transaction that holds the lease of the loop, names the job's version, and sees that the
machines really have room. Whatever does not agree, and an error, a gap in the wake-ups, machines
that come or go, and a minute's time, make it begin anew from the database. So does another server
that takes over, and a restart: nothing here is needed to be right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from paddlecloud.db.engine.base import EVERYTHING, Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.jobs.job import NOTHING, Attempt, Job, Resources
from paddlecloud.model.jobs.states import WAITING
from paddlecloud.scheduler.plan import pause_holds, pauses
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.view import (
    Allowance,
    Decision,
    Hold,
    Place,
    Preempt,
    RunningJob,
    WaitingJob,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.accounts.plans import PLANS
from paddlecloud.server.services.jobs.actions import ROOM_BELL
from paddlecloud.server.services.placement import apply, isolation

MANY_OWNERS = 16
MANY_MACHINES = 64
"""Above one of these it costs less to remember than to read."""
RENEW = timedelta(minutes=1)
"""Long enough to cost little; shares fade and minutes of a plan run out more slowly than that."""
LAPSE = timedelta(seconds=20)
"""The loop looks every few seconds: after so long somebody else may have planned."""
SAME_MACHINES = timedelta(seconds=1)
"""So long the machines are not asked for again."""
MOST_HEARD = 50_000
PREEMPTIONS = 64
ROUNDS = 3
"""How often it is planned again at once when a place was not to be had."""
_HAIR = 1e-6
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)

Facts = tuple[list[Job], dict[str, Attempt], set[str], dict[str, Allowance], set[str]]


class Desk:
    """Of one server; used by the thread of its schedule loop, told by any."""

    def __init__(self) -> None:
        self._heard: deque[str] = deque()
        self._missed = True
        self._deaf: Callable[[], None] | None = None
        self._planner: Planner | None = None
        self._versions: dict[str, int] = {}
        """Of the jobs that wait, as the planner knows them."""
        self._pausing: dict[str, WaitingJob] = {}
        self._unsure: set[str] = set()
        """Jobs whose place was asked for: what became of that is not known yet."""
        self._frame: apply.Frame = {}, ()
        self._silent: frozenset[str] = frozenset()
        self._totals: dict[str, Resources] = {}
        self._framed_at = self._renew_at = self._planned_at = _NEVER
        self._large = False

    def wanted(self, deps: Deps, now: datetime) -> bool:
        """Whether this server is so large that its loop should remember; forgets if it is not."""
        if self._look(deps, now):
            machines = sum(len(nodes) for nodes in self._frame[0].values())
            self._large = machines > MANY_MACHINES or deps.db.read(
                lambda tx: jobs.many_wait(tx, MANY_OWNERS)
            )
            if not self._large:
                self.forget()
        return self._large

    def plan_all(self, deps: Deps, now: datetime) -> tuple[datetime | None, bool]:
        """Give places until nothing more finds one. When the next pause ends, and whether there is
        room all the same."""
        try:
            for _ in range(ROUNDS):
                if self._round(deps, now):
                    break
        except BaseException:
            self.forget()
            raise
        assert self._planner is not None
        ends = [job.not_before for job in self._pausing.values() if job.not_before is not None]
        return min(ends, default=None), self._planner.has_room()

    def forget(self) -> None:
        """Begin anew next time."""
        if self._deaf is not None:
            self._deaf()
        self._deaf = self._planner = None
        self._missed = True
        self._heard.clear()
        self._versions, self._pausing, self._unsure = {}, {}, set()

    def hear(self, channel: str, payload: str) -> None:
        """A commit told of something."""
        if channel in ("job", ROOM_BELL):
            self._heard.append(payload)
            if len(self._heard) > MOST_HEARD:
                self._heard.clear()
                self._missed = True
        elif channel in (EVERYTHING, PLANS):
            self._missed = True

    # -- what is true --------------------------------------------------------------------

    def _look(self, deps: Deps, now: datetime) -> bool:
        """Ask for the machines, unless that was a moment ago; whether they were asked for."""
        if timedelta(0) <= now - self._framed_at < SAME_MACHINES:
            return False
        frame = deps.nodes(), isolation.open_pools(deps)
        silent = deps.silent()
        if frame != self._frame or silent != self._silent:
            self._missed = True
            self._silent = silent
            self._totals = {node.id: node.total for nodes in frame[0].values() for node in nodes}
        self._frame, self._framed_at = frame, now
        return True

    def _current(self, deps: Deps, now: datetime) -> Planner:
        """A planner that knows what is true now."""
        self._look(deps, now)
        gap = now - self._planned_at
        lapsed = not timedelta(0) <= gap < LAPSE or now >= self._renew_at
        self._planned_at = now
        planner = self._planner
        if planner is None or self._missed or lapsed:
            return self._anew(deps, now)
        self._catch_up(planner, deps, now)
        return planner

    def _anew(self, deps: Deps, now: datetime) -> Planner:
        self.forget()
        self._missed = False
        self._deaf = deps.db.subscribe(self.hear)
        self._renew_at = now + RENEW
        view, known = apply.read_view(deps, now, None)
        self._versions = {job.id: job.version for job in known.values()}
        self._pausing = {job.id: job for job in view.waiting if pauses(job, now)}
        self._planner = Planner.of(view, preemptions=PREEMPTIONS)
        for job_id in self._pausing:
            self._planner.left(job_id)
        return self._planner

    def _catch_up(self, planner: Planner, deps: Deps, now: datetime) -> None:
        ids, self._unsure = self._unsure, set()
        while self._heard:
            ids.add(self._heard.popleft())
        found, live, leaving, left, gone = deps.db.read(lambda tx: self._facts(tx, deps, ids, now))
        for job_id in gone:
            self._waits_no_more(planner, job_id)
            planner.ended(job_id)
        for job in found:
            self._learn(planner, job, live.get(job.id), stopping=job.id in leaving)
        waiting = [job for job in found if job.pool is None and job.state in WAITING]
        self._learn_waiting(planner, apply.wanting(deps, waiting, now, self._frame), now)
        self._versions.update((job.id, job.version) for job in waiting)
        for owner in {job.owner for job in found}:
            planner.set_allowance(owner, left.get(owner))
        over = [job for job in self._pausing.values() if not pauses(job, now)]
        self._learn_waiting(planner, over, now)

    def _facts(self, tx: Tx, deps: Deps, ids: set[str], now: datetime) -> Facts:
        """What is stored of newcomers, of whom nobody tells, and of those among these jobs that
        have changed."""
        fresh = {job.id: job for job in jobs.newcomers(tx, apply.MAX_NEWCOMERS)}
        stored = jobs.versions(tx, ids - fresh.keys())
        changed = {id_ for id_, version in stored.items() if version != self._versions.get(id_)}
        unknown = [job for job in fresh.values() if job.version != self._versions.get(job.id)]
        found = unknown + jobs.get_jobs(tx, changed)
        placed = [job for job in found if job.pool is not None and not job.final]
        live = attempts.get_attempts(tx, [(job.id, job.attempt) for job in placed])
        preemptible = {name for name, pool in deps.pools.items() if pool.preemption}
        leaving = {
            job.id
            for job in placed
            if job.pool in preemptible and attempts.leaving(tx, job.id, job.attempt)
        }
        left = quota.allowances(deps, tx, {job.owner for job in found}, now)
        gone = ids - fresh.keys() - stored.keys()
        return found, {each.job_id: each for each in live}, leaving, left, gone

    def _learn(
        self, planner: Planner, job: Job, attempt: Attempt | None, *, stopping: bool
    ) -> None:
        """Where this job sits now."""
        self._waits_no_more(planner, job.id)
        replicas = [] if attempt is None else [each for each in attempt.replicas if not each.over]
        seats = [(each.node, each.resources) for each in replicas]
        known = planner.seats_of(job.id)
        if known is not None and sorted(known, key=_order) != sorted(seats, key=_order):
            planner.ended(job.id)
            known = None
        if known is None and seats and attempt is not None:
            running = RunningJob(
                id=job.id,
                owner=job.owner,
                priority=job.spec.priority,
                pool=attempt.pool,
                seats=tuple(seats),
                since=attempt.created_at,
            )
            planner.runs(running, news=True)
        if stopping:
            planner.stops(job.id)

    def _learn_waiting(self, planner: Planner, found: Sequence[WaitingJob], now: datetime) -> None:
        for job in found:
            if pauses(job, now):
                self._pausing[job.id] = job
            else:
                self._pausing.pop(job.id, None)
                planner.arrived(job)

    def _waits_no_more(self, planner: Planner, job_id: str) -> None:
        planner.left(job_id)
        self._pausing.pop(job_id, None)
        self._versions.pop(job_id, None)

    # -- what is done --------------------------------------------------------------------

    def _round(self, deps: Deps, now: datetime) -> bool:
        """Plan once and carry it out; False if there may be more to do at once."""
        planner = self._current(deps, now)
        told = pause_holds(list(self._pausing.values()))
        decisions = told + planner.decide(now)
        if not decisions:
            return True
        subjects = {each.job_id for each in decisions if not isinstance(each, Preempt)}
        found = deps.db.read(lambda tx: jobs.get_jobs(tx, subjects))
        known = {job.id: job for job in found if self._versions.get(job.id) == job.version}
        ready = [each for each in decisions if isinstance(each, Preempt) or each.job_id in known]
        placed = apply.apply(deps, ready, known, now, self._fitting)
        wanted = [each.job_id for each in decisions if isinstance(each, Place)]
        held = {each.job_id for each in ready if isinstance(each, Hold)}
        self._versions.update((job_id, known[job_id].version + 1) for job_id in held)
        self._unsure |= (subjects - held) | {each.job_id for each in told}
        for job_id in self._unsure:
            self._versions.pop(job_id, None)
        # What its pool refused is not tried again at once.
        return placed == len(wanted) or not (placed or self._missed)

    def _fitting(self, tx: Tx, decisions: Sequence[Decision]) -> list[Decision]:
        """Without the places for which there is no room in truth; then everything is read anew."""
        seats = [seat for each in decisions if isinstance(each, Place) for seat in each.nodes]
        used = attempts.used_on_nodes(tx, {seat.node for seat in seats}) if seats else {}
        totals = self._totals
        kept: list[Decision] = []
        for each in decisions:
            if isinstance(each, Place):
                after = dict(used)
                for seat in each.nodes:
                    after[seat.node] = after.get(seat.node, NOTHING) + seat.asks
                if any(not _within(after[s.node], totals.get(s.node, NOTHING)) for s in each.nodes):
                    self._missed = True
                    continue
                used = after
            kept.append(each)
        return kept


def _within(used: Resources, total: Resources) -> bool:
    return used.cpu <= total.cpu + _HAIR and used.memory <= total.memory and used.gpu <= total.gpu


def _order(seat: tuple[str, Resources]) -> tuple[str, float, int, int]:
    node, ask = seat
    return node, ask.cpu, ask.memory, ask.gpu
