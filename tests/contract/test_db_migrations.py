"""Old databases go on working: their rows survive, and what we cannot know the shape of is refused.

`OLD_ROWS` was written when migration 1 was the only one. It stays as it is for ever; a new
migration adds a block of rows in the shape of its day and a check that they are read today.
"""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from paddlecloud.db import open_database
from paddlecloud.db.engine._migrate import FOLDER, Migration, migrate, migrations
from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import (
    agent_keys,
    agents,
    attempts,
    counters,
    idempotency,
    jobs,
    leases,
    nonces,
    snapshots,
    tokens,
    usage,
    users,
)
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.orders import orders_since
from paddlecloud.model.errors import ConfigError, Internal, Retry
from paddlecloud.model.jobs.job import ExitCause, ReplicaState, Resources
from paddlecloud.model.jobs.states import Event, JobState
from tests.postgres import empty_database_of
from tests.unit.db.values import ENGINES, NOW, opened

RELEASED = {
    "0001_first": "e052a204ef641eede40e8f0a79bd5cdf786b8974979e227b9912bb729dbec606",
    "0002_team": "27e320104ef8d9832e58e6c2b2265e58c8c4ab7ead420a0b2675e431af008c29",
    "0003_gangs": "3305e263e27af86bb9e8696d092a5155b7d6e25b66b59b5243eee0f21e30e4c1",
    "0004_tasks": "be56e46613124670eaa73afa239dc7bc0772495a1de083f2d3d958853866176a",
    "0005_private": "f39d8521f47e936fd55f3e26c577c03c143e9407e369e0b8a957ed038b32e3fb",
    "0006_outputs": "a955f4fe238ba41ddd63d19b463117adec8a0f54a6448160e6b28fcaae10ef73",
    "0007_counting": "da5b415db1b950cd94e81cb936331279c6afe4819a6bc6f7558b2a6b117f7230",
    "0008_agents": "4fb255a5bf29bfdba40d8445a40623fa18f8a61220b731f0e74eb468d49fbfb9",
    "0010_secrets": "42fc3e12afc5cc2d1d306e6700d917cdab23a54cb49d4a4f0795c0f66f4aa865",
}
"""Checksums of migrations that people's databases were made with: never change one."""

OLD_ROWS = """
insert into counters values ('job', 2), ('order', 1), ('fence', 1);
insert into users values ('ann', 'admin', 1589710569000000);
insert into tokens values ('ak1', 'ann', 'user', 1589710569000000, null);
insert into snapshots values
    ('ann', 'sha256:1', 3, 1589710569000000, '[["run.sh","file",3,"DIGEST",1,""]]');
insert into jobs values
    (1, 'job-1', 'ann', 'plsc', 'failed', 5, 2, 1, 0, 'local', 0, 1589710569000000,
     1589710569000000, 1589710570000000, 1589710570000000, 2000000, 1589710578000000,
     1589710575123456, 'sha256:1', null, null,
     '{"reason":{"code":"exit_code","params":{"code":1}},"advice":null,"worker":"trainer-0",
       "exit_code":1,"last_lines":["boom"]}',
     '{"start_cmd":"sh run.sh","groups":[{"role":"TRAINER","count":1,
       "resources":{"cpu":1.0,"memory":0,"gpu":0}}],"job_name":"plsc","wall_time":"PT10S",
       "snapshot":"sha256:1","priority":2}'),
    (2, 'job-2', 'ann', 'tmp_job', 'schedule', 1, 0, 0, 0, null, 0, 1589710569000000,
     1589710569000000, null, null, 0, null, null, null, 'not_planned_yet',
     '{"code":"not_planned_yet","params":{}}', null,
     '{"start_cmd":"true","groups":[]}');
insert into job_history values
    (1, 1, 1589710569000000, 'accepted', 'submit', 'schedule', null),
    (1, 2, 1589710575123456, 'broke', 'running', 'failed', '{"code":"exit_code","params":{}}');
insert into attempts values
    ('job-1', 1, 1, 'local', '{"agent":"a"}', 1589710569000000, 1589710575123456, 'broke', 1);
insert into replicas values
    ('job-1.1.trainer-0', 'job-1', 1, 1, 'TRAINER', 0, 'agent-1', '127.0.0.1', 62000, 1.0, 0, 0,
     'exited', 4711, 1589710570000000, 12,
     '{"cause":"exit","exit_code":1,"started_at":"2020-05-17T10:16:10Z"}',
     'stop', 1, 40000000, 'stopped'),
    ('job-1.1.pserver-0', 'job-1', 1, 1, 'PSERVER', 0, 'agent-1', '127.0.0.1', 62001, 1.0, 0, 0,
     'lost', null, null, 0, null, 'stop', 2, 40000000, 'stopped');
insert into agents values
    ('agent-1', 'local', 'b', '0.1.0', '127.0.0.1', 2.0, 1024, 0, '{"cpu":true}',
     1589710569000000, 1589710569000000);
insert into nonces values ('ak1', 'n1', 1589710569000000);
insert into idempotency values ('ann', 'k1', 1, 'h', 1589710569000000);
insert into leases values ('loop', 'me', 4, 1589710569000000);
""".replace("DIGEST", "a" * 64)


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def an_old_database(engine: str, folder: Path) -> None:
    """A database of the first release, with something in every table."""
    first = migrations()[0]
    ledger_row = f"insert into schema_migrations values (1, '0001_first', '{first.checksum}', 0)"
    script = ";\n".join((LEDGER, *first.statements, OLD_ROWS, ledger_row))
    if engine == "sqlite":
        with closing(sqlite3.connect(folder / "paddlecloud.db")) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(empty_database_of(folder)) as connection_there:
            connection_there.execute(script)


FIRST_JOB = """insert into jobs (number, id, owner, name, state, version, priority, attempt,
    retried, pool, kill_asked, created_at, waiting_since, started_at, running_since, ran, deadline,
    finished_at, snapshot, reason_code, reason, failure, spec) values
    (2, 'job-2', 'ann', 'tmp_job', 'schedule', 1, 0, 0, 0, null, 0, 1589710569000000,
     1589710569000000, null, null, 0, null, null, null, 'not_planned_yet',
     '{"code":"not_planned_yet","params":{}}', null, '{"start_cmd":"true","groups":[]}')"""
"""As the code of the first release stored a job."""

LEDGER = """create table schema_migrations (
    number integer primary key, name text not null, checksum text not null,
    applied_at bigint not null)"""


def test_released_migrations_were_not_edited() -> None:
    ours = {migration.name: migration.checksum for migration in migrations()}
    assert {name: ours.get(name) for name in RELEASED} == RELEASED


def test_rows_of_the_first_release_are_read_today(engine: str, tmp_path: Path) -> None:
    an_old_database(engine, tmp_path)
    with opened(engine, tmp_path) as db:
        failed = db.read(lambda tx: jobs.get_job(tx, "job-1"))
        assert failed is not None
        assert failed.failure is not None
        assert (failed.state, failed.version, failed.number) == (JobState.FAILED, 5, 1)
        assert (failed.spec.wall_time, failed.spec.priority) == (timedelta(seconds=10), 2)
        assert (failed.ran, failed.retried) == (timedelta(seconds=2), 0)
        assert failed.running_since == failed.started_at
        assert failed.failure.last_lines == ("boom",)
        assert failed.finished_at == datetime(2020, 5, 17, 10, 16, 15, 123456, tzinfo=UTC)
        assert [job.id for job in db.read(lambda tx: jobs.newcomers(tx, 9))] == ["job-2"]
        history = db.read(lambda tx: jobs.history(tx, "job-1"))
        assert [row.event for row in history] == [Event.ACCEPTED, Event.BROKE]
        attempt = db.read(lambda tx: attempts.get_attempt(tx, "job-1", 1))
        assert attempt is not None
        assert (attempt.handle, attempt.outcome) == ({"agent": "a"}, "broke")
        assert db.read(usage.to_count) == [], "it was counted when it was let go"
        assert attempt.replicas[0].state is ReplicaState.EXITED
        assert attempt.replicas[0].exit is not None
        assert attempt.replicas[0].exit.exit_code == 1
        order = db.read(lambda tx: orders_since(tx, "agent-1", 0))[0]
        assert (order.grace, order.cause) == (timedelta(seconds=40), ExitCause.STOPPED)
        agent = db.read(agents.list_agents)[0]
        assert (agent.capacity, agent.enforces) == (Resources(cpu=2.0, memory=1024), {"cpu": True})
        assert db.read(lambda tx: tokens.find_token(tx, "ak1")) is not None
        snapshot = db.read(lambda tx: snapshots.get_snapshot(tx, "ann", "sha256:1"))
        assert snapshot is not None
        assert snapshot.entries[0].executable
        known = db.read(lambda tx: idempotency.find_key(tx, "ann", "k1"))
        assert known is not None
        assert known.job_id == "job-1"
        assert not db.write(lambda tx: nonces.spend_nonce(tx, "ak1", "n1", NOW))
        assert db.write(lambda tx: leases.take_lease(tx, "loop", "x", NOW, timedelta(1))) == 5
        assert db.write(lambda tx: counters.next_number(tx, "job")) == 3


@contextmanager
def opened_by_version(engine: str, tmp_path: Path, number: int) -> Iterator[Database]:
    """The database with the first `number` migrations only."""
    folder = tmp_path / "before"
    shutil.copytree(FOLDER, folder)
    for file in sorted(folder.glob("*.sql"))[number:]:
        file.unlink()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sqlite", "postgres"):
            name = f"paddlecloud.db.engine.{module}.migrate"
            patch.setattr(name, partial(migrate, folder=folder))
        with opened(engine, tmp_path) as db:
            yield db


def test_outputs_of_before_their_sum_count(engine: str, tmp_path: Path) -> None:
    an_old_database(engine, tmp_path)
    with opened_by_version(engine, tmp_path, 5) as db:
        db.write(lambda tx: tx.execute("update jobs set output_bytes = number * 10"))
        db.write(lambda tx: usage.add_files(tx, "ann", 5))
    with opened(engine, tmp_path) as db:
        assert db.read(lambda tx: usage.stored_bytes(tx, "ann")) == 35


MACHINES = "insert into users (id, role, created_at) values ('gpu-01', 'user', 1)"
KEYS = """insert into tokens (ak, user_id, kind, created_at, revoked_at) values
    ('old', 'gpu-01', 'agent', 1, 2), ('key', 'gpu-01', 'agent', 2, null),
    ('ann-agent', 'ann', 'agent', 3, null)"""
"""Of two machines, as version 7 stored them; one has the name of the user ann."""


def test_keys_of_agents_move_out_of_the_tokens_of_users(engine: str, tmp_path: Path) -> None:
    an_old_database(engine, tmp_path)
    with opened_by_version(engine, tmp_path, 7) as db:
        db.write(lambda tx: (tx.execute(MACHINES), tx.execute(KEYS)))
    with opened(engine, tmp_path) as db:
        agent = db.read(lambda tx: agent_keys.find_key(tx, "key"))
        assert agent == AgentIdentity(ak="key", agent_id="gpu-01", node="gpu-01", pool="")
        assert db.read(lambda tx: agent_keys.find_key(tx, "ann-agent")) is not None
        assert db.read(lambda tx: agent_keys.find_key(tx, "old")) is None, "it was revoked"
        for ak in ("key", "ann-agent"):
            assert db.read(partial(tokens.find_token, ak=ak)) is None
        assert db.read(lambda tx: agent_keys.find_key(tx, "ak1")) is None
        assert db.read(agent_keys.legacy_users) == ["ann", "gpu-01"]
        db.write(agent_keys.drop_legacy_users)
        assert db.read(agent_keys.legacy_users) == []
        assert [user.id for user in db.read(users.list_users)] == ["ann"]
        assert db.read(lambda tx: tokens.find_token(tx, "ak1")) is not None
        assert db.read(lambda tx: agent_keys.find_key(tx, "key")) == agent


def test_a_later_migration_keeps_the_rows_and_is_applied_once(engine: str, tmp_path: Path) -> None:
    an_old_database(engine, tmp_path)
    folder = a_folder(tmp_path, "alter table jobs add column note text;\n-- a word; in passing\n")

    def step(tx: Tx) -> list[int]:
        return migrate(tx, now=NOW, folder=folder)

    with opened(engine, tmp_path) as db:
        wanted = [migration.number for migration in migrations(folder)][-1:]
        assert [db.write(step), db.write(step)] == [wanted, []]
        assert db.read(lambda tx: tx.all("select id, note from jobs order by number")) == [
            ("job-1", None),
            ("job-2", None),
        ]
    with pytest.raises(ConfigError) as caught, opened(engine, tmp_path):
        pass
    assert caught.value.code == "database_newer"
    assert caught.value.params == {"found": wanted[0], "known": wanted[0] - 1}


OURS = len(migrations())


@pytest.mark.parametrize(("oldest", "works"), [(1, True), (OURS, True), (OURS + 1, False)])
def test_a_newer_database_is_used_if_it_says_that_we_may(
    engine: str, tmp_path: Path, oldest: int, works: bool
) -> None:
    text = f"-- oldest: {oldest}\nalter table counters add column note text;\n"
    folder = a_folder(tmp_path, text)
    with opened(engine, tmp_path) as db:
        db.write(lambda tx: migrate(tx, now=NOW, folder=folder))
    if works:
        with opened(engine, tmp_path) as again:
            assert again.write(lambda tx: counters.next_number(tx, "x")) == 1
    else:
        with pytest.raises(ConfigError), opened(engine, tmp_path):
            pass


def test_one_newer_migration_that_forbids_it_is_enough(engine: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "create table a (b text);\n")
    (folder / f"{OURS + 2:04d}_more.sql").write_text("-- oldest: 1\ncreate table b (b text);\n")
    with opened(engine, tmp_path) as db:
        assert db.write(lambda tx: migrate(tx, now=NOW, folder=folder)) == [OURS + 1, OURS + 2]
    with pytest.raises(ConfigError), opened(engine, tmp_path):
        pass


def test_a_server_of_the_first_release_could_go_on_with_todays_shape(
    engine: str, tmp_path: Path
) -> None:
    """What all later ones promise with `oldest`: rows of the first release still fit."""
    assert {each.oldest for each in migrations()[1:]} == {1}
    with opened(engine, tmp_path) as db:
        db.write(
            lambda tx: tx.run("insert into users (id, role, created_at) values ('u', 'user', 1)")
        )
        db.write(
            lambda tx: tx.run(
                "insert into tokens (ak, user_id, kind, created_at, revoked_at)"
                " values ('ak', 'u', 'user', 1, null)"
            )
        )
        db.write(lambda tx: tx.run(FIRST_JOB))
        assert [job.id for job in db.read(lambda tx: jobs.newcomers(tx, 9))] == ["job-2"]


def test_two_servers_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    url = empty_database_of(tmp_path)

    def start(_: int) -> int:
        with closing(open_database(url, now=NOW)) as db:
            rows = db.read(lambda tx: tx.all("select number from schema_migrations"))
            return len(rows)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(start, range(4))) == [len(migrations())] * 4


def test_a_migration_that_fails_leaves_nothing_behind(engine: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "create table half (a text);\ncreate table half (a text);\n")
    with opened(engine, tmp_path) as db:
        with pytest.raises(Internal):
            db.write(lambda tx: migrate(tx, now=NOW, folder=folder))
        with pytest.raises(Internal):
            db.read(lambda tx: tx.all("select * from half"))
        assert db.write(lambda tx: migrate(tx, now=NOW)) == []


def test_a_database_whose_migration_differs_from_ours_is_refused(
    engine: str, tmp_path: Path
) -> None:
    with opened(engine, tmp_path) as db:
        db.write(lambda tx: tx.execute("update schema_migrations set checksum = 'other'"))
    with pytest.raises(ConfigError) as caught, opened(engine, tmp_path):
        pass
    assert caught.value.code == "database_migration_edited"
    assert caught.value.params == {"name": "0001_first"}


def test_a_missing_number_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "0002_second.sql").write_text("select 1;\n")
    with pytest.raises(ConfigError) as caught:
        migrations(tmp_path)
    assert caught.value.code == "database_migrations_gap"


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    text = "-- one; two\ncreate table a (b text);\n\ninsert into a\nvalues ('x;y');\n"
    assert Migration(number=1, name="x", text=text).statements == [
        "-- one; two\ncreate table a (b text)",
        "insert into a\nvalues ('x;y')",
    ]


def test_only_its_owner_may_read_the_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch(mode=0o644)
    with closing(open_sqlite(path, now=NOW)):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600}


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("not a database, " * 100)
    with pytest.raises(Retry) as caught:
        open_sqlite(path, now=NOW)
    assert "not a database" in caught.value.text("en")


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Retry) as caught:
        open_sqlite(tmp_path / "none" / "x.db", now=NOW)
    assert str(tmp_path / "none" / "x.db") in caught.value.text("en")


def a_folder(tmp_path: Path, text: str) -> Path:
    """Our migrations and one more."""
    folder = tmp_path / "migrations"
    shutil.copytree(FOLDER, folder)
    (folder / f"{len(migrations()) + 1:04}_more.sql").write_text(text)
    return folder
