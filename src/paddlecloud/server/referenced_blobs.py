"""Which contents the snapshots of an owner name, remembered from one collection to the next.

To take all snapshots apart again costs much work, and they never change: they come, and the oldest
go. When one has gone, those of its contents that none read after it names may still be named by
one read before it. Only these are read again, and there are few: the ones in use longest ago are
read first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import snapshots

KEPT = 200_000
"""Contents remembered of all owners, in some 40 MB. Of those who do not fit all is read again."""


class Named:
    """The contents that the snapshots of one owner name."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._numbers: dict[str, int] = {}
        """Of each snapshot, by its id, in the order in which they were read."""
        self._last: dict[str, int] = {}
        """Of each content the number of the last snapshot that names it."""
        self._reads = 0

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._last

    def __len__(self) -> int:
        return len(self._last)

    def look(self, db: Database) -> None:
        """Learn what is named now, a snapshot a transaction: a long one is in the way of others."""
        ids = db.read(lambda tx: snapshots.ids_by_use(tx, self._owner))
        again = self._forget(self._numbers.keys() - set(ids))
        for snapshot_id in ids:
            if snapshot_id not in self._numbers or snapshot_id in again:
                self._read(db, snapshot_id)

    def _forget(self, gone: Iterable[str]) -> set[str]:
        """Which snapshots may name what these were the last to name."""
        numbers = {self._numbers.pop(snapshot_id) for snapshot_id in gone}
        alone = [sha256 for sha256, number in self._last.items() if number in numbers]
        newest = max((self._last.pop(sha256) for sha256 in alone), default=0)
        return {snapshot_id for snapshot_id, number in self._numbers.items() if number < newest}

    def _read(self, db: Database, snapshot_id: str) -> None:
        found = db.read(lambda tx: snapshots.get_digests(tx, self._owner, snapshot_id))
        if found is not None:
            self._reads += 1
            self._numbers[snapshot_id] = self._reads
            for sha256 in found:
                self._last[sha256] = self._reads


class NamedByOwner:
    """What is remembered, by owner; whoever uses one has it alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Named] = {}

    def take(self, owner: str) -> Named:
        with self._lock:
            return self._kept.pop(owner, None) or Named(owner)

    def give_back(self, owner: str, named: Named) -> None:
        with self._lock:
            if len(named) + sum(map(len, self._kept.values())) <= KEPT:
                self._kept[owner] = named
