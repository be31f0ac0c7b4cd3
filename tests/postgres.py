"""A real PostgreSQL for tests: one server for a run of tests, a fresh empty database for each test.

Where none can be had, tests that need one are skipped with one line that says what is missing.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psycopg
import pytest

from paddlecloud.db import open_database
from scripts import postgres
from tests.keepers import shared_server

_numbers = itertools.count(1)
_made: list[str] = []
_by_folder: dict[Path, str] = {}


@pytest.fixture
def postgres_url() -> str:
    """The address of a fresh, empty database; it goes with the test."""
    return fresh_database()


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
    _by_folder.clear()
    while _made:
        _administer(f"drop database if exists {_made.pop()} with (force)")


def fresh_database(like: str = "template1", *, keep: bool = False) -> str:
    """The address of a new database of the shared server, empty, or as that other one is.

    It goes with the test, or with `keep` with the server."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
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
        _by_folder[folder] = fresh_database(_migrated())
    return _by_folder[folder]


def _administer(sql: str) -> None:
    with psycopg.connect(postgres.url(_server()), autocommit=True) as connection:
        connection.execute(sql)


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
