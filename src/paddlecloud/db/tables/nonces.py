"""Nonces of accepted requests: each is accepted once, for as long as its signature is valid.

Every request spends a nonce, so a transaction each would cost more than most of the requests. An
SQLite database has one server, which keeps the nonces in memory. A nonce is queued for the database
before its request is handled: every later commit includes it, so no change of a request is ever
committed without its nonce. Without such a commit it is written within a fraction of a second. A
database that several servers share has to be asked each time; waiting requests share one statement.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Protocol

from paddlecloud.db.engine.base import CanAutocommit, CanDefer, Database, Tx, Value
from paddlecloud.db.engine.columns import to_micros
from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.model.protocol.bce_auth import DEFAULT_EXPIRE, MAX_AHEAD

Key = tuple[str, str]

BUCKET = 60
"""Nonces are grouped by expiry in buckets of so many seconds, which are deleted as a whole."""

BATCH = 256
"""Nonces in one statement at most."""

LIFE = DEFAULT_EXPIRE + MAX_AHEAD
"""Seconds after which every accepted signature has expired."""

DAY = 24 * 3600


class Horizon:
    """The time before which nonces have expired, whatever changes were made to the clock.

    A clock that is set ahead expires every signature; when it is corrected they are valid again. So
    the slowest reading of the last `LIFE` seconds counts, compared by the monotonic clock. A server
    that has not run for that long subtracts a day.
    """

    def __init__(self, now: datetime, seconds: float) -> None:
        self._readings = deque([(seconds, now.timestamp() - seconds)])

    def at(self, now: datetime, seconds: float) -> datetime:
        """`seconds` are those of the monotonic clock at this moment."""
        self._readings.append((seconds, now.timestamp() - seconds))
        while self._readings[1][0] <= seconds - LIFE:
            self._readings.popleft()
        slowest = seconds + min(offset for _, offset in self._readings)
        watched = self._readings[0][0] <= seconds - LIFE
        return datetime.fromtimestamp(slowest if watched else slowest - DAY, UTC)


class Pruner:
    """Deletes expired nonces from the database, once in `BUCKET` seconds."""

    def __init__(self, db: Database, now: datetime, seconds: float) -> None:
        self._db = db
        self._horizon = Horizon(now, seconds)
        self._next = seconds + BUCKET

    def prune(self, now: datetime, seconds: float) -> datetime | None:
        """Start deleting; returns the time before which nonces are deleted, None if not due."""
        if seconds < self._next:
            return None
        self._next = seconds + BUCKET
        before = self._horizon.at(now, seconds)
        self._db.submit(lambda tx: delete_expired(tx, before), durable=False)
        return before


class DeferringDatabase(Database, CanDefer, Protocol):
    """An in-process database."""


class WriteBehindNonces:
    """Keeps nonces in memory and writes them later. For the event loop; the database calls
    `_write`."""

    def __init__(self, db: DeferringDatabase, now: datetime) -> None:
        self._db = db
        self._buckets: dict[int, set[int]] = {}
        """64-bit hashes that an attacker cannot choose: a third of the memory of the texts. On a
        collision one client has to sign its request again."""
        self._unwritten: deque[tuple[Key, int]] = deque()
        self._writing: list[tuple[Key, int]] = []
        """Part of a transaction that is not committed yet."""
        self._queued = False
        """Whether a `_write` that has not started is in the queue of the database."""
        self._flushed: Future[None] | None = None
        since = datetime.fromtimestamp(now.timestamp() - DAY, UTC)
        for key, expires_at in db.read(lambda tx: live_nonces(tx, since)):
            self._buckets.setdefault(expires_at // BUCKET, set()).add(hash(key))

    def spend(self, ak: str, nonce: str, expires_at: int) -> bool:
        """True for the first request with this nonce; it is kept until `expires_at`.

        What is written to the database after this call is committed with or after the nonce.
        """
        key = (ak, nonce)
        mark = hash(key)
        for bucket in self._buckets.values():
            if mark in bucket:
                return False
        self._buckets.setdefault(expires_at // BUCKET, set()).add(mark)
        self._unwritten.append((key, expires_at))
        if not self._queued:
            self._queued = True
            self._db.defer(self._write, durable=False).add_done_callback(self._settle)
        return True

    def evict(self, before: datetime) -> None:
        """Drop nonces from memory that expired before this time."""
        for minute in [m for m in self._buckets if (m + 1) * BUCKET < before.timestamp()]:
            del self._buckets[minute]

    def flush(self) -> bool:
        """Start writing what is only in memory; True when there is nothing left."""
        if self._unwritten and (self._flushed is None or self._flushed.done()):
            self._flushed = self._db.submit(self._write, durable=False)
            self._flushed.add_done_callback(self._settle)
        return not self._unwritten and not self._writing

    def close(self) -> None:
        self.flush()

    def _write(self, tx: Tx) -> None:
        self._queued = False
        while self._unwritten:
            self._writing.append(self._unwritten.popleft())
        for (ak, nonce), until in self._writing:
            spend_nonce(tx, ak, nonce, datetime.fromtimestamp(until, UTC))

    def _settle(self, written: Future[None]) -> None:
        """After the commit, on the thread of the database: queue again what failed."""
        if written.exception() is not None:
            self._unwritten.extendleft(reversed(self._writing))
        self._writing.clear()


class SharedNonces:
    """Spends nonces in a database that several servers share. For any thread.

    One thread sends the nonces that arrived during the previous statement.
    """

    def __init__(self, db: CanAutocommit) -> None:
        self._db = db
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="nonces", daemon=True)
        self._thread.start()

    def spend(self, ak: str, nonce: str, expires_at: int) -> Future[bool]:
        """True for the first request with this nonce at any server.

        If the database fails, Retry: the nonce may be spent, so sign again with another.
        """
        answer: Future[bool] = Future()
        answer.set_running_or_notify_cancel()  # a cancelled request does not cancel the statement
        self._asked.put(((ak, nonce), expires_at, answer))
        return answer

    def close(self) -> None:
        """Finish the queued requests and stop the thread."""
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
            except Exception as error:  # noqa: BLE001 - without this thread every request fails
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
        """The requests that wait, and whether more may follow."""
        batch = [first]
        while len(batch) < BATCH and not self._asked.empty():
            asked = self._asked.get()
            if asked is None:
                return batch, False
            batch.append(asked)
        return batch, True

    def _answer(self, batch: list[_Asked]) -> None:
        spent = {key: until for key, until, _answer in batch}
        new = self._db.autocommit(lambda tx: spend_nonces(tx, spent))
        for key, _until, answer in batch:
            answer.set_result(key in new)
            new.discard(key)


_Asked = tuple[Key, int, "Future[bool]"]


def spend_nonce(tx: Tx, ak: str, nonce: str, expires_at: datetime) -> bool:
    """True for exactly one caller: the first with this nonce of this key."""
    changed = tx.execute(
        "insert into nonces (ak, nonce, expires_at) values (?, ?, ?)"
        " on conflict (ak, nonce) do nothing",
        (ak, nonce, to_micros(expires_at)),
    )
    return changed == 1


def live_nonces(tx: Tx, since: datetime) -> list[tuple[tuple[str, str], int]]:
    """Nonces that expire at `since` or later, with the second of expiry, earliest first."""
    rows = tx.all(
        "select ak, nonce, expires_at from nonces where expires_at >= ? order by expires_at",
        (to_micros(since),),
    )
    return [((ak, nonce), expires // 1_000_000) for ak, nonce, expires in rows]


def delete_expired(tx: Tx, before: datetime) -> int:
    """Delete nonces that expired before this time; returns how many.

    On a shared database they must have expired by the clock of each server.
    """
    return tx.execute(
        "delete from nonces where expires_at < ?"
        " and expires_at < (select coalesce(min(seen_at), ?) from servers)",
        (to_micros(before), to_micros(before)),
    )


def spend_nonces(tx: Tx, spent: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Spend many nonces (with their second of expiry); returns those that were new.

    In one statement and in one order, so that two servers never deadlock.
    """
    ordered = sorted(spent.items())
    places = ", ".join("(?, ?, ?)" for _ in ordered)
    values: list[Value] = []
    for (ak, nonce), until in ordered:
        values += (ak, nonce, until * 1_000_000)
    rows = tx.all(
        f"insert into nonces (ak, nonce, expires_at) values {places}"
        " on conflict (ak, nonce) do nothing returning ak, nonce",
        values,
    )
    return {(ak, nonce) for ak, nonce in rows}
