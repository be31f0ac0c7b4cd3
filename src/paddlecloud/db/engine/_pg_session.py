"""A PostgreSQL session that batches statements to save round trips.

Round trips cost more than statements, so a statement without a result (begin, savepoint, insert)
is buffered and sent with the next one that has a result, as one text. That is the simple query
protocol, in which values are literals, quoted by libpq for the connection. A statement that is used
repeatedly is prepared once and then executed by name, which saves parsing and planning. Measured,
that beats both cursors of psycopg. The URL with its password is never part of an error message.
"""

from __future__ import annotations

import re
import select
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors, generators, pq, waiting
from psycopg.abc import PQGen
from psycopg.adapt import Loader, Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGresult

from paddlecloud.db.engine._group_commit import Notice
from paddlecloud.db.engine.base import Answer, Row, Value
from paddlecloud.model.errors import (
    ConfigError,
    Conflict,
    Internal,
    Invalid,
    PaddleCloudError,
    Retry,
    StorageFull,
)

CONNECT_SECONDS = 5
PREPARE_FROM = 3
"""A statement is prepared at its third use: by then it is likely to be used again."""
MAX_PREPARED = 256
MAX_PLACES = 64
"""Statements with more values are not prepared: they hold lists whose length varies."""
CLOSE_SECONDS = 0.1
"""Between the last message of a server that closes a connection and the end of the stream."""
POLL_SECONDS = 1.0
"""Interval at which a wait for a result checks the connection."""
MAX_PENDING = 1 << 20
"""Bytes buffered at most."""

_SESSION = (
    # All our queries have an index; a plan made while a table was small stays good.
    "enable_seqscan = off",
    "jit = off",
    "standard_conforming_strings = on",
    "client_encoding = 'UTF8'",
    "search_path = public",
)
# A peer that vanished is detected after about half a minute.
_NETWORK: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_PREPARABLE = re.compile(r"\s*(select|insert|update|delete|with)\b", re.IGNORECASE)
_SELECT = re.compile(r"\s*select\b", re.IGNORECASE)
_PLACE = re.compile(r"'[^']*'|(\?)")
Mark = tuple[int, int]
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)


class Address:
    """The URL of a database. Its repr shows host and name, never the password."""

    def __init__(self, url: str) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            # The error of the library quotes the URL, which contains the password.
            raise ConfigError("database_url_wrong") from None
        self.url = url
        self._options = {key: value for key, value in _NETWORK.items() if key not in parts}
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        self._shown = f"postgresql://{host}/{parts.get('dbname') or ''}"

    def __repr__(self) -> str:
        return self._shown

    def connect(self, settings: Sequence[str]) -> psycopg.Connection[Any]:
        """A new connection; raises Retry."""
        try:
            connection = psycopg.connect(self.url, autocommit=True, **self._options)
        except psycopg.Error as error:
            raise translated(error, self) from None
        try:
            connection.execute("; ".join(f"set {it}" for it in (*_SESSION, *settings)))
        except psycopg.Error as error:
            connection.close()
            raise translated(error, self) from None
        return connection


def connect(address: Address, settings: Sequence[str]) -> Session:
    return Session(address, address.connect(settings))


class Session:
    """One connection and its buffered statements. For one thread at a time."""

    def __init__(self, address: Address, connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_loader("numeric", _NumberLoader)
        self._address = address
        self._connection = connection
        self._pg = connection.pgconn
        self._quote = pq.Escaping(self._pg).escape_literal
        self._rows = Transformer(connection)
        self._pending: list[bytes] = []
        self._asked: dict[int, _PendingRows] = {}
        self._waiting = 0
        self._sent = 0
        self._uses: dict[str, int] = {}
        self._prepared: dict[str, bytes] = {}
        self._usable = True
        self._unread = False
        """Whether an unneeded result is on its way; PQexec drops it."""
        self.failure: PaddleCloudError = Retry("database_closed")

    @property
    def usable(self) -> bool:
        """False once the connection is broken."""
        return self._usable and self._pg.status == pq.ConnStatus.OK

    def later(self, *statements: str) -> None:
        """Buffer these for the next exchange."""
        self._keep([statement.encode() for statement in statements])

    def later_with(self, sql: str, values: Sequence[Value]) -> None:
        """Buffer this one for the next exchange."""
        self._keep([self._rendered(sql, values)])
        if self._waiting > MAX_PENDING:
            self._exchange([])

    def soon(self, sql: str, values: Sequence[Value]) -> Answer:
        """Buffer a query; its rows are available after the next exchange."""
        place = _PendingRows()
        statement = self._rendered(sql, values)
        self._asked[len(self._pending)] = place
        self._keep([statement])
        if self._waiting > MAX_PENDING:
            self._exchange([])
        return place.get

    def send(self, statement: str) -> bytes | None:
        """Send the buffer and one statement without values; returns its command tag."""
        return self._exchange([statement.encode()]).command_status

    def flush(self, *more: str) -> None:
        """Send the buffer and `more`, if anything is buffered; raises any error of it."""
        if self._pending:
            self._exchange([statement.encode() for statement in more])
        else:
            self.later(*more)

    def count(self, sql: str, values: Sequence[Value]) -> int:
        return self._exchange([self._rendered(sql, values)]).command_tuples or 0

    def ask(self, sql: str, values: Sequence[Value]) -> list[Row]:
        result = self._exchange([self._rendered(sql, values)])
        if result.ntuples == 0:
            return []
        return self._loaded(result)

    def discard_pending(self) -> None:
        self._pending, self._waiting, self._asked = [], 0, {}

    def mark(self) -> Mark:
        """The present position in the buffer, for `back_to`."""
        return self._sent, len(self._pending)

    def back_to(self, mark: Mark) -> bool:
        """Discard what was buffered since `mark`; False if something has been sent since then."""
        sent, waiting = mark
        if sent != self._sent:
            self.discard_pending()
            return False
        del self._pending[waiting:]
        self._waiting = sum(map(len, self._pending))
        self._asked = {number: it for number, it in self._asked.items() if number < waiting}
        return True

    def has_sent_since(self, mark: Mark) -> bool:
        return mark[0] != self._sent

    def check_idle(self) -> None:
        """Detect that the server closed the connection while it was idle.

        What arrives before a statement is sent cannot be its result. Waits only if there is input,
        which is mostly the error message before the end of the stream.
        """
        try:
            timeout = 0.0
            while readable(self._pg.socket, seconds=timeout):
                self._pg.consume_input()
                timeout = CLOSE_SECONDS
        except psycopg.Error as error:
            self._usable = False
            self.failure = translated(error, self._address)

    def begin_read(self) -> Mark:
        mark = self.mark()
        self.later("begin isolation level repeatable read, read only")
        return mark

    def end_read(self, mark: Mark) -> None:
        """End a transaction that changed nothing, without waiting for the result.

        The next statement drops that result before its own.
        """
        if self.back_to(mark) or not self.usable:
            return
        try:
            self._pg.send_query(b"rollback")
            self._unread = True
        except psycopg.Error:
            self._usable = False

    def close(self) -> None:
        self._usable = False
        with suppress(psycopg.Error):
            self._connection.close()

    def _keep(self, statements: list[bytes]) -> None:
        self._pending += statements
        self._waiting += sum(map(len, statements))

    def _exchange(self, statements: list[bytes]) -> PGresult:
        """Send the buffer and these; returns the result of the last statement."""
        text = b"\n;".join((*self._pending, *statements))
        asked = self._asked
        self.discard_pending()
        self._sent += 1
        try:
            if asked:
                return self._answered(text, asked)
            self._unread = False
            return _done(self._pg.exec_(text))
        except psycopg.Error as error:
            self._usable = self._usable and not _is_end(error)
            self.failure = translated(error, self._address)
            raise self.failure from None

    def _answered(self, text: bytes, asked: Mapping[int, _PendingRows]) -> PGresult:
        """Send the text; store the rows of `asked` and return the result of the last statement."""
        if self._unread:
            self._unread = False
            self._waited(generators.fetch_many(self._pg))
        self._pg.send_query(text)
        results = self._waited(generators.execute(self._pg))
        for number, result in enumerate(results):
            _done(result)
            if number in asked:
                asked[number].rows = self._loaded(result) if result.ntuples else []
        return results[-1]

    def _waited(self, answers: PQGen[list[PGresult]]) -> list[PGresult]:
        """Waits like PQexec, but keeps every result and releases the interpreter lock."""
        results: list[PGresult] = waiting.wait(answers, self._pg.socket, interval=POLL_SECONDS)
        return results

    def _loaded(self, result: PGresult) -> list[Row]:
        self._rows.set_pgresult(result)
        return self._rows.load_rows(0, result.ntuples, tuple)

    def _rendered(self, sql: str, values: Sequence[Value]) -> bytes:
        """The statement with its values; prepares it first when it was used often enough."""
        literals = [self._literal(value) for value in values]
        name = self._prepared.get(sql) or self._name(sql, len(literals))
        if name is None:
            return _joined(_split_at_values(sql), literals) if literals else sql.encode()
        if not literals:
            return b"execute %b" % name
        return b"execute %b(%b)" % (name, b",".join(literals))

    def _name(self, sql: str, places: int) -> bytes | None:
        """The name of a statement that was used often enough, after preparing it; else None.

        It is prepared in an exchange of its own: after an error within a batch it would be unknown
        whether the name exists.
        """
        times = self._uses[sql] = self._uses.get(sql, 0) + 1
        full = len(self._prepared) >= MAX_PREPARED or places > MAX_PLACES
        if times < PREPARE_FROM or full or not _PREPARABLE.match(sql):
            if len(self._uses) > 8 * MAX_PREPARED:
                self._uses.clear()
            return None
        name = b"s%d" % len(self._prepared)
        numbered = [b"$%d" % number for number in range(1, places + 1)]
        self._exchange([b"prepare %b as %b" % (name, _joined(_split_at_values(sql), numbered))])
        self._prepared[sql] = name
        return name

    def _literal(self, value: Value) -> bytes:
        if isinstance(value, str):
            if "\0" in value:
                raise Invalid("text_with_nul")
            try:
                return bytes(self._quote(value.encode()))
            except UnicodeEncodeError:
                raise Invalid("text_not_unicode") from None
        if value is None:
            return b"null"
        if isinstance(value, bytes):
            return b"'\\x%b'::bytea" % value.hex().encode()
        if isinstance(value, float):
            return b"'%b'::float8" % repr(value).encode()
        return b"%d" % value


class _PendingRows:
    """The rows of a buffered query, filled in by the exchange."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def get(self) -> list[Row]:
        return self.rows


class PgTx:
    """See `Tx`. After an error it sends nothing more: PostgreSQL would refuse it."""

    __slots__ = ("_session", "failed", "notices", "wrote")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.failed: PaddleCloudError | None = None
        self.wrote = False
        """Whether anything may have been changed."""
        self.notices: list[Notice] = []

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        self.check()
        try:
            changed = self._session.count(sql, values)
            self.wrote = self.wrote or changed > 0
            return changed
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def run(self, sql: str, values: Sequence[Value] = ()) -> None:
        self.check()
        self.wrote = True
        try:
            self._session.later_with(sql, values)
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def soon(self, sql: str, values: Sequence[Value] = ()) -> Answer:
        self.check()
        self.wrote = self.wrote or not _SELECT.match(sql)
        try:
            return self._session.soon(sql, values)
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        self.check()
        try:
            rows = self._session.ask(sql, values)
            self.wrote = self.wrote or bool(rows and not _SELECT.match(sql))
            return rows
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def notify(self, channel: str, payload: str) -> None:
        self.notices.append((channel, payload))

    def finish(self, *more: str | None) -> None:
        """Send what is buffered and wait for it; raises any error of it."""
        self.check()
        try:
            self._session.flush(*(statement for statement in more if statement))
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def check(self) -> None:
        """Raise the error of an earlier statement, if there was one."""
        if self.failed is not None:
            raise self.failed

    def _spoiled(self, error: PaddleCloudError) -> PaddleCloudError:
        self.failed = error
        return error


def readable(*files: int, seconds: float | None) -> bool:
    """Whether any of these is readable within so many seconds (None: wait without limit).

    `poll`, because file descriptors may be above the 1,024 that `select` supports.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _done(result: PGresult) -> PGresult:
    if result.status not in _DONE:
        raise errors.error_from_result(result, "utf-8")
    return result


def translated(error: psycopg.Error, address: Address) -> PaddleCloudError:
    """The PaddleCloudError for this error."""
    state = error.sqlstate or ""
    detail = (error.diag.message_primary or str(error).strip() or type(error).__name__)[:300]
    if state.startswith("23"):
        return Conflict("database_clash", detail=detail)
    if state == "53100":
        return StorageFull("database_full", path=str(address))
    if state == "22003":
        return Invalid("number_out_of_range", detail=detail)
    if state[:2] in ("0A", "22", "25", "42") and not _is_end(error):
        return Internal("database_mistake", detail=detail)
    return Retry("database_failed", path=str(address), detail=detail.splitlines()[0])


def _is_end(error: psycopg.Error) -> bool:
    """Whether the server ended the connection, or is about to: 25P03 is our own idle limit."""
    state = error.sqlstate or ""
    return state in ("", "25P03") or state[:3] == "57P" or state[:2] == "08"


@lru_cache(maxsize=2048)
def _split_at_values(sql: str) -> tuple[bytes, ...]:
    """The text around the placeholders; a question mark inside quotes is none."""
    parts, begun = [], 0
    for place in _PLACE.finditer(sql):
        if place.group(1):
            parts.append(sql[begun : place.start()].encode())
            begun = place.end()
    parts.append(sql[begun:].encode())
    return tuple(parts)


def _joined(parts: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    if len(values) != len(parts) - 1:
        raise Internal("database_mistake", detail=f"{len(values)} values, {len(parts) - 1} places")
    joined = [parts[0]]
    for value, part in zip(values, parts[1:], strict=True):
        joined += (value, part)
    return b"".join(joined)


class _NumberLoader(Loader):
    """Loads `numeric`, the type of sums: an int where it is integral, as in SQLite."""

    def load(self, data: Any) -> float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)
