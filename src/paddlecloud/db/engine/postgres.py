"""The PostgreSQL engine, for several servers on one database.

Writes use group commit and hold one advisory lock, so they are serialized over all servers, as in
SQLite: a callable may check and then act. Readers have a snapshot each (repeatable read) and never
wait for writers. Notifications reach the listeners of this process at once, and those of other
servers by NOTIFY (`_pg_listen`). Sending of statements and translation of errors is in
`_pg_session`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from paddlecloud.db.engine._group_commit import Group, Lost, Notice, Task
from paddlecloud.db.engine._migrate import migrate
from paddlecloud.db.engine._pg_listen import CHANNEL, ListenThread, packed
from paddlecloud.db.engine._pg_session import Address, Mark, PgTx, Session, connect
from paddlecloud.db.engine.base import Listener, Tx
from paddlecloud.model.errors import PaddleCloudError, Retry

T = TypeVar("T")

LOCK = 0x70616464_6C65636C
"""The advisory lock of every write: "paddlecl" as a number."""
OWN_CONNECTIONS = 3
"""Connections that are not for readers: writer, listener, autocommit."""
RECONNECT_SECONDS = 5.0
"""How long a write waits for an unreachable database: about as long as a restart takes."""
READER_SECONDS = 20.0

_WRITER = (
    "default_transaction_isolation = 'read committed'",
    # A server that is suspended during a write would keep the lock from all others.
    "idle_in_transaction_session_timeout = '10s'",
    "lock_timeout = '30s'",
)
_READER = ("idle_in_transaction_session_timeout = '60s'",)
_AUTOCOMMIT = ("synchronous_commit = off", "lock_timeout = '10s'")


def open_postgres(
    url: str, *, now: datetime, connections: int = 10, must_exist: bool = False
) -> PostgresDatabase:
    """Open and migrate the database at `url`, with at most `connections` connections."""
    return PostgresDatabase(Address(url), now=now, connections=connections, must_exist=must_exist)


class PostgresDatabase:
    """See `Database`; created by `open_postgres`."""

    shared = True

    def __init__(
        self, address: Address, *, now: datetime, connections: int, must_exist: bool = False
    ) -> None:
        boot = secrets.token_hex(8)
        writer = _PgWriter(address, boot)
        try:
            writer.prepare(now, must_exist=must_exist)
        except BaseException:
            writer.close()
            raise
        self._group = Group(writer)
        self._readers = _Readers(address, max(2, connections - OWN_CONNECTIONS))
        self._autocommit = _Autocommit(address)
        try:
            self._listen_thread = ListenThread(address, boot, self._group.deliver)
        except BaseException:
            self._group.close()
            raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._readers.address})"

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return self._group.write(work, durable=durable)

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        return self._group.submit(work, durable=durable)

    def read(self, work: Callable[[Tx], T]) -> T:
        if self._group.closed:
            raise Retry("database_closed")
        return self._readers.read(work)

    def autocommit(self, work: Callable[[Tx], T]) -> T:
        """See `CanAutocommit`."""
        if self._group.closed:
            raise Retry("database_closed")
        return self._autocommit.run(work)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._group.subscribe(listener)

    def close(self) -> None:
        if self._group.close():
            self._listen_thread.close()
            self._autocommit.close()
            self._readers.close()


class _PgWriter:
    """See `_group_commit.Writer`.

    A group is first run optimistically: without savepoints, and without waiting for statements that
    return nothing. If one of those fails, or a callable that has changed something, the group is
    run again carefully: each callable in a savepoint and waited for, so that only the failing one
    is rolled back.
    """

    def __init__(self, address: Address, boot: str) -> None:
        self._address, self._boot = address, boot
        self._session: Session | None = None
        self._begun: Mark = (0, 0)
        self._durable = True
        self._careful = False
        self._gave_up_at = time.monotonic()  # the first connection fails at once

    def prepare(self, now: datetime, *, must_exist: bool) -> None:
        """Migrate the database; of several servers, one does."""
        existing = repr(self._address) if must_exist else ""
        try:
            self.begin(durable=True)
            tx = PgTx(self._live())
            migrate(tx, now=now, existing=existing)
            tx.finish()
            self.commit(())
        except Lost as lost:
            raise lost.error from lost
        self._gave_up_at = -RECONNECT_SECONDS

    def begin(self, *, durable: bool) -> None:
        if self._session is None:
            self._session = self._connected()
        self._durable = durable
        self._begin(self._session)

    def run(self, task: Task, *, guarded: bool) -> None:
        session = self._live()
        mark = session.mark()
        if guarded and self._careful:
            session.later("savepoint task")
        tx = PgTx(session)
        try:
            task.result = task.work(tx)
            if self._careful:
                tx.finish("release task" if guarded else None)
            tx.check()
            task.notices = tx.notices
        except BaseException as error:  # noqa: BLE001 - kept for its caller, who gets it
            task.error = tx.failed or error
            self._recover(session, tx, mark, guarded)

    def commit(self, notices: Sequence[Notice]) -> None:
        session = self._live()
        if not session.has_sent_since(self._begun):
            # Everything is sent in one exchange. Of a connection that was closed before, by a
            # restart for example, it is certain that nothing was committed only until then.
            session.check_idle()
            if not session.usable:
                raise Lost(session.failure)
        try:
            for payload in packed(self._boot, notices):
                session.later_with("select pg_notify(?, ?)", (CHANNEL, payload))
            done = session.send("commit")
        except PaddleCloudError as error:
            if not session.usable:
                raise Retry("database_unsure", path=str(self._address)) from error
            if isinstance(error, Retry):
                raise
            raise self._with_care(error) from error
        if done != b"COMMIT":
            # PostgreSQL rolled it back because a statement had failed: nothing was committed.
            detail = (done or b"").decode()
            failed = Retry("database_failed", path=str(self._address), detail=detail)
            raise self._with_care(failed)
        self._careful = False

    def abandon(self, error: PaddleCloudError) -> None:
        session = self._session
        if session is None:
            return
        try:
            session.discard_pending()
            session.send("rollback")
        except PaddleCloudError:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _begin(self, session: Session) -> None:
        self._begun = session.mark()
        session.later("begin")
        if not self._durable:
            session.later("set local synchronous_commit = off")
        session.later(f"select pg_advisory_xact_lock({LOCK})")

    def _recover(self, session: Session, tx: PgTx, mark: Mark, guarded: bool) -> None:
        """Roll back the changes of a failed callable, or raise so that the group is run again."""
        failure = session.failure
        if not session.usable:
            raise Lost(failure)
        from_database = tx.failed is not None and tx.failed is failure
        if from_database and isinstance(failure, Retry):
            raise failure  # no space, lock timeout: not caused by this callable
        if not (from_database or tx.wrote):
            session.back_to(mark)
        elif guarded and not self._careful:
            raise self._with_care(failure)
        elif session.back_to(mark):
            return
        elif guarded:
            session.later("rollback to task", "release task")
        else:
            session.later("rollback")
            self._begin(session)

    def _with_care(self, error: PaddleCloudError) -> Lost | PaddleCloudError:
        """The exception to raise so that the group is run again carefully; if it was, `error`."""
        if self._careful:
            self._careful = False
            return error
        self._careful = True
        return Lost(error)

    def _live(self) -> Session:
        assert self._session is not None  # between `begin` and `commit`
        return self._session

    def _connected(self) -> Session:
        """Connect; while the database is unreachable, one caller waits for all."""
        began = time.monotonic()
        until = began + (RECONNECT_SECONDS if began - self._gave_up_at > RECONNECT_SECONDS else 0.0)
        while True:
            try:
                return connect(self._address, _WRITER)
            except Retry:
                if time.monotonic() >= until:
                    self._gave_up_at = time.monotonic()
                    raise
            time.sleep(0.1)


class _Readers:
    """A pool of connections for reads, opened when needed."""

    def __init__(self, address: Address, size: int) -> None:
        self.address = address
        self._free = threading.BoundedSemaphore(size)
        self._idle: deque[Session] = deque()
        self._closed = False

    def read(self, work: Callable[[Tx], T]) -> T:
        if not self._free.acquire(timeout=READER_SECONDS):
            raise Retry("database_busy", path=str(self.address), seconds=int(READER_SECONDS))
        try:
            return self._read(work)
        finally:
            self._free.release()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _read(self, work: Callable[[Tx], T]) -> T:
        try:
            session, fresh = self._idle.pop(), False
        except IndexError:
            session, fresh = connect(self.address, _READER), True
        try:
            return self._read_on(session, work)
        except PaddleCloudError:
            if session.usable or fresh:
                raise
        # The pooled connection is from before a restart of the database, and so are the others.
        self._drop_idle()
        return self._read_on(connect(self.address, _READER), work)

    def _read_on(self, session: Session, work: Callable[[Tx], T]) -> T:
        mark = session.begin_read()
        tx = PgTx(session)
        try:
            result = work(tx)
        finally:
            session.end_read(mark)
            if session.usable and not self._closed:
                self._idle.append(session)
            else:
                session.close()
        tx.check()
        return result

    def _drop_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class _Autocommit:
    """One connection in autocommit mode, for one caller at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._turn = threading.Lock()
        self._session: Session | None = None

    def run(self, work: Callable[[Tx], T]) -> T:
        with self._turn:
            session = self._session or connect(self._address, _AUTOCOMMIT)
            self._session = session
            tx = PgTx(session)
            mark = session.mark()
            try:
                result = work(tx)
                tx.finish()
            finally:
                session.back_to(mark)
                if not session.usable:
                    self._session = None
                    session.close()
            return result

    def close(self) -> None:
        with self._turn:
            if self._session is not None:
                self._session.close()
                self._session = None
