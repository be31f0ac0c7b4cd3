"""How many searches in logs run. Each is a process, and a reader who takes nothing holds one: so
there are only so many at a time, and few of one person."""

from __future__ import annotations

import threading
from collections import Counter

from paddlecloud.model.errors import TooMany

MOST = 8
MOST_OF_ONE = 3
PAUSE = 5
"""Seconds after which it is worth asking again."""


class Searches:
    """How many run, in all and of each person."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    def enter(self, user: str) -> None:
        """One more; TooMany when there are enough."""
        with self._lock:
            total, own = self._running.total(), self._running[user]
            if own >= MOST_OF_ONE:
                raise TooMany("grep_busy", running=own, limit=MOST_OF_ONE, seconds=PAUSE)
            if total >= MOST:
                raise TooMany("grep_busy", running=total, limit=MOST, seconds=PAUSE)
            self._running[user] += 1

    def leave(self, user: str) -> None:
        with self._lock:
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]
