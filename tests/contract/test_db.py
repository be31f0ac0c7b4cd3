"""What every database engine promises: atomic writes, snapshot reads, wake-ups after the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables.counters import next_number
from paddlecloud.model.errors import Conflict, Internal, PaddleCloudError, Retry
from tests.unit.db.values import ENGINES, Ear, opened

PATIENCE = 30.0


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


class Oops(Exception):
    pass


def put(name: str, value: int = 0) -> Callable[[Tx], int]:
    """A callable that writes one row."""

    def work(tx: Tx) -> int:
        return tx.execute("insert into counters (name, value) values (?, ?)", (name, value))

    return work


def spoiled(name: str) -> Callable[[Tx], int]:
    """A callable that writes one row, announces it, and then fails."""

    def work(tx: Tx) -> int:
        put(name)(tx)
        tx.notify("row", name)
        raise Oops(name)

    return work


def names(db: Database) -> list[str]:
    rows = db.read(lambda tx: tx.all("select name from counters order by name"))
    return [name for (name,) in rows]


@contextmanager
def a_busy_writer(db: Database) -> Iterator[None]:
    """While this lasts, writes queue up behind one that does not end; then they are one group."""
    begun, go_on = threading.Event(), threading.Event()

    def work(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    future = db.submit(work)
    assert begun.wait(PATIENCE)
    yield
    go_on.set()
    future.result(PATIENCE)


def test_a_write_returns_what_its_callable_returns_and_is_seen_by_the_next_read(
    db: Database,
) -> None:
    assert db.write(put("a", 7)) == 1
    assert db.read(lambda tx: tx.one("select value from counters where name = ?", ("a",))) == (7,)


def test_a_failed_write_leaves_nothing_and_raises_its_own_error(db: Database) -> None:
    with pytest.raises(Oops):
        db.write(spoiled("a"))
    assert names(db) == []
    db.write(put("b"))
    assert names(db) == ["b"]


def test_one_failure_in_a_group_undoes_only_its_own_rows(db: Database) -> None:
    with a_busy_writer(db):
        futures = [
            db.submit(spoiled("first")),
            db.submit(put("a")),
            db.submit(spoiled("bad")),
            db.submit(put("b")),
            db.submit(put("a")),
            db.submit(put("c")),
        ]
    for future, want in zip(futures, (Oops, None, Oops, None, Conflict, None), strict=True):
        error = future.exception(PATIENCE)
        assert error is None if want is None else isinstance(error, want), error
    assert names(db) == ["a", "b", "c"]


def test_writes_of_one_thread_are_committed_in_their_order(db: Database) -> None:
    numbers: list[int] = []
    with a_busy_writer(db):
        futures = [
            db.submit(lambda tx: numbers.append(next_number(tx, "order")), durable=i % 3 == 0)
            for i in range(200)
        ]
    for future in futures:
        future.result(PATIENCE)
    assert numbers == list(range(1, 201))


def test_writes_of_many_threads_are_all_done_and_never_mixed(db: Database) -> None:
    def run(worker: int) -> list[int]:
        got = []
        for i in range(100):
            durable = (worker + i) % 4 == 0
            if i % 2:
                got.append(db.write(lambda tx: next_number(tx, "x"), durable=durable))
            else:
                future = db.submit(lambda tx: next_number(tx, "x"), durable=durable)
                got.append(future.result(PATIENCE))
        return got

    with ThreadPoolExecutor(8) as pool:
        results = [number for got in pool.map(run, range(8)) for number in got]
    assert sorted(results) == list(range(1, 801))


def test_a_cancelled_write_never_runs(db: Database) -> None:
    with a_busy_writer(db):
        unwanted = db.submit(put("unwanted"))
        wanted = db.submit(put("wanted"))
        assert unwanted.cancel()
    wanted.result(PATIENCE)
    assert names(db) == ["wanted"]


def test_a_read_sees_one_moment_and_never_delays_a_write(db: Database) -> None:
    count = "select count(*) from counters"

    def look_twice(tx: Tx) -> tuple[object, object]:
        before = tx.one(count)
        db.submit(put("meanwhile")).result(PATIENCE)
        return before, tx.one(count)

    assert db.read(look_twice) == ((0,), (0,))
    assert db.read(lambda tx: tx.one(count)) == (1,)


def test_reads_go_on_while_a_write_takes_its_time(db: Database) -> None:
    with a_busy_writer(db), ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: names(db), range(20)))
    assert answers == [[]] * 20


def test_a_read_cannot_change_anything(db: Database) -> None:
    with pytest.raises(PaddleCloudError):
        db.read(put("a"))
    assert names(db) == []


def test_one_says_none_where_there_is_no_row(db: Database) -> None:
    assert db.read(lambda tx: tx.one("select 1 from counters")) is None


def test_a_row_that_clashes_is_a_conflict(db: Database) -> None:
    db.write(put("a"))
    with pytest.raises(Conflict) as caught:
        db.write(put("a"))
    assert caught.value.code == "database_clash"


def test_a_row_that_points_nowhere_is_refused(db: Database) -> None:
    orphan = "insert into tokens (ak, user_id, kind, created_at) values ('a', 'nobody', 'user', 0)"
    with pytest.raises(Conflict):
        db.write(lambda tx: tx.execute(orphan))


def test_wrong_sql_is_our_mistake_and_not_worth_repeating(db: Database) -> None:
    with pytest.raises(Internal) as caught:
        db.write(lambda tx: tx.execute("select from nowhere"))
    assert caught.value.code == "database_mistake"


def test_a_wake_up_comes_after_the_commit(db: Database) -> None:
    seen: Future[tuple[str, str, list[str]]] = Future()
    db.subscribe(lambda channel, payload: seen.set_result((channel, payload, names(db))))

    def work(tx: Tx) -> None:
        tx.notify("row", "a")
        put("a")(tx)

    db.write(work)
    assert seen.result(PATIENCE) == ("row", "a", ["a"])


def test_no_wake_up_comes_for_what_was_not_committed(db: Database) -> None:
    ear = Ear(db)
    with a_busy_writer(db):
        failed = [db.submit(spoiled("first")), db.submit(put("a")), db.submit(spoiled("bad"))]
    assert isinstance(failed[0].exception(PATIENCE), Oops)
    assert isinstance(failed[2].exception(PATIENCE), Oops)
    assert ear.heard() == []


def test_a_listener_that_fails_harms_nobody(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    def broken(channel: str, payload: str) -> None:
        raise Oops(payload)

    db.subscribe(broken)
    db.subscribe(lambda channel, payload: told.set())
    db.write(lambda tx: tx.notify("row", "a"))
    assert told.wait(PATIENCE)
    db.write(put("still works"))
    assert "a listener failed on row a" in caplog.text


def test_a_listener_may_submit_and_hears_nothing_more_once_it_ended(db: Database) -> None:
    answered: Future[Future[int]] = Future()

    def listener(channel: str, payload: str) -> None:
        answered.set_result(db.submit(put("by the listener")))

    unsubscribe = db.subscribe(listener)
    db.write(lambda tx: tx.notify("row", "a"))
    assert answered.result(PATIENCE).result(PATIENCE) == 1
    unsubscribe()
    db.write(lambda tx: tx.notify("row", "b"))
    assert names(db) == ["by the listener"]


def test_a_write_that_would_wait_for_itself_is_refused(db: Database) -> None:
    with pytest.raises(RuntimeError, match="wait for itself"):
        db.write(lambda tx: db.write(put("inner")))
    assert names(db) == []


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_closing_finishes_what_was_submitted_and_then_refuses(engine: str, tmp_path: Path) -> None:
    with opened(engine, tmp_path) as db:
        futures = [db.submit(put(f"{i:03}"), durable=i % 2 == 0) for i in range(50)]
        db.close()
        db.close()
        assert [future.result(0) for future in futures] == [1] * 50
        for call in (db.write, db.submit, db.read):
            with pytest.raises(Retry) as caught:
                call(put("late"))
            assert caught.value.code == "database_closed"
    with opened(engine, tmp_path) as again:
        assert len(names(again)) == 50


def test_a_statement_that_failed_spoils_its_write_and_no_other(db: Database) -> None:
    db.write(put("a"))

    def careless(tx: Tx) -> str:
        put("before")(tx)
        try:
            put("a")(tx)
        except Conflict:
            return "all is well"
        return "?"

    with a_busy_writer(db):
        futures: list[Future[Any]] = [
            db.submit(put("b")),
            db.submit(careless),
            db.submit(put("c")),
        ]
    assert isinstance(futures[1].exception(PATIENCE), Conflict)
    assert names(db) == ["a", "b", "c"]
    with pytest.raises(Conflict):
        db.write(careless)
    assert names(db) == ["a", "b", "c"]


def test_a_statement_that_nobody_waits_for_counts_as_any_other(db: Database) -> None:
    def put_later(name: str) -> Callable[[Tx], None]:
        return lambda tx: tx.run("insert into counters (name, value) values (?, 1)", (name,))

    with a_busy_writer(db):
        futures = [db.submit(put_later(name)) for name in ("a", "b", "a", "c")]
    kinds = [type(future.exception(PATIENCE)) for future in futures]
    assert kinds == [type(None), type(None), Conflict, type(None)]
    assert names(db) == ["a", "b", "c"]

    def count(tx: Tx) -> object:
        put_later("d")(tx)
        return tx.one("select count(*), sum(value) from counters")

    assert db.write(count) == (4, 4)


def test_a_failure_before_any_statement_harms_nobody(db: Database) -> None:
    def fail(tx: Tx) -> None:
        raise Oops

    with a_busy_writer(db):
        futures: list[Future[Any]] = [
            db.submit(put("a")),
            db.submit(fail),
            db.submit(put("b")),
            db.submit(lambda tx: None),
        ]
    errors = [future.exception(PATIENCE) for future in futures]
    assert [type(error) for error in errors] == [type(None), Oops, type(None), type(None)]
    assert names(db) == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        "it's",
        "a \\ b \\' c",
        "'; drop table counters; --",
        "数据 ?",
        "$1 %s {x}",
        "\n;\n",
        "",
        "🙂",
    ],
)
def test_any_text_comes_back_as_it_was(db: Database, value: str) -> None:
    same = "select name, ? from counters where name = ?"
    db.write(put(value))
    for _ in range(4):  # also once the statement is one that comes often
        assert db.read(lambda tx: tx.one(same, ("x?", value))) == (value, "x?")


@pytest.mark.parametrize("value", [0, -1, 2**62, -(2**63)])
def test_whole_numbers_come_back_as_they_were(db: Database, value: int) -> None:
    db.write(put("a", value))
    for _ in range(4):
        found = db.read(lambda tx: tx.all("select value from counters where value = ?", (value,)))
        assert found == [(value,)]


@pytest.mark.parametrize("value", [0.5, 1e-300, 1.0, 123456789.123, -2.5e30])
def test_fractions_come_back_as_they_were(db: Database, value: float) -> None:
    for _ in range(4):
        assert db.read(lambda tx: tx.one("select cast(? as double precision)", (value,))) == (
            value,
        )


def test_a_large_text_is_kept_whole(db: Database) -> None:
    large = "x'y\\z数" * 400_000
    db.write(lambda tx: tx.run("insert into leases values (?, ?, 1, 1)", ("a", large)))
    assert db.read(lambda tx: tx.one("select holder from leases")) == (large,)
