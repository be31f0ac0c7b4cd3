"""A real PostgreSQL for tests: one server for a run of tests, a database of its own for each test.

A database with our tables is emptied after its test and goes to the next one under a new name: to
make one takes five times as long. What a test left as it was not made is thrown away instead. Where
no server can be had, tests that need one are skipped with one line that says what is missing.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psycopg
import pytest

from paddlecloud.db import open_database
from scripts import postgres
from tests.shared_server import shared_server

PATIENCE = 30.0

_numbers = itertools.count(1)
_made: list[str] = []
_lent: list[str] = []
_idle: list[str] = []
_administrators: list[psycopg.Connection] = []
_by_folder: dict[Path, str] = {}


@pytest.fixture
def postgres_url() -> str:
    """The address of a database with our tables and nothing in them; it goes with the test."""
    return _lend()


@pytest.fixture
def postgres_place() -> Iterator[Path]:
    """The directory of a running server of the test's own, to be stopped and killed at will."""
    with tempfile.TemporaryDirectory(prefix="paddlecloud-pg-", ignore_cleanup_errors=True) as name:
        place = Path(name) / "server"
        Path(name).chmod(0o755)
        _or_skip(lambda: postgres.start(place))
        yield place
        postgres.stop(place, how="immediate")


@pytest.fixture(autouse=True)
def databases_go_with_their_test() -> Iterator[None]:
    yield
    take_back_all()


def take_back_all() -> None:
    """What tests were given is theirs no more."""
    _by_folder.clear()
    while _lent:
        _take_back(_lent.pop())
    while _made:
        _drop(_made.pop())


def fresh_database(like: str = "template1", *, keep: bool = False) -> str:
    """The address of a new database of the shared server, empty, or as that other one is.

    It goes with the test, or with `keep` with the server."""
    name = _new_name()
    if not keep:
        _made.append(name)
    _administer(f"create database {name} template {like}")
    return postgres.url(_server(), name)


def empty_database_of(folder: Path) -> str:
    """The address of a database without tables, which from now on belongs to `folder`."""
    _by_folder[folder] = fresh_database()
    return _by_folder[folder]


def database_of(folder: Path) -> str:
    """The address of the database that belongs to `folder`, with our tables and nothing in them."""
    if folder not in _by_folder:
        _by_folder[folder] = _lend()
    return _by_folder[folder]


def _lend() -> str:
    if not _idle:
        name = _new_name()
        _administer(f"create database {name} template {_migrated()}")
        _idle.append(name)
    _lent.append(_idle.pop())
    return postgres.url(_server(), _lent[-1])


def _take_back(name: str) -> None:
    """Empty a database for the next test; its former name finds nothing.

    One that gets a new connection before that is dropped, whichever name it has by then.
    """
    new = _new_name()
    with suppress(psycopg.Error):
        if _deserted(name):
            _administer(f"alter database {name} rename to {new}")
            if _emptied(new):
                _idle.append(new)
                return
    _drop(name)
    _drop(new)


def _emptied(name: str) -> bool:
    """Delete every row of a database whose tables are as we made them; False of another."""
    before = _as_migrated()
    with psycopg.connect(postgres.url(_server(), name), autocommit=True) as connection:
        if _marks(connection, before.kept) != before.marks:
            return False
        deletes = [f"delete from {table}" for table in before.emptied]
        connection.execute("; ".join(["set session_replication_role = replica", *deletes]))
    return True


def _deserted(name: str) -> bool:
    """End every connection to a database; whether all of them are gone."""
    end = f"select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{name}'"
    deadline = time.monotonic() + PATIENCE
    while _administer(end) != [(0,)]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _drop(name: str) -> None:
    _administer(f"drop database if exists {name} with (force)")


def _new_name() -> str:
    return f"test_{os.getpid()}_{next(_numbers)}"


def _administer(sql: str) -> list[tuple[object, ...]]:
    done = _administrator().execute(sql)
    return done.fetchall() if done.description else []


def _administrator() -> psycopg.Connection:
    """One connection for all; a new one when it was lost, which makes it a closed one."""
    if not _administrators or _administrators[-1].closed:
        _administrators.append(psycopg.connect(postgres.url(_server()), autocommit=True))
        atexit.register(_administrators[-1].close)
    return _administrators[-1]


@dataclass(frozen=True, kw_only=True)
class _Migrated:
    """The state of our tables before their first use."""

    emptied: list[str]
    kept: list[str]
    marks: list[object]


@cache
def _as_migrated() -> _Migrated:
    with psycopg.connect(fresh_database(_migrated()), autocommit=True) as connection:
        found = connection.execute("select tablename from pg_tables where schemaname = 'public'")
        tables = sorted(str(name) for (name,) in found)
        kept = [name for name in tables if connection.execute(f"table {name}").fetchone()]
        emptied = [name for name in tables if name not in kept]
        return _Migrated(emptied=emptied, kept=kept, marks=_marks(connection, kept))


def _marks(connection: psycopg.Connection, kept: list[str]) -> list[object]:
    """Every change of a table's form changes these, and every change of the rows that it keeps."""
    forms = "select relname, xmin::text from pg_class where relnamespace = 'public'::regnamespace"
    marks: list[object] = list(connection.execute(f"{forms} order by relname"))
    return marks + [list(connection.execute(f"table {name} order by 1")) for name in kept]


@cache
def _server() -> Path:
    _or_skip(postgres.find_programs)
    return shared_server(postgres.__file__, "PostgreSQL", mode=0o755)


@cache
def _migrated() -> str:
    """The name of a database with our tables, of which others are copies: that is quicker."""
    place, name = _server(), "migrated"
    with (place / "starting").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (place / name).exists():
            _administer(f"create database {name}")
            open_database(postgres.url(place, name), now=datetime.now(UTC)).close()
            (place / name).touch()
    return name


def _or_skip(work: Callable[[], object]) -> None:
    try:
        work()
    except postgres.Missing as error:
        pytest.skip(f"no PostgreSQL for this test: {error}")
