"""Time that passed in truth, told apart from what was done to the clock.

A laptop sleeps, and a clock is set forward, and back again later. What is written down carries the
time of the clock; how long something ran, or was silent, is counted here by steps that nobody can
set. Nothing here asks a clock: the watch loop tells what its clocks say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paddlecloud.db.tables.agents import SEEN_EVERY

FRESH = 2 * SEEN_EVERY + timedelta(seconds=35)
"""Whoever was heard of within this time is there: a question lasts 30 s, and is written down within
a few more."""
LONGEST_STEP = 5.0
"""More than that between two looks nobody has watched: this process may have been away itself."""
NOTHING = timedelta(0)
Run = tuple[str, int]
"""A job and the number of its attempt."""


@dataclass
class Steps:
    """From look to look: the time that passed, and how far the clock was moved beyond that."""

    now: datetime | None = None
    """What the clock said at the last look."""
    seconds: float = 0.0
    """What a clock said then that nobody can set."""

    def look(self, now: datetime, seconds: float) -> tuple[timedelta, timedelta]:
        """What passed, and the jump: nothing for so little that it may be a clock that is kept
        right, or a moment between two looks."""
        if self.now is None:
            self.now, self.seconds = now, seconds
        passed = timedelta(seconds=seconds - self.seconds)
        ahead = now - self.now - passed
        self.now, self.seconds = now, seconds
        return passed, ahead if abs(ahead.total_seconds()) > LONGEST_STEP else NOTHING


@dataclass
class Stopwatches:
    """How long each attempt has run, without the time that this machine slept.

    What ran before the first look is believed to the clock. Whoever is new at a later look has run
    since the one before at most, so a jump between the two counts for no more than that. If it had
    begun earlier and was told of late, too little is counted: better late than too early.
    """

    _ran: dict[Run, timedelta] | None = None

    def look(
        self, since: Mapping[Run, datetime], now: datetime, passed: timedelta
    ) -> dict[Run, timedelta]:
        """`since` when they run, by the clock, `passed` since the last look."""
        known = self._ran or {}
        most = None if self._ran is None else passed
        self._ran = {
            run: known[run] + passed if run in known else _at_first(now - began, most)
            for run, began in since.items()
        }
        return self._ran


def _at_first(ran: timedelta, most: timedelta | None) -> timedelta:
    ran = max(ran, NOTHING)
    return ran if most is None else min(ran, most)


@dataclass
class Silences:
    """For how many seconds each machine was watched being silent.

    A note of it that has changed since the last look is a sign of life, whatever time it carries.
    That time counts for nothing but at the first look, when there is nothing else to go by.
    """

    _notes: dict[str, tuple[datetime | None, float]] = field(default_factory=dict)
    """The last note of each machine, and for how many seconds it has not changed."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of those that are silent for longer than one may be that is there."""
        most = FRESH.total_seconds()
        return {node: old - most for node, (_, old) in self._notes.items() if old > most}

    def look(
        self, nodes: Collection[str], heard: Mapping[str, datetime], now: datetime, passed: float
    ) -> dict[str, float]:
        """`heard`: when each was last heard of, by the clock of whoever wrote it down."""
        step = min(passed, LONGEST_STEP)
        self._notes = {
            node: (heard.get(node), self._age(node, heard.get(node), now, step)) for node in nodes
        }
        return self.seconds

    def _age(self, node: str, at: datetime | None, now: datetime, step: float) -> float:
        if node in self._notes:
            before, old = self._notes[node]
            return old + step if at == before else 0.0
        return step + (FRESH if at is None else min(abs(now - at), FRESH)).total_seconds()
