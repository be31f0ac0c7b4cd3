"""Nonces: spent once, deleted in time whatever the clock does, and written before what follows."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.sqlite import SqliteDatabase, open_sqlite
from paddlecloud.db.tables import counters, nonces
from paddlecloud.db.tables.nonces import BUCKET, LIFE, Horizon, Pruner, WriteBehindNonces

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp())
DAY = 24 * 3600


class Failing:
    """A database whose writes the test runs and answers by hand."""

    def __init__(self) -> None:
        self.writes: list[tuple[Callable[[Tx], Any], Future[Any]]] = []

    def read(self, _work: object) -> list[tuple[tuple[str, str], int]]:
        return [(("ak", "before"), NOON + 600)]

    def submit(self, work: Callable[[Tx], Any], *, durable: bool) -> Future[Any]:
        assert not durable
        self.writes.append((work, Future()))
        return self.writes[-1][1]

    defer = submit

    def run(self, number: int, error: Exception | None = None) -> list[object]:
        """What this write inserts; then it is committed, or fails."""
        rows = Rows()
        work, future = self.writes[number]
        work(rows)  # type: ignore[arg-type]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        return rows.kept


class Rows:
    """Collects what is inserted."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def execute(self, _sql: str, values: tuple[object, ...]) -> int:
        self.kept.append(values[1])
        return 1


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SqliteDatabase]:
    found = open_sqlite(tmp_path / "db", now=at(0))
    yield found
    found.close()


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOON + seconds, UTC)


def kept(db: SqliteDatabase) -> set[str]:
    return {str(nonce) for (nonce,) in db.read(lambda tx: tx.all("select nonce from nonces"))}


def test_a_nonce_is_spent_once_whatever_time_it_is_dated() -> None:
    seen = WriteBehindNonces(Failing(), at(0))  # type: ignore[arg-type]
    assert not seen.spend("ak", "before", NOON + 9), "a server before this one spent it"
    assert seen.spend("ak", "n", NOON + 10)
    assert not seen.spend("ak", "n", NOON + 10)
    assert not seen.spend("ak", "n", NOON + 1000)
    assert seen.spend("other", "n", NOON + 10)


def test_it_is_dropped_from_memory_when_its_signature_has_expired_and_not_before() -> None:
    seen = WriteBehindNonces(Failing(), at(0))  # type: ignore[arg-type]
    seen.spend("ak", "late", NOON + 1800)
    seen.spend("ak", "n", NOON + 59)
    seen.evict(at(59))
    assert not seen.spend("ak", "n", NOON + 59)
    seen.evict(at(61))
    assert seen.spend("ak", "n", NOON + 59)
    assert not seen.spend("ak", "late", NOON + 1800)


def test_what_could_not_be_written_is_written_again() -> None:
    db = Failing()
    seen = WriteBehindNonces(db, at(0))  # type: ignore[arg-type]
    assert seen.flush(), "nothing to do"
    seen.spend("ak", "one", NOON + 10)
    seen.spend("ak", "two", NOON + 10)
    assert len(db.writes) == 1, "one write for all that come until it begins"
    assert db.run(0, OSError("disk full")) == ["one", "two"]
    seen.spend("ak", "three", NOON + 10)
    assert not seen.flush()
    assert not seen.flush(), "the write is on its way"
    assert len(db.writes) == 3
    assert db.run(1) == ["one", "two", "three"]
    assert db.run(2) == []
    assert seen.flush()
    assert len(db.writes) == 3


def test_a_nonce_is_as_durable_as_what_is_written_after_it(
    db: SqliteDatabase, tmp_path: Path
) -> None:
    """The copy is what a kill would leave behind: nothing was flushed and nothing closed."""
    seen = WriteBehindNonces(db, at(0))
    for number in range(20):
        nonce = secrets.token_hex(16)
        seen.spend("ak", nonce, NOON + 1800)
        db.write(lambda tx: counters.next_number(tx, "changes"))
        copy = tmp_path / f"copy-{number}"
        copy.mkdir()
        for path in tmp_path.glob("db*"):
            shutil.copy(path, copy / path.name)
        left = open_sqlite(copy / "db", now=at(1))
        assert nonce in kept(left)
        assert not WriteBehindNonces(left, at(1)).spend("ak", nonce, NOON + 1800)
        left.close()


def test_a_nonce_that_nothing_follows_is_written_by_a_flush(db: SqliteDatabase) -> None:
    seen = WriteBehindNonces(db, at(0))
    seen.spend("ak", "n", NOON + 1800)
    assert kept(db) == set()
    assert not seen.flush()
    db.write(lambda tx: None)
    assert kept(db) == {"n"}
    assert seen.flush()


def test_nonces_expire_by_a_clock_that_goes_on() -> None:
    horizon = Horizon(at(0), 0)
    for minute in range(1, 45):
        assert horizon.at(at(minute * 60), minute * 60) == at(minute * 60 - DAY)
    assert horizon.at(at(LIFE), LIFE) == at(LIFE)
    assert horizon.at(at(LIFE + 3 * DAY), LIFE + 3 * DAY) == at(LIFE + 3 * DAY), "after a pause"


def test_nothing_expires_while_the_clock_is_ahead_for_a_while() -> None:
    horizon = Horizon(at(0), 0)
    horizon.at(at(LIFE), LIFE)
    for ahead in (3600, 400 * DAY):
        for minute in range(1, 44):
            passed = LIFE + minute * 60
            assert horizon.at(at(passed + ahead), passed) == at(passed)
    assert horizon.at(at(LIFE + 44 * 60), LIFE + 44 * 60) == at(LIFE + 44 * 60)


def test_a_clock_that_stays_ahead_is_believed_in_the_end() -> None:
    horizon = Horizon(at(0), 0)
    horizon.at(at(LIFE), LIFE)
    horizon.at(at(LIFE + 60 + 3600), LIFE + 60)
    passed = LIFE + 60 + LIFE
    assert horizon.at(at(passed + 3600), passed) == at(passed + 3600)


def test_after_a_clock_was_set_back_expiry_follows_it() -> None:
    horizon = Horizon(at(0), 0)
    horizon.at(at(LIFE), LIFE)
    assert horizon.at(at(LIFE + 60 - 2 * DAY), LIFE + 60) == at(LIFE + 60 - 2 * DAY)


def test_the_pruner_deletes_once_a_minute_what_has_expired(db: SqliteDatabase) -> None:
    def spend(tx: Tx) -> None:
        for seconds in (-2 * DAY, -60, LIFE, 2 * LIFE):
            nonces.spend_nonce(tx, "ak", f"n{seconds}", at(seconds))

    def pruned(seconds: float) -> datetime | None:
        found = pruner.prune(at(seconds), seconds)
        db.write(lambda tx: None)  # what was submitted before is committed
        return found

    db.write(spend)
    pruner = Pruner(db, at(0), 0)
    assert pruned(BUCKET - 1) is None
    assert pruned(BUCKET) == at(BUCKET - DAY)
    assert kept(db) == {"n-60", f"n{LIFE}", f"n{2 * LIFE}"}
    assert pruned(BUCKET + 1) is None
    assert pruned(LIFE + BUCKET) == at(LIFE + BUCKET)
    assert kept(db) == {f"n{2 * LIFE}"}
