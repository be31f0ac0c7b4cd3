"""What only a database of several servers promises, and its bad days: its server is restarted or
killed under load, ours is killed, a connection breaks in the middle; and the password stays secret.
"""

from __future__ import annotations

import logging
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paddlecloud.db import open_database
from paddlecloud.db.engine._pg_listen import MAX_PAYLOAD, packed, unpacked
from paddlecloud.db.engine._pg_session import Address
from paddlecloud.db.engine.base import EVERYTHING, Answer, Database, Row, Tx
from paddlecloud.db.engine.postgres import PostgresDatabase, open_postgres
from paddlecloud.db.tables import jobs
from paddlecloud.db.tables.counters import next_number
from paddlecloud.db.tables.nonces import SharedNonces
from paddlecloud.model.errors import ConfigError, Conflict, Invalid, Retry
from scripts import postgres
from tests.unit.db.values import NOW, a_job

PATIENCE = 60.0
MANY_FILES = 1100

WRITER = """
import sys, threading
from datetime import UTC, datetime
from paddlecloud.db import open_database

db = open_database(sys.argv[1], now=datetime.now(UTC))
lock = threading.Lock()

def run(worker):
    for i in range(100000):
        name = f"{worker}-{i}"
        db.write(lambda tx: tx.execute("insert into counters values (?, ?)", (name, i)),
                 durable=i % 3 > 0)
        with lock:
            sys.stdout.write(name + "\\n")
            sys.stdout.flush()

for worker in range(4):
    threading.Thread(target=run, args=(worker,)).start()
"""


@pytest.fixture
def db(postgres_url: str) -> Iterator[PostgresDatabase]:
    with closing(open_postgres(postgres_url, now=NOW)) as database:
        yield database


@pytest.fixture
def other(db: Database, postgres_url: str) -> Iterator[PostgresDatabase]:
    """Another server on the same database."""
    with closing(open_postgres(postgres_url, now=NOW)) as database:
        yield database


def put(name: str) -> Callable[[Tx], int]:
    return lambda tx: tx.execute("insert into counters (name, value) values (?, 0)", (name,))


def names(db: Database) -> set[str]:
    return {name for (name,) in db.read(lambda tx: tx.all("select name from counters"))}


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_writes_of_two_servers_happen_one_after_the_other(
    db: PostgresDatabase, other: PostgresDatabase
) -> None:
    """Each looks and then acts on what it saw; no two see the same."""

    def take(tx: Tx) -> int:
        row = tx.one("select count(*) from counters")
        assert row is not None
        put(f"place {row[0]}")(tx)
        return int(row[0])

    def run(which: Database) -> list[int]:
        return [which.write(take) for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        taken = [place for places in pool.map(run, [db, other] * 4) for place in places]
    assert sorted(taken) == list(range(400))


@pytest.fixture
def crowded() -> Iterator[None]:
    """So many open files that the number of the next is beyond what `select` can count to."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < MANY_FILES + 200:
        pytest.skip(f"this machine allows {before[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], MANY_FILES + 200), before[1]))
    with ExitStack() as stack:
        for _ in range(MANY_FILES):
            stack.enter_context(Path(os.devnull).open("rb"))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_with_thousands_of_connections_reaches_its_database(
    crowded: None, postgres_url: str
) -> None:
    heard: list[tuple[str, str]] = []
    with (
        closing(open_postgres(postgres_url, now=NOW)) as db,
        closing(open_postgres(postgres_url, now=NOW)) as other,
    ):
        other.subscribe(lambda channel, payload: heard.append((channel, payload)))
        db.write(put("a"))
        db.write(put("b"))
        db.write(lambda tx: tx.notify("job", "9"))
        soon(lambda: ("job", "9") in heard)
        assert names(other) == {"a", "b"}


def test_a_wake_up_reaches_other_servers_once_and_ours_once(
    db: PostgresDatabase, other: PostgresDatabase
) -> None:
    heard: dict[str, list[tuple[str, str]]] = {"here": [], "there": []}
    db.subscribe(lambda channel, payload: heard["here"].append((channel, payload)))
    other.subscribe(lambda channel, payload: heard["there"].append((channel, payload)))
    many = [("job", f"{number:0100}") for number in range(300)]

    def work(tx: Tx) -> None:
        for channel, payload in many:
            tx.notify(channel, payload)

    db.write(work)
    other.write(lambda tx: tx.notify("end", "数"))
    soon(lambda: ("end", "数") in heard["here"])
    soon(lambda: len(heard["there"]) > len(many))
    assert heard["here"] == [*many, ("end", "数")]
    assert sorted(heard["there"]) == sorted([*many, ("end", "数")])


def test_after_a_lost_connection_every_listener_is_woken(
    db: PostgresDatabase, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    db.subscribe(lambda channel, payload: heard.append(channel))
    break_connections(postgres_url)
    soon(lambda: EVERYTHING in heard)
    assert not [record for record in caplog.records if record.exc_info]


def test_notices_are_packed_below_the_limit_and_come_back_whole() -> None:
    notices = [("job", "数" * 20 + str(number)) for number in range(1000)]
    texts = list(packed("me", notices))
    assert all(len(text.encode()) <= MAX_PAYLOAD for text in texts)
    assert len(texts) < 60
    assert [unpacked(text)[0] for text in texts] == ["me"] * len(texts)
    assert [notice for text in texts for notice in unpacked(text)[1]] == notices
    assert [unpacked(text)[1] for text in packed("me", [("a", "x" * 9000)])] == [[(EVERYTHING, "")]]
    assert unpacked("rubbish") == ("", [(EVERYTHING, "")])


def test_a_broken_connection_is_replaced_and_nothing_is_done_twice(
    db: PostgresDatabase, postgres_url: str
) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> int:
        tries.append(1)
        number = next_number(tx, "x")
        if len(tries) == 1:
            break_connections(postgres_url)
            put("never reached")(tx)
        return number

    assert db.write(work) == 1
    assert len(tries) == 2
    assert names(db) == {"x"}
    assert db.write(lambda tx: next_number(tx, "x")) == 2


def test_a_write_of_one_message_is_sent_again_only_where_it_was_not_sent(
    db: PostgresDatabase, postgres_url: str
) -> None:
    """Nothing of it was sent when the connection ended, by a restart say: nobody need be told."""

    def work(tx: Tx) -> Answer:
        return tx.soon("insert into counters (name, value) values ('a', 1) returning value")

    row = db.write(lambda tx: tx.one("select pg_backend_pid()"))
    break_connections(postgres_url)
    wait_for_end(postgres_url, row)
    assert db.write(work)() == [(1,)]
    assert names(db) == {"a"}


def test_of_a_commit_that_may_or_may_not_have_happened_the_caller_is_told(
    db: PostgresDatabase, postgres_url: str
) -> None:
    def work(tx: Tx) -> None:
        put("a")(tx)
        break_connections(postgres_url)

    with pytest.raises(Retry) as caught:
        db.write(work)
    assert caught.value.code == "database_unsure"
    assert names(db) == set()
    db.write(put("b"))
    assert names(db) == {"b"}


def test_a_stopped_server_keeps_nobody_waiting_for_ever(postgres_url: str) -> None:
    """One that holds the lock and says nothing more is thrown out by the database."""
    with (
        closing(open_postgres(postgres_url, now=NOW)) as db,
        closing(psycopg.connect(postgres_url)) as connection,
    ):
        found = db.write(lambda tx: tx.one("show idle_in_transaction_session_timeout"))
        assert found == ("10s",)
        connection.execute("set idle_in_transaction_session_timeout = '200ms'")
        connection.execute("select pg_advisory_xact_lock(%s)", (0x70616464_6C65636C,))
        assert db.write(put("a")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_restart_under_load_loses_nothing_that_was_acknowledged(
    postgres_place: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.url(postgres_place)
    kept: set[str] = set()
    unsure: set[str] = set()
    stop = threading.Event()

    def run(worker: int, db: Database) -> None:
        number = 0
        while not stop.is_set():
            name = f"{worker}-{number}"
            number += 1
            try:
                db.write(put(name))
                kept.add(name)
                db.read(lambda tx: tx.one("select 1"))
            except Retry as error:
                if error.code == "database_unsure":
                    unsure.add(name)
                stop.wait(0.02)

    with closing(open_database(url, now=NOW)) as db, ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(run, worker, db) for worker in range(4)]
        soon(lambda: len(kept) > 100)
        if how == "kill":
            postgres.kill(postgres_place)
        else:
            postgres.stop(postgres_place, how=how)
        postgres.start(postgres_place)
        before = len(kept)
        soon(lambda: len(kept) > before + 100)
        stop.set()
        for worker in workers:
            worker.result(PATIENCE)
        found = names(db)
    assert kept <= found
    assert found <= kept | unsure
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("acknowledged", [1, 200])
def test_what_was_acknowledged_survives_kill_9_of_our_server(
    postgres_url: str, acknowledged: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, postgres_url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().strip() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        told += [line.strip() for line in process.stdout if line.endswith("\n")]
    with closing(open_database(postgres_url, now=NOW)) as db:
        db.write(put("the lock is free again"))
        kept = names(db) - {"the lock is free again"}
    assert "" not in told
    assert set(told) <= kept
    assert len(kept - set(told)) <= 4, "at most what each thread was about to acknowledge"


@pytest.mark.slow
def test_while_the_database_is_away_callers_are_told_so_and_later_served(
    postgres_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.db.engine.postgres.RECONNECT_SECONDS", 0.2)
    with closing(open_database(postgres.url(postgres_place), now=NOW)) as db:
        postgres.stop(postgres_place)
        for call in (lambda: db.write(put("a")), lambda: names(db)):
            with pytest.raises(Retry):
                call()
        postgres.start(postgres_place)
        assert db.write(put("b")) == 1
        assert names(db) == {"b"}


def test_a_nonce_is_spent_once_over_all_servers(
    db: PostgresDatabase, other: PostgresDatabase
) -> None:
    here, there = SharedNonces(db), SharedNonces(other)
    until = int(NOW.timestamp()) + 600
    try:
        asked = [
            which.spend("ak", f"n{number}", until)
            for number in range(200)
            for which in (here, there, here)
        ]
        answers = [answer.result(PATIENCE) for answer in asked]
    finally:
        here.close()
        there.close()
    assert [sum(answers[i : i + 3]) for i in range(0, 600, 3)] == [1] * 200
    kept = db.read(lambda tx: tx.one("select count(*), min(expires_at) from nonces"))
    assert kept == (200, until * 1_000_000)
    with pytest.raises(Retry):
        late = SharedNonces(db)
        late.close()
        db.close()
        SharedNonces(db).spend("ak", "late", until).result(PATIENCE)


def test_a_nonce_whose_fate_is_unknown_is_asked_for_again_by_the_client(
    db: PostgresDatabase, postgres_url: str
) -> None:
    nonces = SharedNonces(db)
    assert nonces.spend("ak", "one", 1).result(PATIENCE)
    break_connections(postgres_url)
    with pytest.raises(Retry):
        nonces.spend("ak", "two", 1).result(PATIENCE)
    assert nonces.spend("ak", "three", 1).result(PATIENCE)
    nonces.close()


def test_the_password_is_in_no_message(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    user, rest = postgres_url.split("//")[1].split(":", 1)
    secret, place = rest.split("@", 1)
    canary = secrets.token_hex(16)
    wrong = f"postgresql://{user}:{canary}@{place}"
    said: list[Any] = [Address(postgres_url)]
    for url in (wrong, wrong + "&nonsense=1", wrong.replace("host=", "host=/none"), wrong + "%zz"):
        with pytest.raises((Retry, ConfigError)) as caught:
            open_database(url, now=NOW)
        said += [caught.value, caught.value.params, *traceback.format_exception(caught.value)]
    with closing(open_database(postgres_url, now=NOW)) as db:
        said += [db, repr(db)]
        for work in (put("a"), put("a"), lambda tx: tx.execute("select from")):
            try:
                db.write(work)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not tell
                said += [error, repr(error)]
    everything = " ".join(map(str, said)) + caplog.text
    assert secret not in everything
    assert canary not in everything


def test_text_that_cannot_be_stored_is_the_callers_mistake(db: PostgresDatabase) -> None:
    for text, code in (("a\0b", "text_with_nul"), ("a\ud800b", "text_not_unicode")):
        with pytest.raises(Invalid) as caught:
            db.write(put(text))
        assert caught.value.code == code
        with pytest.raises(Invalid):
            db.read(lambda tx, text=text: jobs.get_job(tx, text))  # type: ignore[misc]
    assert names(db) == set()


def test_a_number_that_does_not_fit_is_the_callers_mistake(db: PostgresDatabase) -> None:
    for _ in range(4):
        with pytest.raises(Invalid):
            db.write(lambda tx: tx.execute("insert into counters values ('a', ?)", (2**70,)))


def test_one_that_fails_late_is_undone_alone_however_the_group_was_sent(
    db: PostgresDatabase,
) -> None:
    """The group is sent in the hope that all goes well, and again with care when it does not."""
    begun, go_on = threading.Event(), threading.Event()

    def first(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        tx.run("insert into counters values ('first', 0)")

    def clash(tx: Tx) -> None:
        tx.run("insert into counters values ('clash', 0)")
        tx.run("insert into counters values ('first', 0)")

    waiting: list[Future[Any]] = [db.submit(first)]
    assert begun.wait(PATIENCE)
    waiting += [db.submit(put("a")), db.submit(clash), db.submit(put("b"))]
    go_on.set()
    errors = [type(future.exception(PATIENCE)) for future in waiting]
    assert errors == [type(None), type(None), Conflict, type(None)]
    assert names(db) == {"first", "a", "b"}


def test_jobs_of_two_servers_are_numbered_without_a_gap(
    db: PostgresDatabase, other: PostgresDatabase
) -> None:
    def run(which: Database) -> list[int]:
        return [which.write(lambda tx: jobs.insert_job(tx, a_job()).number) for _ in range(25)]

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for got in pool.map(run, (db, other, db, other)) for number in got]
    assert sorted(numbers) == list(range(1, 101))


def wait_for_end(url: str, pid: Row | None) -> None:
    """Until the database has let go of a connection."""
    assert pid is not None
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        alive = "select 1 from pg_stat_activity where pid = %s"
        while connection.execute(alive, pid).fetchone() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def break_connections(url: str) -> None:
    """End every connection to the database, as a restart of its server would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
