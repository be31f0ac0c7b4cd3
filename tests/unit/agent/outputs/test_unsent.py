"""What could not be sent is kept as promised, but it keeps no disk full."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from paddlecloud.agent.context import Context
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.agent.sandbox import workspace
from paddlecloud.model.errors import StorageFull

NOW = 1_800_000_000.0
HOUR = 3600.0
PLENTY = 1 << 60
"""A reserve that no disk has."""


@pytest.fixture
def context(tmp_path: Path) -> Context:
    log = AgentLog(tmp_path / "agent.log")
    return cast(Context, SimpleNamespace(directory=tmp_path, log=log, cache_spent=True))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "free_space", lambda _top: -1)


def left(context: Context, name: str, hours: float) -> Path:
    place = context.directory / unsent.DIRECTORY / name
    place.mkdir(parents=True)
    (place / "model").write_bytes(b"weights" * 1000)
    os.utime(place, (NOW - hours * HOUR, NOW - hours * HOUR))
    return place


def names(context: Context) -> list[str]:
    return sorted(path.name for path in (context.directory / unsent.DIRECTORY).iterdir())


def test_what_is_kept_later_joins_what_was_kept_first(tmp_path: Path) -> None:
    log, config = AgentLog(tmp_path / "agent.log"), SimpleNamespace(host="here")
    known = {"directory": tmp_path, "log": log, "config": config, "cache_spent": True}
    context = cast(Context, SimpleNamespace(**known))
    root = tmp_path / "replicas" / "r"
    for name in ("output/model", "log/events", records.STDOUT):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"weights")
    tracked = Tracked(id="r", fence=1, root=root, run=None, acked=None)
    full = StorageFull("store_full", path="model")
    unsent.keep(tracked, {"output/model": full}, context, lost=True)
    unsent.keep(tracked, {records.STDOUT: full}, context, lost=False)
    unsent.keep(tracked, {"output/never was": full}, context, lost=False)
    place = tmp_path / unsent.DIRECTORY / "r"
    kept = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert kept == ["output/model", records.STDOUT]


def test_its_end_says_that_something_was_left(tmp_path: Path) -> None:
    log, config = AgentLog(tmp_path / "agent.log"), SimpleNamespace(host="here")
    known = {"directory": tmp_path, "log": log, "config": config, "cache_spent": True}
    context = cast(Context, SimpleNamespace(**known))
    (tmp_path / "r").mkdir()
    tracked = Tracked(id="r", fence=1, root=tmp_path / "r", run=None, acked=None)
    assert not unsent.was_left(tracked)
    tracked.exit = exit_record("exit", now=NOW)
    assert not unsent.was_left(tracked)
    unsent.keep(tracked, {"output/x": StorageFull("store_full", path="x")}, context, lost=True)
    assert unsent.was_left(tracked)


def test_nothing_kept_leaves_no_directory(tmp_path: Path) -> None:
    log, config = AgentLog(tmp_path / "agent.log"), SimpleNamespace(host="here")
    known = {"directory": tmp_path, "log": log, "config": config, "cache_spent": True}
    context = cast(Context, SimpleNamespace(**known))
    root = tmp_path / "replicas" / "r"
    root.mkdir(parents=True)
    tracked = Tracked(id="r", fence=1, root=root, run=None, acked=None)
    unsent.keep(tracked, {"output/x": StorageFull("store_full", path="x")}, context, lost=True)
    assert not (tmp_path / unsent.DIRECTORY / "r").exists()


def test_without_any_there_is_nothing_to_look_after(context: Context) -> None:
    assert not unsent.prune(context, now=NOW)


def test_one_that_vanishes_meanwhile_does_not_hide_the_others(context: Context) -> None:
    for name, hours in (("old", 7 * 24 + 1), ("new", 1.0)):
        left(context, name, hours)
    (context.directory / unsent.DIRECTORY / "vanished").symlink_to("nowhere")
    assert unsent.prune(context, now=NOW), "else nobody would look after them again"
    assert names(context) == ["new", "vanished"]


def test_with_room_they_stay_for_as_long_as_promised(context: Context) -> None:
    for name, hours in (("old", 7 * 24 + 1), ("new", 1.0), ("older", 7 * 24 - 1)):
        left(context, name, hours)
    assert unsent.prune(context, now=NOW)
    assert names(context) == ["new", "older"]
    assert not (context.directory / unsent.DELETED).exists()


def test_a_full_disk_keeps_only_those_of_the_last_hour(context: Context, full: None) -> None:
    del full
    for name, hours in (("a", 30.0), ("b", 2.0), ("c", 0.5), ("from the future", -5.0)):
        left(context, name, hours)
    assert unsent.prune(context, now=NOW)
    assert names(context) == ["c", "from the future"]
    assert records.read(context.directory / unsent.DELETED) == {"times": 2, "at": NOW}
    log = (context.directory / "agent.log").read_text()
    assert log.index(" a the disk is nearly full") < log.index(" b the disk is nearly full")


def test_what_is_cached_goes_before_them(context: Context, full: None) -> None:
    del full
    left(context, "a", 30.0)
    context.cache_spent = False
    assert unsent.prune(context, now=NOW)
    assert names(context) == ["a"]
    context.cache_spent = True
    assert not unsent.prune(context, now=NOW)


def test_no_more_goes_than_makes_room(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, hours in (("a", 3.0), ("b", 2.0)):
        left(context, name, hours)
    monkeypatch.setattr(workspace, "free_space", lambda top: -1 if (top / "a").exists() else 0)
    unsent.prune(context, now=NOW)
    assert names(context) == ["b"]


def test_what_is_needed_elsewhere_stays_for_it_would_free_nothing(
    context: Context, full: None
) -> None:
    del full
    place = left(context, "a", 3.0)
    (context.directory / "replica").hardlink_to(place / "model")
    assert unsent.prune(context, now=NOW)
    assert names(context) == ["a"]


def test_room_is_what_is_free_beyond_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "_RESERVE", 0)
    assert workspace.free_space(tmp_path) >= 0
    monkeypatch.setattr(workspace, "_RESERVE", PLENTY)
    monkeypatch.setattr(workspace, "_RESERVE_PART", 1)
    assert workspace.free_space(tmp_path) < 0
    assert workspace.free_space(tmp_path / "gone") == 0
