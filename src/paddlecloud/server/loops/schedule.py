"""Finds places for waiting jobs: view, plan, apply. Woken by a submit and by every freed place."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.scheduler.plan import plan
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import placement
from paddlecloud.server.services.jobs import ROOM_BELL, SCHEDULE_BELL

NARROW = 4
"""Looked at first: nearly always one of these fits, and a long queue costs no more than these."""


GATHER = 0.025
"""Seconds that newcomers wait for each other while nothing is free: a burst is then a few plans."""


def tick(deps: Deps, now: datetime) -> None:
    """Plan until nothing more finds a place; then, if nothing is free, wait a moment for room."""
    room = deps.hub.bell(ROOM_BELL)
    room.clear()
    if plan_all(deps, now):
        room.wait(GATHER)


def plan_all(deps: Deps, now: datetime) -> bool:
    """Whether nothing is left that a job could have."""
    window = NARROW
    while True:
        view, waiting = placement.read_view(deps, now, window)
        placed = placement.apply(deps, plan(view), waiting, now) if waiting else 0
        if placed:
            continue
        if len(waiting) < window or window >= deps.settings.scheduling.window:
            return not any(node.free.cpu > 0 for pool in view.pools for node in pool.nodes)
        window = deps.settings.scheduling.window


LOOP = Loop(name="schedule", tick=tick, every=timedelta(seconds=5), bell=SCHEDULE_BELL)
