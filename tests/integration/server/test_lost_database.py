"""A home that lost its database is not taken for a new one; an interrupted first start goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

from paddlecloud.backends.local import Local
from paddlecloud.model.errors import ConfigError, Refused
from paddlecloud.server.bootstrap import open_deps
from paddlecloud.server.settings import Settings, check_command
from paddlecloud.server.settings.values import DatabaseSettings, StoreSettings
from paddlecloud.stores.s3.store import S3Store

OURS = str(Path("src") / "paddlecloud")
Lose = Callable[[Path], object]


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's configuration is written, but no process is started."""
    monkeypatch.setattr(Local, "ensure_agent", lambda _: None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path / "home")


def settings_of(home: Path) -> Settings:
    (home / "server").mkdir(parents=True)
    return Settings(home=home)


def start(settings: Settings, *, fresh: bool = False) -> int:
    """Open and close what a server needs; how many users and agents there are."""
    deps = open_deps(settings, fresh=fresh)
    store: Any = deps.store
    with closing(deps.db), closing(deps.logs), closing(store):
        people = deps.db.read(lambda tx: tx.all("select id from users"))
        agents = deps.db.read(lambda tx: tx.all("select distinct agent from agent_keys"))
    return len(people) + len(agents)


def used(settings: Settings) -> dict[str, bytes]:
    """Start it once, and leave a user's file in its store; what the home then holds."""
    start(settings)
    file = settings.store_dir / "users" / "ann" / "model"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    return contents(settings.home)


def contents(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()
    }


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def blank(path: Path) -> None:
    """A database of SQLite without a table."""
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.close()
    assert path.stat().st_size


LOSSES: list[Lose] = [Path.unlink, emptied, blank]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("team", [False, True])
def test_a_lost_database_is_refused_and_nothing_is_changed(
    settings: Settings, lose: Lose, team: bool
) -> None:
    settings = replace(settings, team=team)
    used(settings)
    database = settings.server_dir / "paddlecloud.db"
    lose(database)
    before = contents(settings.home)
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            start(settings)
        assert caught.value.code == "database_lost"
        for part in (str(database), "restore it from a backup", "server start --fresh"):
            assert part in caught.value.text("en")
        assert str(database) in caught.value.text("zh")
    after = contents(settings.home)
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("trace", ["credentials.json", "agent.json", "model"])
def test_each_trace_of_a_database_is_enough(settings: Settings, trace: str) -> None:
    used(settings)
    (settings.server_dir / "paddlecloud.db").unlink()
    for path in list(settings.home.rglob("*")):
        if path.name in {"credentials.json", "agent.json", "model"} - {trace}:
            path.unlink()
    if trace != "model":
        (settings.store_dir / "users" / "ann").rmdir()
    with pytest.raises(ConfigError, match="missing or empty"):
        start(settings)


def test_a_log_beside_an_empty_file_is_kept(settings: Settings) -> None:
    """SQLite would delete it."""
    used(settings)
    database = settings.server_dir / "paddlecloud.db"
    log = database.with_name("paddlecloud.db-wal")
    log.write_bytes(b"committed pages")
    emptied(database)
    with pytest.raises(ConfigError, match="missing or empty"):
        start(settings)
    assert log.read_bytes() == b"committed pages"


def test_a_first_start_that_was_cut_off_anywhere_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    """Killed before any line that it runs: every state of the home that a kill can leave behind."""
    with states_of(settings.home, tmp_path / "states") as states:
        start(settings)
    names = [sorted(path.name for path in state.rglob("*") if path.is_file()) for state in states]
    assert ["server.key"] in names
    assert any("paddlecloud.db" in found and "credentials.json" not in found for found in names)
    assert len(states) > 10
    for state in states:
        assert start(Settings(home=state)) == 2, contents(state).keys()


def test_a_fresh_start_keeps_everything(settings: Settings) -> None:
    before = used(settings)
    database = settings.server_dir / "paddlecloud.db"
    emptied(database)
    assert start(settings, fresh=True) == 2
    after = contents(settings.home)
    kept = {name: data for name, data in before.items() if name != "server/paddlecloud.db"}
    for name, data in kept.items():
        if name.endswith("-reserve"):
            continue
        top, _, rest = name.partition("/")
        (aside,) = [
            it for it in after if it.startswith(f"{top}.aside-") and it.endswith(f"/{rest}")
        ]
        assert after[aside] == data, name
    assert after["server/server.key"] != before["server/server.key"]
    assert start(settings) == 2


def test_a_fresh_start_that_was_cut_off_anywhere_loses_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    before = used(settings)
    emptied(settings.server_dir / "paddlecloud.db")
    with states_of(settings.home, tmp_path / "states") as states:
        start(settings, fresh=True)
    assert len(states) > 10
    wanted = {before[name] for name in ("server/server.key", "server/credentials.json")}
    wanted |= {before["agent/agent.json"], b"weights"}
    for state in states:
        again = Settings(home=state)
        try:
            start(again)
        except ConfigError as error:
            assert error.code == "database_lost"
            assert start(again, fresh=True) == 2
        assert wanted <= set(contents(state).values())


def test_a_fresh_start_needs_a_lost_database(settings: Settings) -> None:
    before = used(settings)
    with pytest.raises(Refused) as caught:
        start(settings, fresh=True)
    assert caught.value.code == "fresh_not_lost"
    assert contents(settings.home).keys() == before.keys()
    assert start(settings) == 2


def test_a_fresh_start_of_a_new_home_is_a_first_start(settings: Settings) -> None:
    assert start(settings, fresh=True) == 2
    assert not list(settings.home.glob("*.aside-*"))


def test_a_store_elsewhere_is_moved_beside_its_place(settings: Settings, tmp_path: Path) -> None:
    settings = replace(settings, store=StoreSettings(root=str(tmp_path / "disk" / "files")))
    used(settings)
    (settings.server_dir / "paddlecloud.db").unlink()
    start(settings, fresh=True)
    (aside,) = (tmp_path / "disk").glob("files.aside-*")
    assert (aside / "users" / "ann" / "model").read_bytes() == b"weights"


def test_objects_of_a_bucket_are_not_left_to_a_fresh_start(
    settings: Settings, bucket: S3Store, s3_settings: dict[str, str]
) -> None:
    """They cannot be moved, and it would delete them as unused in time."""
    known = {field.name for field in fields(StoreSettings)}
    named: dict[str, Any] = {key: value for key, value in s3_settings.items() if key in known}
    store = StoreSettings(kind="s3", **named)
    settings = replace(settings, store=store)
    used(settings)
    bucket.write("users/ann/model", [b"weights"])
    (settings.server_dir / "paddlecloud.db").unlink()
    with pytest.raises(Refused) as caught:
        start(settings, fresh=True)
    assert caught.value.code == "fresh_bucket_used"
    assert not list(settings.home.glob("*.aside-*"))
    other = replace(store, prefix=f"{store.prefix}-2")
    assert start(replace(settings, store=other), fresh=True) == 2


def test_what_cannot_be_moved_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    used(settings)
    (settings.server_dir / "paddlecloud.db").unlink()

    def busy(self: Path, target: Path) -> Path:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(Refused) as caught:
        start(settings, fresh=True)
    assert caught.value.code == "fresh_cannot_move"
    assert "busy" in str(caught.value)


def test_an_empty_schema_of_postgresql_is_refused_too(
    settings: Settings, postgres_url: str
) -> None:
    settings = replace(
        settings, team=True, key="0123456789abcdef" * 4, database=DatabaseSettings(url=postgres_url)
    )
    used(settings)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
        with pytest.raises(ConfigError) as caught:
            start(settings)
        assert caught.value.code == "database_lost"
        assert "postgresql://" in str(caught.value)
        assert connection.execute("select to_regclass('public.users')").fetchone() == (None,)
    assert "database_lost" in codes(settings)
    assert start(settings, fresh=True) == 2
    assert start(settings) == 2
    assert "database_lost" not in codes(settings)


def test_a_new_home_of_a_known_database_starts(
    settings: Settings, postgres_url: str, tmp_path: Path
) -> None:
    settings = replace(
        settings, team=True, key="0123456789abcdef" * 4, database=DatabaseSettings(url=postgres_url)
    )
    used(settings)
    second = replace(
        settings, home=tmp_path / "second", store=StoreSettings(root=str(settings.store_dir))
    )
    (second.home / "server").mkdir(parents=True)
    second = replace(second, replica=replace(second.replica, node="second"))
    assert start(second) >= 2


def codes(settings: Settings) -> list[str]:
    return [found.code for found in check_command.check(settings, {}, datetime.now(UTC))]


def test_the_check_of_the_settings_names_it(settings: Settings) -> None:
    assert "database_lost" not in codes(settings)
    used(settings)
    assert "database_lost" not in codes(settings)
    emptied(settings.server_dir / "paddlecloud.db")
    assert "database_lost" in codes(settings)


@contextmanager
def states_of(home: Path, into: Path) -> Iterator[list[Path]]:
    """Copies of the home at every line that is run inside and finds it changed: what a kill before
    that line would leave behind. Bytes that a file has got by then outlive the process."""
    states: list[Path] = []
    last: list[object] = []

    def look(frame: FrameType, event: str, arg: Any) -> Any:
        if OURS not in frame.f_code.co_filename:
            return None
        if event == "line":
            found = sorted(_marks(home))
            if found != last:
                last[:] = found
                state = into / f"{len(states):04}" / "home"
                sys.settrace(None)
                shutil.copytree(home, state)
                sys.settrace(look)
                states.append(state)
        return look

    sys.settrace(look)
    try:
        yield states
    finally:
        sys.settrace(None)


def _marks(directory: Path) -> Iterator[tuple[str, int, int]]:
    for folder, _, names in os.walk(directory):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            found = Path(path).stat()
            yield path, found.st_size, 0 if path == folder else found.st_mtime_ns
