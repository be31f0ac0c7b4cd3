"""Finds places for waiting jobs: view, plan, apply. Woken by a submit and by every freed place."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from paddlecloud.db.tables import usage
from paddlecloud.scheduler.plan import plan, wake_at
from paddlecloud.scheduler.view import View, after, has_room
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.clock_jumps import Steps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.loops.schedule_cache import Desk
from paddlecloud.server.services.jobs.actions import ROOM_BELL, SCHEDULE_BELL
from paddlecloud.server.services.placement import apply, elastic

log = logging.getLogger(__name__)
NARROW = 4
"""Looked at first: nearly always one of these fits, and a long queue costs no more than these."""
WIDE = 64
"""Looked at when those before found places: much room came free, and each plan costs a look at all
that is in use."""
GATHER = 0.025
"""Seconds that newcomers wait for each other while nothing is free: a burst is then a few plans."""


def loop() -> Loop:
    """One that remembers nothing yet."""
    tick = Schedule().tick_in_time
    return Loop(name="schedule", tick=tick, every=timedelta(seconds=5), bell=SCHEDULE_BELL)


class Schedule:
    """The loop of one server, with what it remembers from tick to tick."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.desk = Desk()

    def tick_in_time(self, deps: Deps, now: datetime) -> float | None:
        """`tick` once what was done to the clock is taken out of what jobs have waited: a laptop
        that slept, or a clock that is set right, must not end waits and pauses.

        Other servers on the database may have another clock, and which is right nobody can tell.
        """
        passed, ahead = self.steps.look(now, time.monotonic())
        if ahead and not deps.db.shared:
            waited = deps.db.write(lambda tx: usage.shift(tx, ahead, now, passed))
            if waited:
                log.warning("the clock was moved by %s; that is not counted as waiting", ahead)
        return self.tick(deps, now)

    def tick(self, deps: Deps, now: datetime) -> float | None:
        """Plan until nothing more finds a place; then, if nothing is free, wait a moment for room.

        Answers in how many seconds a job ends its pause and wants to be looked at.
        """
        room = deps.hub.bell(ROOM_BELL)
        room.clear()
        elastic.replace_failed(deps, now)
        at, room_left = self.give_places(deps, now)
        elastic.resize(deps, now)
        if not room_left:
            room.wait(GATHER)
        return None if at is None else (at - now).total_seconds()

    def give_places(self, deps: Deps, now: datetime) -> tuple[datetime | None, bool]:
        """When the next pause of a waiting job ends, and whether there is room when all have a
        place that can have one. A large server remembers what it read; a small one reads little."""
        if self.desk.wanted(deps, now):
            return self.desk.plan_all(deps, now)
        view, room_left = plan_all(deps, now)
        return wake_at(view), room_left


def plan_all(deps: Deps, now: datetime) -> tuple[View, bool]:
    """What was seen last when no job finds a place any more, and whether there is room all the
    same. A plan that took the last of it is the last: every newcomer was in its view."""
    window = NARROW
    while True:
        view, waiting = apply.read_view(deps, now, window)
        decisions = plan(view) if waiting else []
        placed = apply.apply(deps, decisions, waiting, now)
        room = has_room(after(view.pools, decisions))
        if not room and not _may_go_on(view):
            return view, room
        if placed:
            window = max(window, min(4 * window, WIDE, deps.settings.scheduling.window))
            continue
        if len(waiting) < window or window >= deps.settings.scheduling.window:
            return view, room
        window = deps.settings.scheduling.window


def _may_go_on(view: View) -> bool:
    """Whether something is left to decide where nothing is free: somebody may be asked to go, or
    there are newcomers who have not heard yet that they wait."""
    preempts = any(each.pool.preemption for each in view.pools)
    return preempts or len(view.waiting) >= apply.MAX_NEWCOMERS
