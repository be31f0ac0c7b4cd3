"""Bad days of the SQLite engine: its process is killed, its disk is full, its commit fails.

Also here: that durable means waiting for the disk, and that no hot question walks a whole table.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.engine.base import Answer, Database, Row, Tx, Value
from paddlecloud.db.engine.sqlite import IDLE_READERS, SqliteDatabase, open_sqlite
from paddlecloud.db.tables import (
    agents,
    attempts,
    idempotency,
    jobs,
    nonces,
    snapshots,
    tokens,
)
from paddlecloud.db.tables.orders import orders_since
from paddlecloud.model.errors import Conflict, Internal, PaddleCloudError, Retry, StorageFull
from paddlecloud.model.jobs.states import JobState
from tests.contract.disk import small_disk
from tests.unit.db.values import NOW, a_job

PATIENCE = 30.0

WRITER = """
import sys, threading
from datetime import UTC, datetime
from pathlib import Path
from paddlecloud.db.engine.sqlite import open_sqlite

db = open_sqlite(Path(sys.argv[1]), now=datetime.now(UTC))
lock = threading.Lock()

def run(worker):
    for i in range(100000):
        name = f"{worker}-{i}"
        durable = i % 3 > 0
        db.write(lambda tx: tx.execute("insert into counters values (?, ?)", (name, i)),
                 durable=durable)
        with lock:
            sys.stdout.write(name + "\\n")
            sys.stdout.flush()

for worker in range(4):
    threading.Thread(target=run, args=(worker,)).start()
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with closing(open_sqlite(tmp_path / "x.db", now=NOW)) as database:
        yield database


@pytest.mark.parametrize("acknowledged", [1, 40, 400])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, acknowledged: int) -> None:
    path = tmp_path / "x.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        told += [line.strip() for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    with closing(open_sqlite(path, now=NOW)) as db:
        kept = {name for (name,) in db.read(lambda tx: tx.all("select name from counters"))}
        assert db.read(lambda tx: tx.one("pragma integrity_check")) == ("ok",)
    assert "" not in told
    assert set(told) <= kept
    assert len(kept - set(told)) <= 4, "at most what each thread was about to acknowledge"


def test_a_full_disk_is_named_and_harms_nothing_and_passes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="12m") as disk:
        path = disk / "x.db"
        with closing(open_sqlite(path, now=NOW)) as db:
            (disk / "ballast").write_bytes(b"x" * (8 << 20))
            kept = fill(db)
            assert kept > 0
            assert len(rows(db)) == kept, "all that was acknowledged, and nothing else"
            assert_group_fails_together(db)
            assert len(rows(db)) == kept
            (disk / "ballast").unlink()
            db.write(lambda tx: tx.execute("delete from counters"))
            refill = fill(db)
            assert refill > 0
            assert len(rows(db)) == refill
        with closing(open_sqlite(path, now=NOW)) as again:
            assert len(rows(again)) == refill
            assert again.read(lambda tx: tx.one("pragma integrity_check")) == ("ok",)


def test_a_disk_filled_by_others_is_named_and_passes(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", size="4m") as disk,
        closing(open_sqlite(disk / "x.db", now=NOW)) as db,
    ):
        db.write(lambda tx: put(tx, "before", 10))
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(StorageFull) as caught:
            for number in range(2000):
                db.write(lambda tx, n=number: put(tx, f"during-{n}", 4000))  # type: ignore[misc]
        assert caught.value.code == "database_full"
        assert str(disk / "x.db") in caught.value.text("en")
        assert "before" in rows(db)
        ballast.unlink()
        assert db.write(lambda tx: put(tx, "after", 100_000)) == 1
        assert {"before", "after"} <= rows(db)


def test_a_disk_too_small_to_begin_with_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="64k") as disk, pytest.raises(StorageFull):
        open_sqlite(disk / "x.db", now=NOW)


def test_a_commit_that_fails_fails_everyone_in_it_and_no_one_after_it(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    def poison(tx: Tx) -> None:
        tx.execute("pragma defer_foreign_keys = on")
        tx.execute(
            "insert into tokens (ak, user_id, kind, created_at) values ('a', 'nobody', 'user', 0)"
        )

    first = db.submit(wait)
    assert begun.wait(PATIENCE)
    group: list[Future[Any]] = [db.submit(lambda tx: put(tx, "a", 1)), db.submit(poison)]
    go_on.set()
    errors = [first.exception(PATIENCE), *(future.exception(PATIENCE) for future in group)]
    assert [type(error) for error in errors] == [Conflict] * 3
    assert rows(db) == set()
    db.write(lambda tx: put(tx, "b", 1))
    assert rows(db) == {"b"}


def test_a_mistake_in_a_commit_is_told_to_all_who_wait(
    db: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(notices: Sequence[object]) -> None:
        raise ValueError("filedescriptor out of range")

    with monkeypatch.context() as patch:
        patch.setattr(db._group._writer, "commit", mistaken)
        error = db.submit(lambda tx: put(tx, "a", 1)).exception(PATIENCE)
    assert isinstance(error, Retry)
    assert "filedescriptor out of range" in str(error)
    db.write(lambda tx: put(tx, "b", 1))
    assert rows(db) == {"b"}


def test_a_callable_that_hides_a_dropped_transaction_cannot_write_outside_one(
    db: Database,
) -> None:
    def careless(tx: Tx) -> None:
        tx.execute("rollback")
        try:
            tx.execute("select from nowhere")
        except PaddleCloudError:
            put(tx, "outside", 1)

    with pytest.raises(Internal):
        db.write(careless)
    assert rows(db) == set()
    db.write(lambda tx: put(tx, "b", 1))
    assert rows(db) == {"b"}


def test_a_durable_write_waits_for_the_disk_and_the_other_does_not(db: Database) -> None:
    def level(tx: Tx) -> Row | None:
        return tx.one("pragma synchronous")

    full, normal = (2,), (1,)
    levels = [db.write(level, durable=durable) for durable in (True, False, True, True)]
    assert levels == [full, normal, full, full]
    assert db.write(lambda tx: tx.one("pragma journal_mode")) == ("wal",)


def test_a_durable_write_never_shares_a_commit_that_does_not_wait(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    first = db.submit(wait, durable=False)
    assert begun.wait(PATIENCE)
    relaxed = db.submit(lambda tx: tx.one("pragma synchronous"), durable=False)
    durable = db.submit(lambda tx: tx.one("pragma synchronous"))
    go_on.set()
    first.result(PATIENCE)
    assert relaxed.result(PATIENCE) == (1,)
    assert durable.result(PATIENCE) == (2,)


def test_readers_are_reused_and_do_not_pile_up(db: Database, tmp_path: Path) -> None:
    crowd = 2 * IDLE_READERS
    for _ in range(4):
        start = threading.Barrier(crowd)
        with ThreadPoolExecutor(crowd) as pool:
            list(pool.map(lambda _, start=start: db.read(lambda tx: start.wait(30)), range(crowd)))
    # SQLite keeps the file open that a closed reader used, and gives it to the next one.
    files = [link for link in Path("/proc/self/fd").iterdir() if target(link) == f"{tmp_path}/x.db"]
    assert len(files) <= crowd + 1


class Explained:
    """A Tx that asks for the plan of each question instead of asking it."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.plans: list[str] = []

    def all(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        self.plans += [row[3] for row in self.tx.all(f"explain query plan {sql}", values)]
        return [("ann",)] if sql.startswith("with recursive") else []

    def one(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        self.all(sql, values)
        return (0,) if "count(*)" in sql else None

    def execute(self, sql: str, values: Sequence[Value] = ()) -> int:
        self.all(sql, values)
        return 1

    def run(self, sql: str, values: Sequence[Value] = ()) -> None:
        self.all(sql, values)

    def soon(self, sql: str, values: Sequence[Value] = ()) -> Answer:
        rows = self.all(sql, values)
        return lambda: rows

    def notify(self, channel: str, payload: str) -> None:
        pass


def test_no_question_walks_a_whole_table(db: Database) -> None:
    """However long the past is: each is a search, or walks an index of live rows only."""

    def explain(tx: Tx) -> list[str]:
        asked = Explained(tx)
        for one_state in (None, [JobState.FAILED]):
            for name in (None, "x"):
                jobs.list_jobs(asked, "ann", states=one_state, name=name, before=9)
        jobs.waiting_jobs(asked, per_owner=9)
        jobs.newcomers(asked, 9)
        jobs.placed_jobs(asked)
        jobs.jobs_in_state(asked, JobState.KILLING)
        jobs.overdue_waiting(asked, NOW)
        jobs.finished_before(asked, NOW, 9)
        jobs.queue_position(asked, a_job())
        jobs.count_waiting(asked, "ann")
        jobs.history(asked, "job-1")
        jobs.save_job(asked, a_job(), expected_version=1)
        jobs.delete_job(asked, "job-1")
        orders_since(asked, "n", 0)
        orders_since(asked, "n", 9)
        attempts.used_on_nodes(asked)
        attempts.used_by_owner(asked)
        attempts.live_attempts(asked)
        attempts.attempt_of(asked, "r")
        attempts.ended_attempts(asked, 9)
        attempts.unreleased(asked)
        attempts.end_attempt(asked, "job-1", 1, NOW, "")
        agents.get_agent(asked, "a")
        tokens.find_token(asked, "ak")
        snapshots.last_use(asked, "ann", "s")
        snapshots.unused_snapshots(asked, NOW)
        snapshots.delete_snapshot(asked, "ann", "s", NOW)
        idempotency.find_key(asked, "ann", "k")
        nonces.delete_expired(asked, NOW)
        return asked.plans

    jobs_ = ("jobs_line", "jobs_live", "jobs_placed")
    live = (*jobs_, "attempts_live", "attempts_to_release", "replicas_in_use", "owners", "servers",
            "waiting")  # fmt: skip
    plans = db.read(explain)
    assert len(plans) > 40
    walks = [p for p in plans if p.startswith("SCAN") and not any(name in p for name in live)]
    assert walks == []


def put(tx: Tx, name: str, size: int) -> int:
    return tx.execute("insert into counters values (?, ?)", (name + "x" * size, 0))


def rows(db: Database) -> set[str]:
    found = db.read(lambda tx: tx.all("select name from counters"))
    return {str(name).rstrip("x") for (name,) in found}


def fill(db: Database) -> int:
    """Write until the disk is full; how many rows were acknowledged."""
    for number in range(10_000):
        try:
            db.write(lambda tx, n=number: put(tx, f"{n}-", 20_000))  # type: ignore[misc]
        except StorageFull as error:
            assert error.code == "database_full"
            return number
    raise AssertionError("the disk never filled")


def assert_group_fails_together(db: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    first = db.submit(wait)
    assert begun.wait(PATIENCE)
    futures = [db.submit(lambda tx, n=n: put(tx, f"g{n}-", 200_000)) for n in range(20)]  # type: ignore[misc]
    go_on.set()
    assert isinstance(first.exception(PATIENCE), StorageFull)
    for future in futures:
        assert isinstance(future.exception(PATIENCE), StorageFull)


def target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def test_the_sqlite_here_knows_the_sql_we_speak() -> None:
    assert sqlite3.sqlite_version_info >= (3, 35), "returning and on conflict are needed"
