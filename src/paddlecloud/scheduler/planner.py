"""Who runs where next, remembered between two questions: fed with changes, asked for decisions.

`plan.py` tells the rule and is the face for one question about one view. A `Planner` is the same
rule for a long queue: it is told what arrived, left, ended or changed, and `decide` looks only at
what that can have changed. Jobs that ask alike share one answer (`Shape`): once one of them does
not fit, none does until room grows where it could sit. The facts are the caller's; after any doubt
a new planner made from a view knows everything that matters.

Nothing here asks the time, and the same facts give the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heapify, heappop, heappush, heapreplace

from paddlecloud.model.jobs.job import Reason, Resources
from paddlecloud.model.policy.priority import aged, rank
from paddlecloud.model.units import format_duration
from paddlecloud.scheduler.hold_reasons import (
    PREEMPTING,
    is_news,
    over_quota,
    why_held,
    why_kept,
    why_preempted,
    why_preempting,
)
from paddlecloud.scheduler.pool_state import Promise, Room, Run, Seats, Spot, as_seats
from paddlecloud.scheduler.preemption import make_way
from paddlecloud.scheduler.queue import (
    Entry,
    Level,
    Line,
    LineTurn,
    Shape,
    ShapeKey,
    first,
    foremost,
    shape_key,
)
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
    weight,
)

EXACT_REASONS = 10
"""So many jobs at the head of the queue are told every change of what is free."""
RETRY_PREEMPTION = (5.0, 80.0)
"""Seconds until it is looked again for somebody to stop, where there was nobody: the first time,
and at most. They double, so that those who stand further back get their turn."""
MOST_SHAPES = 10_000
"""So many shapes are remembered for which there was nobody to stop."""
PREEMPTIONS = 8
"""Jobs for which it is looked for somebody to stop in one decision; the rest come in the next."""
MANY_CHANGES = 256
"""From so many changes on, one walk along the whole queue costs less than many small ones."""


_NEVER = (0.0, 0.0)


class Planner:
    """Everything that waits and everything that is free, in the order of the rule."""

    def __init__(self, rules: Rules, *, preemptions: int = PREEMPTIONS) -> None:
        self._timeout = rules.schedule_timeout.total_seconds()
        self._reserve_after = rules.reserve_after.total_seconds()
        self._preempt_after = rules.preempt_after.total_seconds()
        self._min_run = rules.min_run.total_seconds()
        self._age_after = rules.age_after.total_seconds()
        self._limit = format_duration(self._timeout)
        self.usage: dict[str, float] = {}
        self._allowances: dict[str, Allowance] = {}
        self._rooms: dict[str, Room] = {}
        self._shapes: dict[ShapeKey, Shape] = {}
        self._entries: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._levels: dict[int, Level] = {}
        self._lines_of: dict[str, set[Line]] = {}
        self._runs: dict[str, Run] = {}
        self._promised: dict[int, Promise | None] = {}
        """Jobs for which others are being stopped: what that frees is theirs."""
        self._timers: list[tuple[float, int]] = []
        self._newcomers: dict[int, None] = {}
        self._kept: dict[int, Reason] = {}
        self._hopeless: dict[ShapeKey, dict[int, tuple[float, float]]] = {}
        """What is remembered of shapes that nobody has now (`Shape.hopeless`)."""
        self._now = 0.0
        self._round = 0
        self._decisions: list[Decision] = []
        self._unkept = 0
        """Pools in which room is kept for nobody who waited long."""
        self._max_preemptions = preemptions
        self._preemptions = 0
        self._changes = 0

    @classmethod
    def of(cls, view: View, *, preemptions: int = PREEMPTIONS) -> Planner:
        """A planner that knows this view."""
        planner = cls(
            Rules(
                schedule_timeout=view.schedule_timeout,
                reserve_after=view.reserve_after,
                preempt_after=view.preempt_after,
                min_run=view.min_run,
                age_after=view.age_after,
            ),
            preemptions=preemptions,
        )
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

    # -- what is told --------------------------------------------------------------------

    def set_pool(self, view: PoolView) -> None:
        """A pool with its machines and what is free on each, anew.

        Who runs there is forgotten: tell it again by `runs`.
        """
        old = self._rooms.get(view.pool.name)
        if old is not None:
            self._runs = {id_: run for id_, run in self._runs.items() if run.room is not old}
        self._rooms[view.pool.name] = Room(view)
        self._promised = dict.fromkeys(self._promised)
        for shape in self._shapes.values():
            shape.resolve(self._rooms)
        self._newcomers = dict.fromkeys(self._entries)

    def arrived(self, job: WaitingJob) -> None:
        """A job waits; one that was known under its number is replaced."""
        if job.number in self._entries:
            self.left(job.id)
        key = shape_key(job)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(key, job)
            shape.hopeless = self._hopeless.pop(key, shape.hopeless)
            shape.resolve(self._rooms)
        shape.jobs += 1
        entry = Entry(job, shape, rank(job.priority), job.waiting_since.timestamp())
        self._entries[job.number] = entry
        self._numbers[job.id] = job.number
        self._newcomers[job.number] = None
        self._changes += 1
        if job.held_reason is not None and job.held_reason.code == PREEMPTING:
            self._promised[job.number] = None
        self._stand(entry)

    def left(self, job_id: str) -> None:
        """It waits no more, whatever became of it."""
        number = self._numbers.pop(job_id, None)
        if number is not None:
            self._forget(self._entries[number])

    def runs(self, job: RunningJob, *, news: bool = False) -> None:
        """A job runs in a pool; its room is not among what is free. `news`: it was until now, and
        what its owner uses does not count it yet."""
        room = self._rooms.get(job.pool)
        if room is None:
            return
        spots = room.by_node
        held = [(spots[node], ask) for node, ask in job.seats if node in spots]
        cost = sum(weight(ask) for _, ask in job.seats)
        run = Run(job.id, job.owner, rank(job.priority), room, held, job.since.timestamp(), cost)
        run.stopping = job.stopping
        self._runs[job.id] = run
        if news:
            room.hold(held)
            self.usage[job.owner] = self.usage.get(job.owner, 0.0) + cost
        room.enter(run)

    def seats_of(self, job_id: str) -> list[tuple[str, Resources]] | None:
        """The machines where a job is believed to run, with what it holds; None: it is not."""
        run = self._runs.get(job_id)
        return None if run is None else [(spot.node.id, ask) for spot, ask in run.seats]

    def stops(self, job_id: str) -> None:
        """A job that runs was told to stop: its room comes free soon."""
        run = self._runs.get(job_id)
        if run is not None and run.room.pool.preemption:
            run.room.stop(run)

    def has_room(self) -> bool:
        """Whether any machine has a CPU left that somebody could claim, kept or not."""
        return any(not room.full or room.kept for room in self._rooms.values())

    def ended(self, job_id: str) -> None:
        """A job that ran does not any more: its room is free and its owner uses less."""
        run = self._runs.pop(job_id, None)
        if run is None:
            return
        self._changes += 1
        run.room.leave(run)
        self._grown(run.room, [spot for spot, _ in run.seats])
        self.set_usage(run.owner, max(0.0, self.usage.get(run.owner, 0.0) - run.cost))

    def set_usage(self, owner: str, used: float) -> None:
        """What counts against this owner: in use now and lately."""
        before = self.usage.get(owner, 0.0)
        self.usage[owner] = used
        if used < before:
            for level in self._levels.values():
                level.rise(owner, used)
            for line in self._lines_of.get(owner, ()):
                line.rise(owner, used)

    def set_allowance(self, owner: str, allowance: Allowance | None) -> None:
        """What the owner's plan leaves now; None: it has no limits."""
        if allowance is None:
            self._allowances.pop(owner, None)
        else:
            self._allowances[owner] = allowance
        for line in self._lines_of.get(owner, ()):
            line.unpark(owner, self.usage.get(owner, 0.0))

    # -- what is asked -------------------------------------------------------------------

    def decide(self, now: datetime) -> list[Decision]:
        """What to do now; a job that is not named goes on waiting as it does."""
        self._now = now.timestamp()
        self._round += 1
        self._preemptions = 0
        self._decisions = []
        self._pass_time()
        self._walk()
        self._tell()
        self._changes = 0
        return self._decisions

    def _pass_time(self) -> None:
        """Jobs that have waited longer than some limit since the last question."""
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, number = heappop(timers)
            entry = self._entries.get(number)
            if entry is not None:
                self._rise_or_go(entry)

    def _rise_or_go(self, entry: Entry) -> None:
        if entry.since + self._timeout < self._now and not entry.job.paused:
            reason = Reason(code="queue_timeout", params={"limit": self._limit})
            self._decisions.append(GiveUp(job_id=entry.job.id, reason=reason))
            self.left(entry.job.id)
        else:
            self._unstand(entry)
            self._stand(entry)

    def _stand(self, entry: Entry) -> None:
        """Put a job into the line it belongs to now, and note when that changes."""
        waited = self._now - entry.since
        steps = int(waited / self._age_after)
        entry.level = aged(entry.job.priority, steps)
        ready = waited >= self._preempt_after and entry.rank > 0
        can = ready and any(room.pool.preemption for room in entry.shape.rooms)
        patient = waited >= self._reserve_after
        owner = entry.job.owner
        level = self._levels.setdefault(entry.level, Level())
        used = self.usage.get(owner, 0.0)
        line = level.add(entry, entry.rank if can else 0, reserve=patient, used=used)
        entry.line = line
        self._lines_of.setdefault(owner, set()).add(line)
        self._arm(entry, waited, steps)

    def _arm(self, entry: Entry, waited: float, steps: int) -> None:
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

    def _unstand(self, entry: Entry) -> None:
        line = entry.line
        assert line is not None
        level, owner = self._levels[entry.level], entry.job.owner
        level.remove(entry)
        if owner not in line.owners:
            lines = self._lines_of[owner]
            lines.discard(line)
            if not lines:
                del self._lines_of[owner]
        if not level.lines:
            del self._levels[entry.level]

    def _forget(self, entry: Entry) -> None:
        number, shape = entry.job.number, entry.shape
        self._unstand(entry)
        del self._entries[number]
        self._numbers.pop(entry.job.id, None)
        self._newcomers.pop(number, None)
        self._promised.pop(number, None)
        shape.jobs -= 1
        if not shape.jobs:
            self._drop(self._shapes.pop(shape.key))

    def _drop(self, shape: Shape) -> None:
        if len(self._hopeless) > MOST_SHAPES:
            self._hopeless.clear()
        if shape.hopeless:
            self._hopeless[shape.key] = shape.hopeless

    def _grown(self, room: Room, spots: Iterable[Spot]) -> None:
        """Room came free here: whoever asks for no more than one of these has, is tried again."""
        grown = list({spot.place: spot for spot in spots}.values())
        for shape in self._shapes.values():
            shape.grown(room, grown)

    # -- the walk along the queue --------------------------------------------------------

    def _walk(self) -> None:
        self._kept = {}
        for room in self._rooms.values():
            room.lift()
        self._unkept = len(self._rooms)
        for number in sorted(self._levels, reverse=True):
            level = self._levels.get(number)
            if level is not None:
                self._walk_level(number, level)

    def _walk_level(self, number: int, level: Level) -> None:
        for promised in sorted(self._promised):
            entry = self._entries[promised]
            if entry.level == number and not self._keep_promise(entry):
                self._promised.pop(promised, None)
        if self._changes >= MANY_CHANGES:
            self._walk_all(level)
        else:
            self._walk_lines(level)

    def _keep_promise(self, entry: Entry) -> bool:
        """Start it on the seats that were freed for it, or keep them while it takes."""
        promise = self._promised[entry.job.number]
        if promise is None or self._over_quota(entry) is not None:
            return self._handle(entry)
        if promise.room.all_free(promise.seats):
            self._start(entry, promise.room, promise.seats)
            return True
        if any(run.id in promise.room.stopping for run in promise.victims):
            promise.room.keep(entry.job.number, promise.seats)
            self._kept[entry.job.number] = promise.reason
            return True
        self._promised[entry.job.number] = None
        return self._handle(entry)

    def _walk_all(self, level: Level) -> None:
        """Every job in its turn: for when much has changed."""
        queues = {owner: iter(list(numbers)) for owner, numbers in level.owners.items()}
        turns = [(self.usage.get(owner, 0.0), next(jobs), owner) for owner, jobs in queues.items()]
        heapify(turns)
        while turns:
            used, number, owner = turns[0]
            now = self.usage.get(owner, 0.0)
            if now != used:
                heapreplace(turns, (now, number, owner))
                continue
            line = self._entries[number].line
            if line is not None and owner not in line.parked and self._wanted(line):
                self._take_turn(line, self._entries[number])
            following = next(queues[owner], None)
            if following is None:
                heappop(turns)
            else:
                heapreplace(turns, (used, following, owner))
        for line in level.lines.values():
            line.renew(self.usage)

    def _walk_lines(self, level: Level) -> None:
        """The same, asking only the lines in which something can have changed.

        Shares only grow in a walk, so the foremost of the patient is asked in time; when room is
        kept for it, there is nothing that the others could be asked for. So a line is asked for its
        next one only when nobody else can come before: most have lost their hope by then.
        """
        turns, patient = self._turns(level)
        longest = foremost(patient, self.usage)
        if longest is not None:
            turns.append(longest)
        heapify(turns)
        walked = [turn[4] for turn in turns]
        while turns:
            turn = heappop(turns)
            self._ask(turn, turns)
            if turn is longest and self._unkept:
                walked += [each[4] for each in patient]
                for each in patient:
                    heappush(turns, each)
        for line in walked:
            line.renew(self.usage)

    def _ask(self, turn: LineTurn, turns: list[LineTurn]) -> None:
        """Give this line its turn if it is still its turn, and note its next one."""
        used, job, owner, place, line = turn
        if not self._wanted(line):
            return
        top = line.top(self.usage)
        if top == (used, job, owner):
            self._take_turn(line, self._entries[job])
            top = line.top(self.usage) if self._wanted(line) else None
        if top is not None:
            heappush(turns, (*top, place, line))

    def _turns(self, level: Level) -> tuple[list[LineTurn], list[LineTurn]]:
        """The lines in which somebody may have a turn; apart from them, those in which nothing can
        be done but to keep room for the first of them all."""
        found: list[LineTurn] = []
        patient: list[LineTurn] = []
        unkept = self._unkept > 0
        for place, line in enumerate(level.lines.values()):
            if line.shape.open or ((line.rank or line.shape.under) and self._can_act(line)):
                into = found
            elif unkept and line.reserve:
                into = patient
            else:
                continue
            bound = line.bound()
            if bound is not None:
                into.append((*bound, place, line))
        return found, patient

    def _wanted(self, line: Line) -> bool:
        """False if asking anybody in this line would change nothing."""
        if line.shape.still_open() or self._can_act(line):
            return True
        return line.reserve and self._unkept > 0 and line.shape.may_be_kept_for()

    def _can_act(self, line: Line) -> bool:
        """Whether one of this line, which is not open, might get a place now or have it made."""
        shape = line.shape
        if shape.under and shape.worth_trying():
            return True
        return bool(line.rank) and self._may_preempt(shape, line.rank)

    def _may_preempt(self, shape: Shape, own: int) -> bool:
        if self._preemptions >= self._max_preemptions:
            return False
        return shape.hopeless.get(own, _NEVER)[0] <= self._now

    def _take_turn(self, line: Line, entry: Entry) -> None:
        if entry.job.number in self._kept:
            line.skip(entry.job.owner)
            return
        blocked = self._over_quota(entry) is not None
        if not self._handle(entry) and blocked and not entry.shape.mixed:
            line.park(entry.job.owner)
        elif entry.job.number in self._entries and self._wanted(line):
            line.skip(entry.job.owner)

    def _handle(self, entry: Entry) -> bool:
        """Find this job a place, or keep room for it; False if neither was possible."""
        shape, line = entry.shape, entry.line
        assert line is not None
        rooms, blocked = shape.rooms, self._over_quota(entry) is not None
        if blocked:
            rooms = [room for room in rooms if room.pool.private]
        if shape.worth_trying():
            for room in rooms:
                seats = room.seats(shape.asks)
                if seats is not None:
                    self._start(entry, room, seats)
                    return True
            if not blocked:
                shape.close()
        if line.rank and self._make_way(entry, rooms):
            return True
        return line.reserve and self._reserve(entry, rooms)

    def _over_quota(self, entry: Entry) -> Reason | None:
        if not self._allowances:
            return None
        allowance = self._allowances.get(entry.job.owner)
        if allowance is None or all(room.pool.private for room in entry.shape.rooms):
            return None
        shape = entry.shape
        return over_quota(allowance, shape.cpu, shape.memory, shape.gpu)

    def _start(self, entry: Entry, room: Room, seats: Seats) -> None:
        job, shape = entry.job, entry.shape
        room.take(seats)
        held = [(spot, ask) for _, _, ask, spot in seats]
        run = Run(job.id, job.owner, entry.rank, room, held, self._now, shape.cost)
        self._runs[job.id] = run
        room.enter(run)
        self.usage[job.owner] = self.usage.get(job.owner, 0.0) + shape.cost
        if room.pool.public and job.owner in self._allowances:
            left = self._allowances[job.owner]
            self._allowances[job.owner] = spent(left, shape.cpu, shape.memory, shape.gpu)
        self._forget(entry)
        place = Place(job_id=job.id, pool=room.pool.name, nodes=as_seats(seats))
        self._decisions.append(place)

    def _make_way(self, entry: Entry, rooms: list[Room]) -> bool:
        """Stop jobs of lower classes for it, or wait for those that are being stopped."""
        shape, own = entry.shape, entry.rank
        if entry.job.number not in self._promised and not self._may_preempt(shape, own):
            return False
        self._preemptions += entry.job.number not in self._promised
        for room in rooms:
            found = (
                make_way(room, shape.asks, own, self._now - self._min_run)
                if room.pool.preemption
                else None
            )
            if found is None:
                continue
            shape.hopeless.pop(own, None)
            self._preempt(entry, room, *found)
            return True
        least, most = RETRY_PREEMPTION
        delay = min(most, max(least, 2 * shape.hopeless.get(own, _NEVER)[1]))
        shape.hopeless[own] = (self._now + delay, delay)
        return False

    def _preempt(self, entry: Entry, room: Room, victims: list[Run], seats: Seats) -> None:
        for run in victims:
            reason = why_preempted(entry.job.id, entry.rank, run.rank)
            self._decisions.append(Preempt(job_id=run.id, for_job=entry.job.id, reason=reason))
            room.stop(run)
        room.keep(entry.job.number, seats)
        reason = why_preempting(entry.shape.asks, room)
        awaited = victims or list(room.stopping.values())
        promise = Promise(room=room, seats=seats, victims=tuple(awaited), reason=reason)
        self._promised[entry.job.number] = promise
        self._kept[entry.job.number] = reason

    def _reserve(self, entry: Entry, rooms: list[Room]) -> bool:
        for room in rooms:
            seats = room.seats_when_empty(entry.shape.asks) if room.kept_for is None else None
            if seats is None:
                continue
            if room.all_free(seats):
                # Packing machine by machine can miss a way that the kept room has.
                self._start(entry, room, seats)
                return True
            room.keep(entry.job.number, seats)
            room.kept_for = entry.job.id
            self._unkept -= 1
            self._kept[entry.job.number] = why_kept(entry.shape.asks, room)
            return True
        return False

    # -- what the waiting are told -------------------------------------------------------

    def _tell(self) -> None:
        """Hold those whose reason is news: newcomers, those room is kept for, the first in line."""
        heads = set(first(self._levels, self.usage, EXACT_REASONS))
        for number in dict.fromkeys([*self._newcomers, *self._kept, *heads]):
            entry = self._entries.get(number)
            if entry is not None:
                self._hold(entry, exact=number in heads or number in self._kept)
        self._newcomers = {}

    def _hold(self, entry: Entry, *, exact: bool) -> None:
        reason = self._reason(entry)
        if entry.queued and not is_news(entry.held, reason, exact=exact):
            return
        entry.queued, entry.held = True, reason
        self._decisions.append(Hold(job_id=entry.job.id, reason=reason))

    def _reason(self, entry: Entry) -> Reason:
        kept = self._kept.get(entry.job.number)
        if kept is not None:
            return kept
        quota = self._over_quota(entry)
        if quota is not None:
            return quota
        shape = entry.shape
        if shape.reason is None or shape.reason_round != self._round:
            shape.reason = why_held(shape.job, shape.asks, shape.rooms)
            shape.reason_round = self._round
        return shape.reason
