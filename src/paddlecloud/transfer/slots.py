"""A fair semaphore: bounds how many parts of large files are in memory at a time."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from threading import Event, Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Slots:
    """A few slots, given out in the order in which they were asked for: a thread that releases one
    and asks again is behind those that wait. Safe for several threads."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._free = count
        self._waiting: deque[Event] = deque()

    def acquire(self) -> None:
        """Wait for a slot."""
        turn = Event()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            self._waiting.append(turn)
        turn.wait()

    def release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
