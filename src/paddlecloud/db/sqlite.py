"""SQLite behind the `Database` promises: one writer at a time with group commit, pooled readers.

Writes queue up and whoever has the turn commits for all: it takes everything submitted so far, runs
each callable in a savepoint of its own and commits them together, so eight waiting callers share
one wait for the disk and the failure of one of them is nobody else's. A caller that finds the turn
free takes it itself, which spares an idle server two changes of thread per write; a thread of ours
serves what nobody waits for. Readers have their own connections and see one moment each (WAL), so
they neither wait for the writer nor delay it. Wake-ups stay inside this process: SQLite belongs to
one server.
"""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from paddlecloud.db.base import Listener, Row, Tx, Value
from paddlecloud.db.migrate import migrate
from paddlecloud.model.errors import Conflict, Internal, PaddleCloudError, Retry, StorageFull

T = TypeVar("T")
Notice = tuple[str, str]

GROUP_LIMIT = 64
"""Callables in one commit: the first of them waits for the last, so not without end."""
IDLE_READERS = 8
BUSY_SECONDS = 10.0
LITTLE_SPACE = 256 * 1024
"""With less than this free, a failed write means a full disk, whatever SQLite called it."""

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


def open_sqlite(path: Path, *, now: datetime) -> SqliteDatabase:
    """The database at `path`, made or brought up to date first; only its owner may read it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise Retry("database_failed", path=str(path), detail=str(error)) from error
    return SqliteDatabase(path, now=now)


class SqliteDatabase:
    """See `Database`; use `open_sqlite` to make one."""

    def __init__(self, path: Path, *, now: datetime) -> None:
        self._path = path
        self._listeners: tuple[Listener, ...] = ()
        self._queue: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._leader = 0
        self._idle: deque[sqlite3.Connection] = deque()
        self._held: _Task | None = None
        self._durable = True
        self._closed = False
        self._gate = threading.Lock()
        self._connection = _connect(path, _WRITER_PRAGMAS)
        try:
            self._prepare(now)
        except BaseException:
            self._connection.close()
            raise
        self._writer = threading.Thread(target=self._serve, name="database-writer", daemon=True)
        self._writer.start()

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        if self._leader == threading.get_ident():
            raise RuntimeError("a write inside a write or a listener would wait for itself")
        task = self._enqueue(work, durable)
        if self._turn.acquire(blocking=False):
            self._lead(task)
        return cast("Future[T]", task.future).result()

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        task = self._enqueue(work, durable)
        self._bell.put(True)
        return task.future

    def read(self, work: Callable[[Tx], T]) -> T:
        connection = self._borrow()
        try:
            try:
                connection.execute("begin")
            except sqlite3.Error as error:
                raise _translated(error, self._path) from error
            return work(_SqliteTx(connection, self._path))
        finally:
            self._give_back(connection)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        with self._gate:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._gate:
                self._listeners = tuple(it for it in self._listeners if it is not listener)

        return unsubscribe

    def close(self) -> None:
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._bell.put(False)
        self._writer.join()
        while self._idle:
            self._idle.pop().close()
        self._connection.close()

    def _prepare(self, now: datetime) -> None:
        self._begin()
        try:
            migrate(_SqliteTx(self._connection, self._path), now=now)
            self._connection.execute("commit")
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error

    def _borrow(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        if self._closed:
            raise Retry("database_closed")
        return _connect(self._path, _READER_PRAGMAS)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            connection.close()
            return
        with self._gate:
            if not self._closed and len(self._idle) < IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def _enqueue(self, work: Callable[[Tx], Any], durable: bool) -> _Task:
        task = _Task(work, durable)
        with self._gate:
            if self._closed:
                raise Retry("database_closed")
            self._queue.put(task)
        return task

    def _serve(self) -> None:
        """Our own thread: at each ring, commit what is queued, if nobody else is at it."""
        while self._bell.get():
            if self._turn.acquire(blocking=False):
                self._lead()
        self._turn.acquire()
        self._lead()

    def _lead(self, mine: _Task | None = None) -> None:
        """Holding the turn, commit groups until `mine` is done (without one: until none is left).

        The turn is given back before the last look at the queue: who queued earlier is seen by
        that look, who queues later finds the turn free. So no task is left lying.
        """
        self._leader = threading.get_ident()
        try:
            while (first := self._next()) is not None:
                if first.wanted():
                    self._commit_group(first)
                if mine is not None and mine.future.done():
                    break
        finally:
            self._leader = 0
            self._turn.release()
        if self._held is not None or not self._queue.empty():
            self._bell.put(True)

    def _next(self) -> _Task | None:
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def _commit_group(self, first: _Task) -> None:
        group: list[_Task] = []
        try:
            self._level(durable=first.durable)
            self._begin()
            for task in self._arriving(first):
                group.append(task)
                self._run_one(task, guarded=task is not first)
            self._connection.execute("commit")
        except (sqlite3.Error, PaddleCloudError) as error:
            self._abandon(group or [first], _translated(error, self._path))
            return
        notices = dict.fromkeys(notice for task in group for notice in task.notices)
        self._deliver(notices)
        for task in group:
            task.settle()

    def _arriving(self, first: _Task) -> Iterator[_Task]:
        """`first`, then whatever is submitted while the ones before it run: nobody waits for more.

        Those who were answered by the last commit come back just then, so they share this one.
        """
        yield first
        for _ in range(GROUP_LIMIT):
            task = self._next()
            if task is None:
                return
            if task.durable and not first.durable:
                self._held = task
                return
            if task.wanted():
                yield task

    def _level(self, *, durable: bool) -> None:
        """Whether commits wait for the disk; one that does carries the earlier ones along."""
        if durable is not self._durable:
            self._connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
            self._durable = durable

    def _begin(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            self._connection.execute("begin immediate")
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error

    def _run_one(self, task: _Task, *, guarded: bool) -> None:
        """Run one callable; if it fails, undo its changes and keep its error for its caller.

        The first of a group needs no savepoint to guard the others: there are none yet. An error
        that made SQLite drop the whole transaction goes up: the others lost their changes too.
        """
        connection = self._connection
        tx = _SqliteTx(connection, self._path)
        if guarded:
            connection.execute("savepoint task")
        try:
            task.result = task.work(tx)
            task.notices = tx.notices
        except BaseException as error:
            task.error = error
            if not connection.in_transaction:
                raise _translated(tx.failed or error, self._path) from error
            connection.execute("rollback to task" if guarded else "rollback")
            if not guarded:
                self._begin()
        if tx.failed is not None and not connection.in_transaction:
            raise tx.failed
        if guarded:
            connection.execute("release task")

    def _abandon(self, group: list[_Task], error: PaddleCloudError) -> None:
        """The commit failed: nobody's changes were kept, and everybody is told."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            if isinstance(error, StorageFull):
                # What the log holds moves to its place; then the log begins again at its start.
                self._connection.execute("pragma wal_checkpoint(passive)")
        except sqlite3.Error as failed:
            log.warning("after a failed commit: %s", failed)
        for task in group:
            task.error = task.error or type(error)(error.code, **error.params)
            task.settle()

    def _deliver(self, notices: dict[Notice, None]) -> None:
        for channel, payload in notices:
            for listener in self._listeners:
                try:
                    listener(channel, payload)
                except Exception:  # the write is committed: a listener cannot take it back
                    log.exception("a listener failed on %s %s", channel, payload)


class _Task:
    """One submitted callable with what became of it."""

    __slots__ = ("durable", "error", "future", "notices", "result", "work")

    def __init__(self, work: Callable[[Tx], Any], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.notices: Sequence[Notice] = ()

    def wanted(self) -> bool:
        """False when its caller cancelled it before it began."""
        return self.future.set_running_or_notify_cancel()

    def settle(self) -> None:
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class _SqliteTx:
    """A `Tx` on one connection.

    Some errors (a full disk) make SQLite drop the whole transaction. What would follow on the same
    connection would then be committed by itself, so after such an error every call fails.
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
        self.failed = _translated(error, self._path)
        if not self._connection.in_transaction:
            self._connection = _Dropped(self.failed)
        return self.failed


class _Dropped:
    """Stands where a connection was whose transaction SQLite dropped."""

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
        raise _translated(error, path) from error
    try:
        for pragma in (*_PRAGMAS, *pragmas):
            connection.execute(f"pragma {pragma}")
    except sqlite3.Error as error:
        connection.close()
        raise _translated(error, path) from error
    return connection


def _translated(error: BaseException, path: Path) -> PaddleCloudError:
    """The error of our tree that says what to do about this one."""
    if isinstance(error, PaddleCloudError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict("database_clash", detail=str(error))
    if isinstance(error, sqlite3.Error):
        if _is_full(error, path):
            return StorageFull("database_full", path=str(path))
        if _is_mistake(error):
            return Internal("database_mistake", detail=str(error))
    return Retry("database_failed", path=str(path), detail=str(error))


def _is_mistake(error: sqlite3.Error) -> bool:
    """Wrong SQL or wrong use of it: repeating it helps nobody."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE)


def _is_full(error: sqlite3.Error, path: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    if code & 0xFF not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return False
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < LITTLE_SPACE
