"""When a replica's processes are asked to end and when they are forced to. Pure: no clock, no kill.

The course of a replica: it runs; something ends it (its main process ended, a stop was asked, the
wall time is over); every process gets one SIGTERM; when the grace is over, SIGKILL, again and again
until the kernel knows no child any more. One SIGTERM only, because what a process starts while it
saves its work must not be hit by a second one.
"""

from __future__ import annotations

import enum

from paddlecloud.agent.replica.records import CAUSE_EXIT, CAUSE_WALL_TIME

LEFTOVER_GRACE = 2.0
"""Seconds that processes get which outlive the main one of their own accord."""
_KILL_AGAIN = 0.02
_KILL_AGAIN_MOST = 1.0


class Act(enum.Enum):
    TERMINATE = "terminate"
    KILL = "kill"


class Course:
    """Times are seconds of one clock that the caller reads (`now`)."""

    def __init__(self, *, now: float, max_seconds: float | None, grace: float) -> None:
        self.cause = CAUSE_EXIT
        self.main_over = False
        self._wall_at = None if max_seconds is None else now + max_seconds
        self._grace = grace
        self._kill_at: float | None = None
        self._terminated = False
        self._again = _KILL_AGAIN

    def stop(self, *, cause: str, grace: float, now: float) -> None:
        """Ask for the end. The first cause counts; a later wish can only shorten the grace."""
        if not self.main_over and self._kill_at is None:
            self.cause = cause
        self._end_by(now + grace)

    def main_ended(self, now: float) -> None:
        """The main process is over; the others keep the grace that they were given, if any."""
        self.main_over = True
        if self._kill_at is None:
            self._end_by(now + LEFTOVER_GRACE)

    def act(self, now: float) -> Act | None:
        """What has to be done now, if anything."""
        if self._kill_at is None and self._wall_at is not None and now >= self._wall_at:
            self.stop(cause=CAUSE_WALL_TIME, grace=self._grace, now=now)
        if self._kill_at is None:
            return None
        if now >= self._kill_at:
            self._kill_at = now + self._again
            self._again = min(self._again * 2, _KILL_AGAIN_MOST)
            return Act.KILL
        if not self._terminated:
            self._terminated = True
            return Act.TERMINATE
        return None

    def wake_after(self, now: float) -> float | None:
        """Seconds until `act` has something to do by itself; None when only an event can."""
        due = self._kill_at if self._kill_at is not None else self._wall_at
        return None if due is None else max(0.0, due - now)

    def _end_by(self, due: float) -> None:
        self._kill_at = due if self._kill_at is None else min(self._kill_at, due)
