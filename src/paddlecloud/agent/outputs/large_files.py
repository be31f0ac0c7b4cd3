"""The large files of a replica that runs: another thread sends them, one after the other, so that
its small ones, and those of other replicas, go on at their interval.

That thread only tries. What came of it is told to the one that goes through the files of the
replica (`agent.outputs.shipper`), which alone decides about them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.agent.outputs.scan import Found

    Sent = tuple[Found, str] | None
    """What was sent and its digest; None when it changed meanwhile."""

#: This part of one thread's time may be work for a job that runs. To wait for a line is no work.
LOAD = 0.05


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one try to send a file."""

    found: Found
    sent: Sent
    error: Exception | None
    not_before: float
    """Until then it is left alone while its job runs (monotonic)."""

    def result(self) -> Sent:
        """What was sent. Raises what went wrong."""
        if self.error is not None:
            raise self.error
        return self.sent


def tried(found: Found, put: Callable[[], Sent]) -> Outcome:
    """The outcome of `put`. The more work it was the longer the file is left alone, and for as long
    as it took: one that changes all the time leaves half of a slow line to others."""
    began, worked = time.monotonic(), time.thread_time()
    sent, error = None, None
    try:
        sent = put()
    except Exception as caught:  # noqa: BLE001 - whoever takes it up raises it
        error = caught
    now = time.monotonic()
    rest = max(now - began, (time.thread_time() - worked) / LOAD)
    return Outcome(found=found, sent=sent, error=error, not_before=now + rest)


class Aside:
    """Files of one replica that wait for that thread, and what came of them. Safe for several
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        """Of those that wait, are under way, or whose outcome was not taken up."""
        self._waiting: deque[Found] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._asked = False
        """A thread was asked for, and has not found everything done."""
        self._under_way = False

    def has(self, name: str) -> bool:
        return name in self._names

    def add(self, found: Found) -> bool:
        """Let it wait; whether a thread has to be asked for."""
        with self._lock:
            self._names.add(found.name)
            self._waiting.append(found)
            asked, self._asked = self._asked, True
            return not asked

    def next(self) -> Found | None:
        """The file to send now; `end` has to be told of it."""
        with self._lock:
            found = self._waiting.popleft() if self._waiting else None
            self._asked = self._under_way = found is not None
            return found

    def end(self, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes.append(outcome)
            self._under_way = False

    def take_up(self) -> Outcome | None:
        """What came of one of them, told once."""
        with self._lock:
            if not self._outcomes:
                return None
            outcome = self._outcomes.popleft()
            self._names.discard(outcome.found.name)
            return outcome

    def close(self) -> bool:
        """Let none begin any more, because the replica is over; whether none is under way."""
        with self._lock:
            self._names.difference_update(found.name for found in self._waiting)
            self._waiting.clear()
            return not self._under_way
