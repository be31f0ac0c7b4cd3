"""What serves the agents of jobs whose files lie in buckets, kept from one request to the next.

Opening a bucket costs an unsealing, and the list of a job's files is asked for a part at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from paddlecloud.model.errors import PaddleCloudError

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

T = TypeVar("T", bound=Sized)
_TURNS = 64
"""Locks that the lists share: few wait for another than their own."""
_EACH = 100
"""What a list counts for beside its files: there may be many without any."""


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """A bucket that did not answer."""

    times: int
    """In a row."""
    since: datetime
    """When it was asked last."""
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
    """Some lists of files that never change, those that were asked for last, by owner and snapshot.

    The replicas of a job ask for the same list at the same time: one finds it for all. The last one
    is kept however long it is, for it is asked for a part at a time.
    """

    def __init__(self, most: int = 200_000) -> None:
        """`most` files in all; an entry takes about 400 bytes."""
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], T] = {}
        self._size = 0
        self._turns = [threading.Lock() for _ in range(_TURNS)]

    def get(self, key: tuple[str, str], find: Callable[[], T]) -> T:
        found = self._known(key)
        if found is not None:
            return found
        with self._turns[hash(key) % _TURNS]:
            found = self._known(key)
            if found is None:
                found = find()
                self._keep(key, found)
            return found

    def _known(self, key: tuple[str, str]) -> T | None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
            return found

    def _keep(self, key: tuple[str, str], found: T) -> None:
        with self._lock:
            self._kept[key] = found
            self._size += _EACH + len(found)
            while self._size > self._most and len(self._kept) > 1:
                self._size -= _EACH + len(self._kept.pop(next(iter(self._kept))))
