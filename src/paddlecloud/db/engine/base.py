"""The database protocol: short transactions, snapshot reads, notifications.

`db/tables` uses a `Tx` only, in SQL that SQLite and PostgreSQL both understand (`?` for a value,
`on conflict`, `returning`). A callable given to `write` or `read` does no network and no file I/O
and may run on any thread. It may be run again after a lost connection, so it has no side effects
outside the database. Writes are serialized, over all servers of one database: what a callable reads
stays true until its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
Row = tuple[Any, ...]
Value = str | int | float | bytes | None
Listener = Callable[[str, str], None]
Answer = Callable[[], list[Row]]
EVERYTHING = "*"


class Tx(Protocol):
    """One transaction; it ends when the callable that received it returns.

    After a failed statement the whole write fails with that error, whatever the callable does.
    """

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run one statement; returns how many rows it changed."""

    def run(self, sql: str, values: Sequence[Value] = ()) -> None:
        """`execute` without the count, so the engine need not wait for the result.

        Its error may be raised by a later statement or by the whole write.
        """

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """The first row of the result, or None."""

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Every row of the result; no cursor stays open."""

    def soon(self, sql: str, values: Sequence[Value] = ()) -> Answer:
        """A deferred `all`: its rows are available after the next statement that waits for its
        result, or when the write is over.

        Several queries then take one round trip to a remote database; a write with only `soon` and
        `run` does not hold the write lock while its callable runs. Errors are raised as for `run`.
        """

    def notify(self, channel: str, payload: str) -> None:
        """Call every listener after this transaction is committed; never if it is not."""


class Database(Protocol):
    """A database. Every method may be called from any thread."""

    @property
    def shared(self) -> bool:
        """Whether other servers may use the same database at the same time."""

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Run and commit `work`; returns its result. If it raises, nothing is committed.

        A durable write survives a power cut. `durable=False` survives only a crash of the process
        and needs no disk flush (a nonce).
        """

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        """`write` without waiting; the writes of one thread are committed in their order."""

    def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on a consistent, read-only snapshot; returns its result."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(channel, payload)` after commits, on any thread.

        It must return at once and must not `write` (it may `submit`). Returns a function that
        unsubscribes. A notification may be spurious, and may be lost with a connection, so a
        listener re-reads the database and also polls. The channel `EVERYTHING` stands for all
        channels: notifications may have been missed.
        """

    def close(self) -> None:
        """Finish what was submitted and close every file; later calls raise Retry."""


@runtime_checkable
class CanAutocommit(Protocol):
    """Ability of a shared database: statements outside the serialized writes."""

    def autocommit(self, work: Callable[[Tx], T]) -> T:
        """Run `work`, each of its statements a transaction of its own.

        They do not wait for a disk flush. A statement that fails may have been executed.
        """


@runtime_checkable
class CanDefer(Protocol):
    """Ability of an in-process database: commit on the caller's own thread."""

    def defer(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        """`submit` without waking a thread: it is committed with the next `write` or `submit`, or
        by `drain`."""

    def drain(self, last: Future[Any]) -> None:
        """Commit deferred writes until `last` is done; returns early if another thread commits."""
