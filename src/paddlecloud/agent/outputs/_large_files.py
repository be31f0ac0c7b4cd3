"""The queue of a running replica's large files, which separate threads send.

So small files, and those of other replicas, are not delayed. A thread only makes the attempt; its
outcome is handled by the thread that scans the replica's files (`_replica_outputs`).
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
    """What was sent and its digest; None when it changed while it was sent."""

#: Share of one thread's time that may be work for a running job. Waiting for the network is none.
LOAD = 0.05


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one attempt to send a file."""

    found: Found
    sent: Sent
    error: Exception | None
    not_before: float
    """It is not tried again before, while its job runs (monotonic)."""

    def result(self) -> Sent:
        """What was sent. Raises the error of the attempt."""
        if self.error is not None:
            raise self.error
        return self.sent


def attempt(found: Found, put: Callable[[], Sent]) -> Outcome:
    """The outcome of `put`. The file is not tried again for as long as it took, or longer if it was
    much work: one that changes all the time leaves half of a slow line to others."""
    began, worked = time.monotonic(), time.thread_time()
    sent, error = None, None
    try:
        sent = put()
    except Exception as caught:  # noqa: BLE001 - raised by `result`
        error = caught
    now = time.monotonic()
    rest = max(now - began, (time.thread_time() - worked) / LOAD)
    return Outcome(found=found, sent=sent, error=error, not_before=now + rest)


class LargeFileQueue:
    """The large files of one replica that wait, and the outcomes of attempts. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        """Of those that wait, are under way, or whose outcome was not handled."""
        self._waiting: deque[Found] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._asked = False
        """The replica is queued for a thread."""
        self._under_way = False

    def has(self, name: str) -> bool:
        return name in self._names

    def add(self, found: Found) -> bool:
        """Queue a file; whether the replica has to be queued for a thread."""
        with self._lock:
            self._names.add(found.name)
            self._waiting.append(found)
            asked, self._asked = self._asked, True
            return not asked

    def next_file(self) -> Found | None:
        """The file to send now; its outcome goes to `end`."""
        with self._lock:
            found = self._waiting.popleft() if self._waiting else None
            self._asked = self._under_way = found is not None
            return found

    def end(self, outcome: Outcome) -> None:
        with self._lock:
            self._outcomes.append(outcome)
            self._under_way = False

    def next_outcome(self) -> Outcome | None:
        """The next outcome, if there is one."""
        with self._lock:
            if not self._outcomes:
                return None
            outcome = self._outcomes.popleft()
            self._names.discard(outcome.found.name)
            return outcome

    def close(self) -> bool:
        """Drop those that wait, because the replica ended; whether none is under way."""
        with self._lock:
            self._names.difference_update(found.name for found in self._waiting)
            self._waiting.clear()
            return not self._under_way
