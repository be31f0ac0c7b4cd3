"""Replicas that said something lately, so that a line of a log costs one small question.

What is kept here is used only while the database says that it is still true: the state of the
replica and the version of its job, which every change of the job raises. Nothing else that the log
of a replica depends on changes during its life.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")
Mark = tuple[str, int]
"""The state of a replica and the version of its job."""
MOST = 1024


class Speaking(Generic[T]):
    """What was read of each replica, with the mark that it had then. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Mark, T]] = {}

    def get(self, replica_id: str, mark: Mark | None) -> T | None:
        """What is known of it, if that is as old as its mark."""
        kept = self._kept.get(replica_id)
        return kept[1] if kept is not None and kept[0] == mark else None

    def keep(self, replica_id: str, mark: Mark, value: T) -> None:
        with self._lock:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[replica_id] = mark, value
