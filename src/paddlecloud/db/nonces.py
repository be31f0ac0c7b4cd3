"""Which signed requests were used: answered from memory, kept in the database.

Every request spends a nonce, so a transaction each would cost more than most of the requests. An
SQLite database has one server by design (it holds a lock for its life), so that server may answer
from memory and write behind, many at a time; what a crash can forget is the last fraction of a
second. A database that several servers share has to ask it each time (`coordination.spend_nonce`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from paddlecloud.db import coordination
from paddlecloud.db.base import Database, Tx

Key = tuple[str, str]


class WriteBehindNonces:
    """Not for several threads: the event loop is its only user."""

    def __init__(self, db: Database, now: datetime) -> None:
        self._db = db
        self._seen = dict(db.read(lambda tx: coordination.live_nonces(tx, now)))
        self._unwritten: dict[Key, int] = {}

    def spend(self, ak: str, nonce: str, expires_at: int) -> bool:
        """True for the first that spends this nonce of this key; until when it matters is given."""
        key = (ak, nonce)
        if key in self._seen:
            return False
        self._seen[key] = self._unwritten[key] = expires_at
        return True

    def flush(self, now: datetime) -> None:
        """Hand what is new to the database, without waiting, and forget what has expired."""
        unwritten, self._unwritten = self._unwritten, {}
        if unwritten:
            self._db.submit(lambda tx: _write(tx, unwritten.items()), durable=False)
        oldest = next(iter(self._seen.values()), None)
        if oldest is not None and oldest < now.timestamp():
            alive = now.timestamp()
            self._seen = {key: until for key, until in self._seen.items() if until >= alive}


def _write(tx: Tx, spent: Iterable[tuple[Key, int]]) -> None:
    for (ak, nonce), until in spent:
        coordination.spend_nonce(tx, ak, nonce, datetime.fromtimestamp(until, UTC))
