"""Decides when the processes of a replica get SIGTERM and SIGKILL. Pure: no clock, no signals.

A replica runs until something ends it: its main process ended, a stop was requested, or the wall
time is over. Then every process gets SIGTERM once, and when the grace is over SIGKILL, repeatedly,
until no child is left. SIGTERM only once, because what a process starts to save its work must not
be hit by a second one.
"""

from __future__ import annotations

import enum

from paddlecloud.agent.replica.records import CAUSE_EXIT, CAUSE_WALL_TIME

LEFTOVER_GRACE = 2.0
"""Seconds for processes that outlive the main one when nothing else ended the replica."""
_KILL_AGAIN = 0.02
_KILL_AGAIN_LONGEST = 1.0


class Action(enum.Enum):
    TERMINATE = "terminate"
    KILL = "kill"


class Shutdown:
    """Times are seconds of one clock, which the caller reads (`now`)."""

    def __init__(self, *, now: float, wall_time: float | None, grace: float) -> None:
        self.cause = CAUSE_EXIT
        self._main_has_ended = False
        self._wall_time_at = None if wall_time is None else now + wall_time
        self._grace = grace
        self._kill_at: float | None = None
        self._terminated = False
        self._kill_again = _KILL_AGAIN

    def stop(self, *, cause: str, grace: float, now: float) -> None:
        """Request the end. The first cause counts; a later request can only shorten the grace."""
        if not self._main_has_ended and self._kill_at is None:
            self.cause = cause
        self._kill_by(now + grace)

    def main_ended(self, now: float) -> None:
        """The main process ended; the others keep the grace that they were given, if any."""
        self._main_has_ended = True
        if self._kill_at is None:
            self._kill_by(now + LEFTOVER_GRACE)

    def next_action(self, now: float) -> Action | None:
        """What has to be done now, if anything."""
        if self._kill_at is None and self._wall_time_at is not None and now >= self._wall_time_at:
            self.stop(cause=CAUSE_WALL_TIME, grace=self._grace, now=now)
        if self._kill_at is None:
            return None
        if now >= self._kill_at:
            self._kill_at = now + self._kill_again
            self._kill_again = min(self._kill_again * 2, _KILL_AGAIN_LONGEST)
            return Action.KILL
        if not self._terminated:
            self._terminated = True
            return Action.TERMINATE
        return None

    def seconds_left(self, now: float) -> float | None:
        """Seconds until the next action that only time brings; None when an event has to come."""
        due = self._kill_at if self._kill_at is not None else self._wall_time_at
        return None if due is None else max(0.0, due - now)

    def _kill_by(self, due: float) -> None:
        self._kill_at = due if self._kill_at is None else min(self._kill_at, due)
