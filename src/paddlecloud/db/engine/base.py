"""What the server may ask of a database: short transactions, snapshot reads, wake-ups.

The repositories beside this module speak to a `Tx` only, in SQL that SQLite and PostgreSQL both
understand (`?` for a value, `on conflict`, `returning`), so an engine is the one file that differs.
Nothing here waits inside a transaction for anything but the database: a callable given to `write`
or `read` does no network and no file work, and may be run on any thread. It may also be run again,
when a connection was lost, so it changes nothing but the database. Writes happen one after the
other, over all servers of one database: what a callable reads stays true until it is committed.
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
    """One transaction; it is over when the callable that was given it returns.

    A statement that fails spoils it: whatever the callable does then, the write fails with that
    error.
    """

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run one statement and say how many rows it changed."""

    def run(self, sql: str, values: Sequence[Value] = ()) -> None:
        """`execute` where the count does not matter: it need not be waited for.

        Its error may come with a later statement, or as that of the whole write.
        """

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """The first row of the answer, or None where there is none."""

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Every row of the answer; nothing stays open behind it."""

    def soon(self, sql: str, values: Sequence[Value] = ()) -> Answer:
        """`all` that is not waited for: its rows can be had after the next statement that is, or
        once the write is over.

        Several questions are then one message to a database elsewhere; and a write of nothing but
        these and `run` holds up nobody while it thinks. Its error comes as that of `run` does.
        """

    def notify(self, channel: str, payload: str) -> None:
        """Tell every listener once this transaction is committed, and never if it is not."""


class Database(Protocol):
    """The server's memory. Every method may be called from any thread."""

    @property
    def shared(self) -> bool:
        """Whether other servers may work on the same database at this moment."""

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """What `work` returns, once its changes are committed; what it raises, with none of them.

        A durable write survives a power cut. `durable=False` is for what may be forgotten in one
        (a nonce): it survives the death of the process, and costs no wait for the disk.
        """

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        """`write` without the wait; the writes of one thread are committed in their order."""

    def read(self, work: Callable[[Tx], T]) -> T:
        """What `work` returns, having seen one moment of the database and changed nothing."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(channel, payload)` after commits, on any thread.

        It must return at once and must not `write` (it may `submit`). Returns the way to end it.
        A wake-up may come without a cause and may be lost with a connection, so a listener looks
        at the facts and also looks from time to time. The channel `EVERYTHING` stands for all of
        them: nobody knows what was missed.
        """

    def close(self) -> None:
        """Finish what was submitted and let go of every file; later calls raise Retry."""


@runtime_checkable
class CanAutocommit(Protocol):
    """What a shared database can do besides: statements that need no order among the writes."""

    def autocommit(self, work: Callable[[Tx], T]) -> T:
        """Run `work`, each of its statements a transaction of its own, off the line of writes.

        They do not wait for the disk. One that fails may have been done.
        """


@runtime_checkable
class CanDefer(Protocol):
    """What a database in this very process can do besides: commit on the caller's own thread."""

    def defer(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        """`submit` that wakes no thread: it is committed in its turn with the next `write` or
        `submit`, or by `drain`."""

    def drain(self, last: Future[Any]) -> None:
        """Commit what was left until `last` is done; returns early if another thread is at it."""
