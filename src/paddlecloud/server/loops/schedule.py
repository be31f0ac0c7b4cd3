"""Finds places for waiting jobs: view, plan, apply. Woken by a submit and by every freed place."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.scheduler.plan import plan
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import placement
from paddlecloud.server.services.jobs import SCHEDULE_BELL


def tick(deps: Deps, now: datetime) -> None:
    view, waiting = placement.read_view(deps, now)
    if waiting:
        placement.apply(deps, plan(view), waiting, now)


LOOP = Loop(name="schedule", tick=tick, every=timedelta(seconds=5), bell=SCHEDULE_BELL)
