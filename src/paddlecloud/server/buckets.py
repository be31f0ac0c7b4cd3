"""What serves the agents of jobs whose files lie in buckets, kept from one request to the next.

Opening a bucket costs an unsealing, and the list of a job's files is asked for a part at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from paddlecloud.model.errors import PaddleCloudError

if TYPE_CHECKING:
    from paddlecloud.stores.s3 import S3Store

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """A bucket that did not answer."""

    times: int
    """In a row."""
    until: datetime
    """It is not asked before."""
    error: PaddleCloudError


class Buckets:
    """By job. Safe for several threads."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._open: dict[str, S3Store] = {}

    def get(self, job_id: str, make: Callable[[], S3Store]) -> S3Store:
        with self._lock:
            store = self._open.pop(job_id, None)
        store = store or make()
        with self._lock:
            store = self._open.setdefault(job_id, store)
            while len(self._open) > self._size:
                # Somebody may be at it: only what is idle is closed.
                self._open.pop(next(iter(self._open))).wire.close()
        return store

    def put(self, job_id: str, store: S3Store) -> None:
        """From now on this one is the bucket of the job."""
        with self._lock:
            former = self._open.pop(job_id, None)
            self._open[job_id] = store
        if former is not None:
            former.wire.close()

    def close(self) -> None:
        """Give back all threads and connections; whoever comes later opens buckets anew."""
        with self._lock:
            known, self._open = list(self._open.values()), {}
        for store in known:
            store.close()


class Recent(Generic[T]):
    """The last few of some values that never change, by owner and snapshot."""

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], T] = {}

    def get(self, key: tuple[str, str], find: Callable[[], T]) -> T:
        with self._lock:
            found = self._kept.pop(key, None)
        found = find() if found is None else found
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > self._size:
                self._kept.pop(next(iter(self._kept)))
        return found
