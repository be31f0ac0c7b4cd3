"""Places waiting jobs: woken by a submit and whenever capacity comes free."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from paddlecloud.db.tables import usage
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import CAPACITY_CHANNEL, SCHEDULE_CHANNEL
from paddlecloud.server.loops._clock_jumps import Steps
from paddlecloud.server.loops._schedule_cache import PlannerCache
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.placement import elastic

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
        at, has_capacity = self.planner.plan_all(deps, now)
        elastic.resize(deps, now)
        if not has_capacity:
            capacity_freed.wait(GATHER)
        return None if at is None else (at - now).total_seconds()
