"""Finds places for waiting jobs: view, plan, apply. Woken by a submit and by every freed place."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.scheduler.plan import plan, wake_at
from paddlecloud.scheduler.view import View, after, has_room
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import elastic, placement
from paddlecloud.server.services.jobs import ROOM_BELL, SCHEDULE_BELL

NARROW = 4
"""Looked at first: nearly always one of these fits, and a long queue costs no more than these."""


GATHER = 0.025
"""Seconds that newcomers wait for each other while nothing is free: a burst is then a few plans."""


def tick(deps: Deps, now: datetime) -> float | None:
    """Plan until nothing more finds a place; then, if nothing is free, wait a moment for room.

    Answers in how many seconds a job ends its pause and wants to be looked at.
    """
    room = deps.hub.bell(ROOM_BELL)
    room.clear()
    elastic.replace_failed(deps, now)
    view, room_left = plan_all(deps, now)
    elastic.resize(deps, now)
    if not room_left:
        room.wait(GATHER)
    at = wake_at(view)
    return None if at is None else (at - now).total_seconds()


def plan_all(deps: Deps, now: datetime) -> tuple[View, bool]:
    """What was seen last when no job finds a place any more, and whether there is room all the
    same. A plan that took the last of it is the last: every newcomer was in its view."""
    window = NARROW
    while True:
        view, waiting = placement.read_view(deps, now, window)
        decisions = plan(view) if waiting else []
        placed = placement.apply(deps, decisions, waiting, now)
        room = has_room(after(view.pools, decisions))
        if not room and not _may_go_on(view):
            return view, room
        if placed:
            continue
        if len(waiting) < window or window >= deps.settings.scheduling.window:
            return view, room
        window = deps.settings.scheduling.window


def _may_go_on(view: View) -> bool:
    """Whether something is left to decide where nothing is free: somebody may be asked to go, or
    there are newcomers who have not heard yet that they wait."""
    preempts = any(each.pool.preemption for each in view.pools)
    return preempts or len(view.waiting) >= placement.MAX_NEWCOMERS


LOOP = Loop(name="schedule", tick=tick, every=timedelta(seconds=5), bell=SCHEDULE_BELL)
