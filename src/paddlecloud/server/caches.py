"""In-memory caches of one server process. Whatever they hold can be read or computed again.

`TtlCache` keeps values for a fixed time, `LruCache` keeps a bounded number of them, and `Caches` is
the set that the services share as `deps.caches`. All are safe for several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sized
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from paddlecloud.db.tables import notification_prefs
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.machines import Machine
from paddlecloud.db.tables.user_buckets import Tags

if TYPE_CHECKING:
    from paddlecloud.server.services.agents.assignment import Assigned
    from paddlecloud.server.services.files.referenced_blobs import ReferencedBlobs
    from paddlecloud.server.services.user_buckets.logs import SilentBucket
    from paddlecloud.stores.s3.store import S3Store

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_LOAD_LOCKS = 64
"""Locks that the keys of a cache share while values are loaded."""
_FILE_ENTRIES = 200_000
"""Files in all cached file lists of one kind; an entry takes about 400 bytes."""
_EMPTY_LIST = 100
"""Entries that a file list counts for in addition to its files, since many may be empty."""


class TtlCache(Generic[V]):
    """Values that expire `ttl` after they were stored; without a key it holds a single value.

    Every operation is one step on a dict, so it needs no lock.
    """

    def __init__(self, ttl: timedelta, size: int = 10_000) -> None:
        self._ttl = ttl
        self._size = size
        self._values: dict[Hashable, tuple[V, datetime]] = {}
        self._generation = 0

    def get(self, now: datetime, key: Hashable = None) -> V | None:
        kept = self._values.get(key)
        # A clock that was set back must not make a value last longer.
        return kept[0] if kept and kept[1] <= now < kept[1] + self._ttl else None

    def put(self, now: datetime, value: V, key: Hashable = None) -> None:
        if len(self._values) >= self._size:
            self._values.clear()
        self._values[key] = value, now

    def load(self, now: datetime, make: Callable[[], V], key: Hashable = None) -> V:
        """The cached value, or what `make` returns."""
        found = self.get(now, key)
        if found is None:
            generation = self._generation
            found = make()
            if generation == self._generation:
                self.put(now, found, key)
        return found

    def clear(self) -> None:
        """The values have changed. A load that is in progress is not cached either."""
        self._generation += 1
        self._values.clear()


class LruCache(Generic[K, V]):
    """The most recently used values, up to a total weight.

    Threads that miss the same key at the same time load it once. The last value stored is kept
    whatever it weighs.
    """

    def __init__(
        self,
        limit: int,
        weigh: Callable[[V], int] = lambda _: 1,
        on_evict: Callable[[V], object] = lambda _: None,
    ) -> None:
        self._limit = limit
        self._weigh = weigh
        self._on_evict = on_evict
        self._lock = threading.Lock()
        self._values: dict[K, tuple[V, int]] = {}
        self._weight = 0
        self._load_locks = [threading.Lock() for _ in range(_LOAD_LOCKS)]

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        with self._lock:
            kept = self._values.pop(key, None)
            if kept is None:
                return None
            self._values[key] = kept
            return kept[0]

    def put(self, key: K, value: V) -> None:
        with self._lock:
            evicted = self._remove(key)
            weight = self._weigh(value)
            self._values[key] = value, weight
            self._weight += weight
            while self._weight > self._limit and len(self._values) > 1:
                evicted += self._remove(next(iter(self._values)))
        for each in evicted:
            self._on_evict(each)

    def load(self, key: K, make: Callable[[], V]) -> V:
        """The cached value, or what `make` returns."""
        found = self.get(key)
        if found is not None:
            return found
        with self._load_locks[hash(key) % _LOAD_LOCKS]:
            found = self.get(key)
            if found is None:
                found = make()
                self.put(key, found)
            return found

    def pop(self, key: K) -> V | None:
        """Remove a value and return it."""
        with self._lock:
            removed = self._remove(key)
        return removed[0] if removed else None

    def clear(self) -> list[V]:
        """Remove all values and return them."""
        with self._lock:
            return [value for key in list(self._values) for value in self._remove(key)]

    def _remove(self, key: K) -> list[V]:
        kept = self._values.pop(key, None)
        if kept is None:
            return []
        self._weight -= kept[1]
        return [kept[0]]


SnapshotKey = tuple[str, str]
"""Owner and snapshot id."""


class Caches:
    def __init__(self) -> None:
        self.snapshot_blobs: LruCache[SnapshotKey, Mapping[str, int]] = _file_lists()
        """Size by digest, in order."""
        self.snapshot_files: LruCache[SnapshotKey, Mapping[str, tuple[str, int]]] = _file_lists()
        """Digest and size by path."""
        self.bucket_tags: LruCache[SnapshotKey, Tags] = _file_lists()
        """Path and ETag by mark, for a snapshot in a user's bucket."""
        self.bucket_marks: LruCache[SnapshotKey, Mapping[str, str]] = _file_lists()
        """Mark by path, for a snapshot in a user's bucket."""
        self.referenced_blobs: LruCache[str, ReferencedBlobs] = LruCache(200_000, weigh=len)
        """Digests that the snapshots of an owner reference, in some 40 MB."""

        self.open_buckets: LruCache[str, S3Store] = LruCache(32, on_evict=_close_idle)
        """By job id; opening one decrypts its keys."""
        self.silent_buckets: LruCache[str, SilentBucket] = LruCache(10_000)
        """Buckets that do not answer, by name."""
        self.moved_logs: LruCache[tuple[str, int], bool] = LruCache(10_000)
        """Whether the log files of an attempt (job id, number) were moved aside; False: in
        progress."""

        self.machines: TtlCache[tuple[list[Agent], dict[str, Machine]]] = TtlCache(
            timedelta(seconds=1)
        )
        self.order_cursors: LruCache[str, int] = LruCache(10_000)
        """The last order that an agent acknowledged to this server, by node."""
        self.sent_peers: LruCache[str, list[str]] = LruCache(10_000)
        """The server URLs that this server sent to an agent last, by node."""
        self.logging_replicas: LruCache[tuple[str, str, int], Assigned] = LruCache(1024)
        """By replica id, replica state and job version: while these are unchanged, everything that
        the log of a replica depends on is too."""

        self.peers: TtlCache[tuple[str, ...]] = TtlCache(timedelta(seconds=2))
        """URLs of the servers on this database."""
        self.decayed_usage: TtlCache[dict[str, float]] = TtlCache(timedelta(minutes=1))
        """Recent resource use of each user."""
        self.subscribers: TtlCache[frozenset[str]] = TtlCache(notification_prefs.CACHE_TTL)
        """Users with notifications: a change of anyone else's job costs no query."""
        self.refused_growth: TtlCache[bool] = TtlCache(timedelta(minutes=5))
        """Elastic jobs, by id, that their pool recently refused to enlarge."""


def _file_lists() -> LruCache[SnapshotKey, Mapping[str, V]]:
    return LruCache(_FILE_ENTRIES, weigh=_entries)


def _entries(files: Sized) -> int:
    return _EMPTY_LIST + len(files)


def _close_idle(store: S3Store) -> None:
    """Requests in progress may finish, so only idle connections are closed."""
    store.client.close()
