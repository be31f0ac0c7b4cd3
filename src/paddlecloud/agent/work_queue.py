"""A queue of replicas, each with the time of its turn."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddlecloud.agent.registry import Tracked


class WorkQueue:
    """Replicas that wait for a thread, each until its time. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Tracked]] = []
        self._order = itertools.count()
        self._closed = False

    def put(self, tracked: Tracked, due: float = 0.0) -> None:
        """Its turn is at `due` (monotonic seconds), behind those that are due before."""
        with self._changed:
            heapq.heappush(self._waiting, (due, next(self._order), tracked))
            self._changed.notify()

    def take(self) -> Tracked | None:
        """Wait for the next one; None when the queue is closed."""
        with self._changed:
            while not self._closed:
                pause = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if pause is not None and pause <= 0:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(pause)
        return None

    def withdraw(self, tracked: Tracked) -> bool:
        """Remove it; whether it was here."""
        with self._changed:
            left = [waiting for waiting in self._waiting if waiting[2] is not tracked]
            waited = len(left) < len(self._waiting)
            heapq.heapify(left)
            self._waiting = left
            return waited

    def hurry(self, tracked: Tracked | None = None) -> None:
        """Its turn is now, or that of all: what they wait for may have come."""
        with self._changed:
            for index, (due, number, waiting) in enumerate(self._waiting):
                hurried = tracked is None or waiting is tracked
                self._waiting[index] = (0.0 if hurried else due, number, waiting)
            heapq.heapify(self._waiting)
            self._changed.notify_all()

    def close(self) -> None:
        """Let every `take` end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
