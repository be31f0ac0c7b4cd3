"""Elapsed time from the monotonic clock, corrected for suspend and clock changes.

A laptop sleeps, and a clock is set forward and back again. What is stored carries the wall clock's
time; how long something ran, or was silent, is counted here by steps of the monotonic clock.
Nothing here reads a clock: the loops pass in the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paddlecloud.db.tables.agents import CONTACT_EVERY

FRESH = 2 * CONTACT_EVERY + timedelta(seconds=35)
"""An agent with a contact within this time is there: a poll lasts 30 s, and is stored within a few
more."""
LONGEST_STEP = 5.0
"""Seconds. Of a longer step the rest was not observed: this process may have been suspended."""
NOTHING = timedelta(0)
Run = tuple[str, int]
"""A job and the number of its attempt."""


@dataclass
class Steps:
    """From one call to the next: the elapsed time, and how far the wall clock jumped beyond it."""

    now: datetime | None = None
    """The wall clock at the last call."""
    seconds: float = 0.0
    """The monotonic clock at the last call."""

    def advance(self, now: datetime, seconds: float) -> tuple[timedelta, timedelta]:
        """The elapsed time, and the jump; none for a difference so small that it may be a clock
        that is being synchronised, or the moment between two readings."""
        if self.now is None:
            self.now, self.seconds = now, seconds
        passed = timedelta(seconds=seconds - self.seconds)
        ahead = now - self.now - passed
        self.now, self.seconds = now, seconds
        return passed, ahead if abs(ahead.total_seconds()) > LONGEST_STEP else NOTHING


@dataclass
class Stopwatches:
    """How long each attempt has run, without the time that this machine was suspended.

    At the first call the wall clock decides. An attempt that is new at a later call has run since
    the call before at most, so a jump between the two counts for no more than that. If it began
    earlier and was reported late, too little is counted: better late than too early.
    """

    _ran: dict[Run, timedelta] | None = None

    def advance(
        self, since: Mapping[Run, datetime], now: datetime, passed: timedelta
    ) -> dict[Run, timedelta]:
        """`since`: when each began by the wall clock; `passed`: time since the last call."""
        known, first_call = self._ran or {}, self._ran is None
        self._ran = {}
        for run, began in since.items():
            if run in known:
                self._ran[run] = known[run] + passed
            else:
                ran = max(now - began, NOTHING)
                self._ran[run] = ran if first_call else min(ran, passed)
        return self._ran


@dataclass
class Silences:
    """For how many seconds each machine was observed to be silent.

    A time of contact that has changed since the last call is a sign of life, whatever its value is.
    The value counts only at the first call, when nothing else is known.
    """

    _contacts: dict[str, tuple[datetime | None, float]] = field(default_factory=dict)
    """The last contact of each machine, and for how many seconds it has not changed."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of machines that are silent for longer than a reachable one can be."""
        most = FRESH.total_seconds()
        return {node: old - most for node, (_, old) in self._contacts.items() if old > most}

    def advance(
        self, nodes: Collection[str], contacts: Mapping[str, datetime], now: datetime, passed: float
    ) -> dict[str, float]:
        """`contacts`: when the last contact with each was, by the clock of the server that had it;
        `passed`: seconds since the last call."""
        step = min(passed, LONGEST_STEP)
        self._contacts = {
            node: (contacts.get(node), self._age(node, contacts.get(node), now, step))
            for node in nodes
        }
        return self.seconds

    def _age(self, node: str, at: datetime | None, now: datetime, step: float) -> float:
        if node in self._contacts:
            before, old = self._contacts[node]
            return old + step if at == before else 0.0
        return step + (FRESH if at is None else min(abs(now - at), FRESH)).total_seconds()
