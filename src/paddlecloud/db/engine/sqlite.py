"""The SQLite engine: one writer with group commit, pooled readers.

Each callable of a group runs in a savepoint of its own. Readers have their own connections with a
snapshot each (WAL), so they neither wait for the writer nor delay it. Notifications stay inside
this process: an SQLite database belongs to one server.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from paddlecloud.db.engine._group_commit import Group, Lost, Notice, Task
from paddlecloud.db.engine._migrate import migrate
from paddlecloud.db.engine.base import Answer, Listener, Row, Tx, Value
from paddlecloud.db.engine.disk_reserve import Reserve
from paddlecloud.model.errors import (
    ConfigError,
    Conflict,
    Internal,
    PaddleCloudError,
    Retry,
    StorageFull,
)

T = TypeVar("T")

IDLE_READERS = 8
BUSY_SECONDS = 10.0
LITTLE_SPACE = 256 * 1024
"""With less free space than this, any failed write counts as a full disk."""

_PRAGMAS = ("foreign_keys = on", "temp_store = memory")
_WRITER_PRAGMAS = (
    "journal_mode = wal",
    "synchronous = full",
    "secure_delete = off",
    "cache_size = -4096",
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 33554432",
)
_READER_PRAGMAS = ("query_only = on", "cache_size = -1024")

log = logging.getLogger(__name__)


def open_sqlite(
    path: Path, *, now: datetime, reserve: int = 0, must_exist: bool = False
) -> SqliteDatabase:
    """Open the database at `path`; create or migrate it if needed. Only its owner may read it.

    `reserve`: size of the ballast file for a full disk. `must_exist`: see `open_database`; SQLite
    itself would delete the log that belongs to an empty file.
    """
    if must_exist and is_missing(path):
        raise ConfigError("database_lost", database=str(path))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise Retry("database_failed", path=str(path), detail=str(error)) from error
    return SqliteDatabase(path, now=now, reserve=reserve, must_exist=must_exist)


def is_missing(path: Path) -> bool:
    """Whether there is no file, or an empty one."""
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True


class SqliteDatabase:
    """See `Database`; created by `open_sqlite`."""

    shared = False

    def __init__(
        self, path: Path, *, now: datetime, reserve: int = 0, must_exist: bool = False
    ) -> None:
        self._path = path
        self._idle: deque[sqlite3.Connection] = deque()
        writer = _SqliteWriter(path, Reserve(path.with_name(path.name + "-reserve"), reserve))
        try:
            writer.prepare(now, must_exist=must_exist)
        except BaseException:
            writer.close()
            raise
        self._group = Group(writer)

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return self._group.write(work, durable=durable)

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        return self._group.submit(work, durable=durable)

    def defer(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        return self._group.defer(work, durable=durable)

    def drain(self, last: Future[Any]) -> None:
        self._group.drain(last)

    def read(self, work: Callable[[Tx], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            if self._group.closed:
                raise Retry("database_closed") from None
            connection = _connect(self._path, _READER_PRAGMAS)
        try:
            try:
                connection.execute("begin")
            except sqlite3.Error as error:
                raise translated(error, self._path) from error
            return work(_SqliteTx(connection, self._path))
        finally:
            self._give_back(connection)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._group.subscribe(listener)

    def close(self) -> None:
        if self._group.close():
            while self._idle:
                self._idle.pop().close()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            connection.close()
            return
        with self._group.gate:
            if not self._group.closed and len(self._idle) < IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()


class _SqliteWriter:
    """See `_group_commit.Writer`."""

    def __init__(self, path: Path, reserve: Reserve) -> None:
        self._path = path
        self._reserve = reserve
        self._hopeful = True
        self._durable = True
        self._connection = _connect(path, _WRITER_PRAGMAS)

    def prepare(self, now: datetime, *, must_exist: bool) -> None:
        """Migrate the database."""
        existing = str(self._path) if must_exist else ""
        self.begin(durable=True)
        try:
            migrate(_SqliteTx(self._connection, self._path), now=now, existing=existing)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error
        self._hopeful = False  # there is no caller yet that would retry
        self.commit(())
        # All tables of a new database are in its log only. On a full disk they could not be
        # checkpointed any more, and the log could not restart.
        with suppress(sqlite3.Error):
            self._connection.execute("pragma wal_checkpoint(passive)")

    def begin(self, *, durable: bool) -> None:
        try:
            if durable is not self._durable:
                # A commit with a disk flush makes the earlier ones durable too.
                level = "full" if durable else "normal"
                self._connection.execute(f"pragma synchronous = {level}")
                self._durable = durable
            self._restart()
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def run(self, task: Task, *, guarded: bool) -> None:
        """The first of a group needs no savepoint: there are no changes of others yet.

        An error by which SQLite rolled back the whole transaction is raised: the others lost their
        changes too.
        """
        try:
            self._run(task, guarded)
        except sqlite3.Error as error:
            raise self._failed(translated(error, self._path)) from error
        except StorageFull as error:
            raise self._failed(error) from error

    def commit(self, notices: Sequence[Notice]) -> None:
        try:
            self._connection.execute("commit")
        except sqlite3.Error as error:
            raise self._failed(translated(error, self._path)) from error
        self._hopeful = True
        self._reserve.keep()

    def abandon(self, error: PaddleCloudError) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            if isinstance(error, StorageFull) and self._should_checkpoint():
                # After a complete checkpoint the log restarts at its beginning.
                self._connection.execute("pragma wal_checkpoint(passive)")
        except (sqlite3.Error, OSError) as failed:
            log.warning("after a failed commit: %s", failed)

    def close(self) -> None:
        self._connection.close()

    def _failed(self, error: PaddleCloudError) -> Exception:
        """On a disk that has just become full `abandon` may free space: the group is retried once,
        and again only after a successful commit."""
        if isinstance(error, StorageFull) and self._hopeful:
            self._hopeful = False
            return Lost(error)
        return error

    def _should_checkpoint(self) -> bool:
        """Whether to checkpoint; not if that takes the whole reserve: then the log grows into
        it."""
        released = self._reserve.release()
        if not released:
            return True
        (pages,), (size,) = (
            self._connection.execute(f"pragma {name}").fetchone()
            for name in ("page_count", "page_size")
        )
        growth = int(pages * size - self._path.stat().st_size)
        return growth <= released // 2

    def _restart(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")
        self._connection.execute("begin immediate")

    def _run(self, task: Task, guarded: bool) -> None:
        connection = self._connection
        tx = _SqliteTx(connection, self._path)
        if guarded:
            connection.execute("savepoint task")
        try:
            task.result = task.work(tx)
            task.notices = tx.notices
            task.error = tx.failed
        except BaseException as error:  # noqa: BLE001 - kept for its caller, who gets it
            task.error = error
        if task.error is not None:
            task.notices = ()
            if not connection.in_transaction:
                cause = tx.failed or task.error
                raise translated(cause, self._path) from task.error
            if not guarded:
                self._restart()
                return
            connection.execute("rollback to task")
        if guarded:
            connection.execute("release task")


class _SqliteTx:
    """A `Tx` on one connection.

    After some errors (a full disk) SQLite rolls back the whole transaction. Later statements on the
    same connection would then be committed one by one, so after such an error every call fails.
    """

    __slots__ = ("_connection", "_path", "failed", "notices")

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection: sqlite3.Connection | _Dropped = connection
        self._path = path
        self.failed: PaddleCloudError | None = None
        self.notices: list[Notice] = []

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        try:
            return self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def run(self, sql: str, values: Sequence[Value] = ()) -> None:
        self.execute(sql, values)

    def soon(self, sql: str, values: Sequence[Value] = ()) -> Answer:
        rows = self.all(sql, values)
        return lambda: rows

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def notify(self, channel: str, payload: str) -> None:
        self.notices.append((channel, payload))

    def _failure(self, error: sqlite3.Error) -> PaddleCloudError:
        self.failed = translated(error, self._path)
        if not self._connection.in_transaction:
            self._connection = _Dropped(self.failed)
        return self.failed


class _Dropped:
    """Replaces a connection whose transaction SQLite rolled back."""

    in_transaction = False

    def __init__(self, failed: PaddleCloudError) -> None:
        self._failed = failed

    def execute(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        raise self._failed


def _connect(path: Path, pragmas: Sequence[str]) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        for pragma in (*_PRAGMAS, *pragmas):
            connection.execute(f"pragma {pragma}")
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    return connection


def translated(error: BaseException, path: Path) -> PaddleCloudError:
    """The PaddleCloudError for this error."""
    if isinstance(error, PaddleCloudError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict("database_clash", detail=str(error))
    if isinstance(error, sqlite3.Error):
        if _is_full(error, path):
            return StorageFull("database_full", path=str(path))
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
        if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE):
            return Internal("database_mistake", detail=str(error))
    return Retry("database_failed", path=str(path), detail=str(error))


def _is_full(error: sqlite3.Error, path: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    if code & 0xFF not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return False
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LITTLE_SPACE
