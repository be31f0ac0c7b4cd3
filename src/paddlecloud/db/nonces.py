"""Which signed requests were used: answered from memory, kept in the database.

Every request spends a nonce, so a transaction each would cost more than most of the requests. An
SQLite database has one server by design (it holds a lock for its life), so that server may answer
from memory and write behind, many at a time; what a crash can forget is the last fraction of a
second. A database that several servers share has to ask it each time (`coordination.spend_nonce`).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime

from paddlecloud.db import coordination
from paddlecloud.db.base import Database, Tx

Key = tuple[str, str]
BUCKET = 60
"""Seconds of expiry that are forgotten together: nobody walks over every nonce to find the old."""


class WriteBehindNonces:
    """Not for several threads: the event loop is its only user."""

    def __init__(self, db: Database, now: datetime) -> None:
        self._db = db
        self._buckets: dict[int, set[int]] = {}
        """Hashes of 64 bits that an attacker cannot choose: a third of the memory of the texts, and
        two that are alike by chance would only make one client sign its request again."""
        self._unwritten: dict[Key, int] = {}
        self._sent: tuple[Future[None], Mapping[Key, int]] | None = None
        for key, expires_at in db.read(lambda tx: coordination.live_nonces(tx, now)):
            self._buckets.setdefault(expires_at // BUCKET, set()).add(hash(key))

    def spend(self, ak: str, nonce: str, expires_at: int) -> bool:
        """True for the first that spends this nonce of this key; until when it matters is given."""
        key = (ak, nonce)
        mark = hash(key)
        for bucket in self._buckets.values():
            if mark in bucket:
                return False
        self._buckets.setdefault(expires_at // BUCKET, set()).add(mark)
        self._unwritten[key] = expires_at
        return True

    def flush(self, now: datetime) -> bool:
        """Hand what is new to the database, without waiting, and forget what has expired.

        True when nothing is left to do. What the database could not keep is handed over again.
        """
        for minute in [m for m in self._buckets if (m + 1) * BUCKET < now.timestamp()]:
            del self._buckets[minute]
        if self._sent is not None and not self._settle(*self._sent):
            return False
        batch, self._unwritten = self._unwritten, {}
        if batch:
            self._sent = self._db.submit(lambda tx: _write(tx, batch), durable=False), batch
        return not batch

    def _settle(self, writing: Future[None], batch: Mapping[Key, int]) -> bool:
        """False while the last batch is on its way; one that failed is to be written again."""
        if not writing.done():
            return False
        if writing.cancelled() or writing.exception() is not None:
            self._unwritten = {**batch, **self._unwritten}
        self._sent = None
        return True


def _write(tx: Tx, spent: Mapping[Key, int]) -> None:
    for (ak, nonce), until in spent.items():
        coordination.spend_nonce(tx, ak, nonce, datetime.fromtimestamp(until, UTC))
