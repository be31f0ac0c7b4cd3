"""What the server may ask of a database: short transactions, snapshot reads, wake-ups.

The repositories beside this module speak to a `Tx` only, in SQL that SQLite and PostgreSQL both
understand (`?` for a value, `on conflict`, `returning`), so an engine is the one file that differs.
Nothing here waits inside a transaction for anything but the database: a callable given to `write`
or `read` does no network and no file work, and may be run on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]
Value = str | int | float | bytes | None
Listener = Callable[[str, str], None]


class Tx(Protocol):
    """One transaction; it is over when the callable that was given it returns."""

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run one statement and say how many rows it changed."""

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        """The first row of the answer, or None where there is none."""

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Every row of the answer; nothing stays open behind it."""

    def notify(self, channel: str, payload: str) -> None:
        """Tell every listener once this transaction is committed, and never if it is not."""


class Database(Protocol):
    """The server's memory. Every method may be called from any thread."""

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
        at the facts and also looks from time to time.
        """

    def close(self) -> None:
        """Finish what was submitted and let go of every file; later calls raise Retry."""
