"""Which signed requests were used: answered from memory, kept in the database.

Every request spends a nonce, so a transaction each would cost more than most of the requests. An
SQLite database has one server by design (it holds a lock for its life), so that server may answer
from memory and write behind, many at a time; what a crash can forget is the last fraction of a
second. A database that several servers share has to be asked each time, but all requests that wait
at one moment ask together.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime

from paddlecloud.db import coordination
from paddlecloud.db.base import Apart, Database, Tx
from paddlecloud.model.errors import PaddleCloudError, Retry

Key = tuple[str, str]
BUCKET = 60
"""Seconds of expiry that are forgotten together: nobody walks over every nonce to find the old."""
BATCH = 256
"""Nonces that are asked for together at most."""


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

    def close(self, now: datetime) -> None:
        self.flush(now)

    def _settle(self, writing: Future[None], batch: Mapping[Key, int]) -> bool:
        """False while the last batch is on its way; one that failed is to be written again."""
        if not writing.done():
            return False
        if writing.cancelled() or writing.exception() is not None:
            self._unwritten = {**batch, **self._unwritten}
        self._sent = None
        return True


class SharedNonces:
    """Of several servers on one database exactly one gets to spend a nonce. For any thread.

    A thread of its own asks for all that came while it asked before.
    """

    def __init__(self, db: Apart) -> None:
        self._db = db
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="nonces", daemon=True)
        self._thread.start()

    def spend(self, ak: str, nonce: str, expires_at: int) -> Future[bool]:
        """True for the first that spends this nonce of this key, in any server.

        Where the database cannot say, Retry: the nonce may be spent, so sign again with another.
        """
        answer: Future[bool] = Future()
        answer.set_running_or_notify_cancel()  # whoever stops waiting does not stop the asking
        self._asked.put(((ak, nonce), expires_at, answer))
        return answer

    def close(self, now: datetime) -> None:
        """Answer what was asked, and end."""
        self._asked.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (first := self._asked.get()) is not None:
            batch, more = self._gathered(first)
            try:
                self._answer(batch)
            except PaddleCloudError as error:
                for _key, _until, answer in batch:
                    answer.set_exception(type(error)(error.code, **error.params))
            except Exception as error:  # noqa: BLE001 - without this thread nobody gets in any more
                for _key, _until, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            if not more:
                break
        while not self._asked.empty():
            late = self._asked.get()
            if late is not None:
                late[2].set_exception(Retry("database_closed"))

    def _gathered(self, first: _Asked) -> tuple[list[_Asked], bool]:
        """What waits by now, and whether more may come after it."""
        batch = [first]
        while len(batch) < BATCH and not self._asked.empty():
            asked = self._asked.get()
            if asked is None:
                return batch, False
            batch.append(asked)
        return batch, True

    def _answer(self, batch: list[_Asked]) -> None:
        spent = {key: until for key, until, _answer in batch}
        new = self._db.apart(lambda tx: coordination.spend_nonces(tx, spent))
        for key, _until, answer in batch:
            answer.set_result(key in new)
            new.discard(key)


_Asked = tuple[Key, int, "Future[bool]"]


def _write(tx: Tx, spent: Mapping[Key, int]) -> None:
    for (ak, nonce), until in spent.items():
        coordination.spend_nonce(tx, ak, nonce, datetime.fromtimestamp(until, UTC))
