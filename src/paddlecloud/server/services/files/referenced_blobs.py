"""Which blobs the snapshots of an owner reference, kept from one garbage collection to the next.

Reading all snapshots again is expensive, and they never change: new ones are added and the oldest
are deleted. When a snapshot is deleted, a blob that no later one references may still be referenced
by an earlier one. Only those are read again, and they are few, because the snapshots whose last use
is longest ago are read first.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import snapshots


class ReferencedBlobs:
    """The blobs that the snapshots of one owner reference."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._numbers: dict[str, int] = {}
        """Number of each snapshot, by its id, in the order in which they were read."""
        self._last: dict[str, int] = {}
        """Number of the last snapshot that references each blob, by digest."""
        self._reads = 0

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._last

    def __len__(self) -> int:
        return len(self._last)

    def refresh(self, db: Database) -> None:
        """Read what has changed, one snapshot per transaction, because long ones block others."""
        ids = db.read(lambda tx: snapshots.ids_by_use(tx, self._owner))
        again = self._remove(self._numbers.keys() - set(ids))
        for snapshot_id in ids:
            if snapshot_id not in self._numbers or snapshot_id in again:
                self._read(db, snapshot_id)

    def _remove(self, deleted: Iterable[str]) -> set[str]:
        """Which snapshots may reference what these were the last to reference."""
        numbers = {self._numbers.pop(snapshot_id) for snapshot_id in deleted}
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
