"""The event loop's own writes: together, each with its own end, and elsewhere when slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.sqlite import SqliteDatabase
from paddlecloud.db.tables.counters import next_number
from paddlecloud.model.errors import Conflict
from paddlecloud.server.http import loop_commit
from paddlecloud.server.http.loop_commit import LoopWriter
from tests.sqlite import open_with_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SqliteDatabase]:
    database = open_with_tables(tmp_path / "x.db", now=NOW)
    yield database
    database.close()


def count(tx: Tx) -> int:
    return next_number(tx, "test")


def on_thread(seen: list[str]) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        seen.append(threading.current_thread().name)
        return count(tx)

    return work


def test_the_writes_of_one_turn_are_one_group_on_the_loops_thread(db: SqliteDatabase) -> None:
    seen: list[str] = []

    async def many() -> list[int]:
        gathered = LoopWriter(db)
        return await asyncio.gather(*(gathered.write(on_thread(seen)) for _ in range(20)))

    assert sorted(asyncio.run(many())) == list(range(1, 21))
    assert set(seen) == {threading.current_thread().name}


def test_one_that_fails_is_nobody_elses_failure(db: SqliteDatabase) -> None:
    def fails(tx: Tx) -> int:
        count(tx)
        raise Conflict("lease_lost", name="x")

    async def three() -> list[int | BaseException]:
        gathered = LoopWriter(db)
        works = (count, fails, count)
        return await asyncio.gather(
            *(gathered.write(work) for work in works), return_exceptions=True
        )

    first, failed, last = asyncio.run(three())
    assert (first, last) == (1, 2)
    assert isinstance(failed, Conflict)


def test_while_another_thread_commits_the_loop_does_not_stand_still(db: SqliteDatabase) -> None:
    held, free = threading.Event(), threading.Event()

    def slow(tx: Tx) -> int:
        held.set()
        assert free.wait(20)
        return count(tx)

    async def write() -> int:
        gathered = LoopWriter(db)
        waiting = asyncio.ensure_future(gathered.write(count))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        free.set()
        return await waiting

    other = threading.Thread(target=db.write, args=(slow,))
    other.start()
    assert held.wait(20)
    assert asyncio.run(write()) == 2
    other.join()


def test_after_a_slow_commit_the_databases_own_thread_is_asked(
    db: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    ticks = iter((0.0, 2 * loop_commit.SLOW))
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))

    async def some() -> None:
        gathered = LoopWriter(db)
        await gathered.write(on_thread(seen))
        for _ in range(3):
            await gathered.write(on_thread(seen))

    asyncio.run(some())
    assert seen == [threading.current_thread().name, *["database-writer"] * 3]


def test_a_caller_that_went_away_loses_nothing(db: SqliteDatabase) -> None:
    async def leave() -> int:
        gathered = LoopWriter(db)
        gone = asyncio.ensure_future(gathered.write(count))
        await asyncio.sleep(0)
        gone.cancel()
        return await gathered.write(count)

    assert asyncio.run(leave()) == 2
