"""How statements reach PostgreSQL, and what comes back: one connection, as few waits as possible.

What costs time is waiting for the other process, not the statement, so whatever needs no answer
(begin, savepoints, inserts that nobody counts) is kept and sent in front of the next statement that
does, as one text. That is the simple query protocol, in which values are literals; they are quoted
by the client library for the connection they go to. A statement that comes again is prepared once
under a name and then executed by it, which spares its parsing and planning. Measured, that beats
both cursors of psycopg. The address with its password is never part of a message.
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
"""A statement is prepared the third time it comes: by then it will come again."""
MAX_PREPARED = 256
MAX_PLACES = 64
"""One with more values is a list of some length, and the next list has another."""
FAREWELL_SECONDS = 0.1
"""Between the last word of a server that ends a connection and the end itself."""
LOOK_SECONDS = 1.0
"""Between two looks whether a connection that is waited on is still there."""
MAX_PENDING = 1 << 20
"""Bytes that may wait for the next statement."""

_SESSION = (
    # Our questions are all made for an index; a plan made while a table was small stays good.
    "enable_seqscan = off",
    "jit = off",
    "standard_conforming_strings = on",
    "client_encoding = 'UTF8'",
    "search_path = public",
)
# A peer that vanished without a word is noticed after about half a minute.
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
    """Where a database is. It shows host and name, never the password."""

    def __init__(self, url: str) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.Error:
            # What the library says about it quotes the text, and the text holds a password.
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
    """One connection with what waits to be sent on it. For one thread at a time."""

    def __init__(self, address: Address, connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_loader("numeric", _NumberLoader)
        self._address = address
        self._connection = connection
        self._pg = connection.pgconn
        self._quote = pq.Escaping(self._pg).escape_literal
        self._rows = Transformer(connection)
        self._pending: list[bytes] = []
        self._asked: dict[int, _Place] = {}
        self._waiting = 0
        self._sent = 0
        self._seen: dict[str, int] = {}
        self._prepared: dict[str, bytes] = {}
        self._usable = True
        self._unread = False
        """Whether an answer is on its way that nobody asked for; PQexec drops it by itself."""
        self.failure: PaddleCloudError = Retry("database_closed")

    @property
    def usable(self) -> bool:
        """False once the connection is broken, for whatever reason."""
        return self._usable and self._pg.status == pq.ConnStatus.OK

    def later(self, *statements: str) -> None:
        """Send these with the next statement."""
        self._keep([statement.encode() for statement in statements])

    def later_with(self, sql: str, values: Sequence[Value]) -> None:
        """Send this one with the next statement."""
        self._keep([self._rendered(sql, values)])
        if self._waiting > MAX_PENDING:
            self._exchange([])

    def soon(self, sql: str, values: Sequence[Value]) -> Answer:
        """Send this one with the next statement; its rows can be had after that."""
        place = _Place()
        statement = self._rendered(sql, values)
        self._asked[len(self._pending)] = place
        self._keep([statement])
        if self._waiting > MAX_PENDING:
            self._exchange([])
        return place.get

    def send(self, statement: str) -> bytes | None:
        """Send one statement without values, after what waits; what the server says it did."""
        return self._exchange([statement.encode()]).command_status

    def flush(self, *more: str) -> None:
        """Send what waits, and more if anything does; raise what is wrong with it."""
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

    def forget_pending(self) -> None:
        self._pending, self._waiting, self._asked = [], 0, {}

    def mark(self) -> Mark:
        """Where we are, to be given to `back_to`."""
        return self._sent, len(self._pending)

    def back_to(self, mark: Mark) -> bool:
        """Forget what waits since `mark`; False if something has been sent since then."""
        sent, waiting = mark
        if sent != self._sent:
            self.forget_pending()
            return False
        del self._pending[waiting:]
        self._waiting = sum(map(len, self._pending))
        self._asked = {number: it for number, it in self._asked.items() if number < waiting}
        return True

    def has_sent_since(self, mark: Mark) -> bool:
        return mark[0] != self._sent

    def look(self) -> None:
        """Notice a server that ended the connection while nothing was asked of it.

        What was said before a statement is sent is surely no answer to it. Costs no wait, unless
        something was said: mostly that is a farewell, and the end of the connection follows.
        """
        try:
            patience = 0.0
            while readable(self._pg.socket, seconds=patience):
                self._pg.consume_input()
                patience = FAREWELL_SECONDS
        except psycopg.Error as error:
            self._usable = False
            self.failure = translated(error, self._address)

    def begin_read(self) -> Mark:
        mark = self.mark()
        self.later("begin isolation level repeatable read, read only")
        return mark

    def end_read(self, mark: Mark) -> None:
        """End a transaction that changed nothing, without waiting for the answer.

        The next statement drops that answer before its own.
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
        """Send all that waits and these; the result of the last of them."""
        text = b"\n;".join((*self._pending, *statements))
        asked = self._asked
        self.forget_pending()
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

    def _answered(self, text: bytes, asked: Mapping[int, _Place]) -> PGresult:
        """The result of the last statement; those of others are put into their places."""
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
        """Waits as PQexec does, but keeps every result, and the interpreter is free meanwhile."""
        results: list[PGresult] = waiting.wait(answers, self._pg.socket, interval=LOOK_SECONDS)
        return results

    def _loaded(self, result: PGresult) -> list[Row]:
        self._rows.set_pgresult(result)
        return self._rows.load_rows(0, result.ntuples, tuple)

    def _rendered(self, sql: str, values: Sequence[Value]) -> bytes:
        """The statement with its values; it is prepared first if that is due."""
        literals = [self._literal(value) for value in values]
        name = self._prepared.get(sql) or self._name(sql, len(literals))
        if name is None:
            return _joined(_pieces(sql), literals) if literals else sql.encode()
        if not literals:
            return b"execute %b" % name
        return b"execute %b(%b)" % (name, b",".join(literals))

    def _name(self, sql: str, places: int) -> bytes | None:
        """The name of a statement that came often enough, prepared for it; else None.

        That is sent on its own: after an error in the middle of several, nobody could tell whether
        the name exists.
        """
        times = self._seen[sql] = self._seen.get(sql, 0) + 1
        if times < PREPARE_FROM or not self._may_prepare(sql, places):
            if len(self._seen) > 8 * MAX_PREPARED:
                self._seen.clear()
            return None
        name = b"s%d" % len(self._prepared)
        numbered = [b"$%d" % number for number in range(1, places + 1)]
        self._exchange([b"prepare %b as %b" % (name, _joined(_pieces(sql), numbered))])
        self._prepared[sql] = name
        return name

    def _may_prepare(self, sql: str, places: int) -> bool:
        room = len(self._prepared) < MAX_PREPARED and places <= MAX_PLACES
        return room and _PREPARABLE.match(sql) is not None

    def _literal(self, value: Value) -> bytes:
        if isinstance(value, str):
            if "\0" in value:
                raise Invalid("text_with_nul")
            return bytes(self._quote(_utf8(value)))
        if value is None:
            return b"null"
        if isinstance(value, bytes):
            return b"'\\x%b'::bytea" % value.hex().encode()
        if isinstance(value, float):
            return b"'%b'::float8" % repr(value).encode()
        return b"%d" % value


class _Place:
    """Where the rows of a statement come that nobody waits for."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def get(self) -> list[Row]:
        return self.rows


class PgTx:
    """See `Tx`. After an error nothing more is asked: PostgreSQL would refuse it."""

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
        """Wait for what was only sent so far; raises what is wrong with any of it."""
        self.check()
        try:
            self._session.flush(*(statement for statement in more if statement))
        except PaddleCloudError as error:
            raise self._spoiled(error) from None

    def check(self) -> None:
        """Raise what was wrong with an earlier statement, if anything was."""
        if self.failed is not None:
            raise self.failed

    def _spoiled(self, error: PaddleCloudError) -> PaddleCloudError:
        self.failed = error
        return error


def readable(*files: int, seconds: float | None) -> bool:
    """Whether there is something to read within so many seconds (None: wait for it).

    The number of a file may be high where thousands are connected, and `select` counts to 1,024.
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
    """The error of our tree that says what to do about this one."""
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


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid("text_not_unicode") from None


@lru_cache(maxsize=2048)
def _pieces(sql: str) -> tuple[bytes, ...]:
    """The text around the places of its values; a question mark inside quotes is none."""
    pieces, begun = [], 0
    for place in _PLACE.finditer(sql):
        if place.group(1):
            pieces.append(sql[begun : place.start()].encode())
            begun = place.end()
    pieces.append(sql[begun:].encode())
    return tuple(pieces)


def _joined(pieces: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    if len(values) != len(pieces) - 1:
        raise Internal("database_mistake", detail=f"{len(values)} values, {len(pieces) - 1} places")
    parts = [pieces[0]]
    for value, piece in zip(values, pieces[1:], strict=True):
        parts += (value, piece)
    return b"".join(parts)


class _NumberLoader(Loader):
    """What sums of whole numbers come as: a whole number where it is one, as in SQLite."""

    def load(self, data: Any) -> float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)
