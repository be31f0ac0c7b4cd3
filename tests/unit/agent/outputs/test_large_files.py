"""How often files of a running job are sent: no slow line and no large file holds up the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlecloud.agent.outputs import _large_files, _replica_outputs, scan
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.model.errors import Forbidden, StorageFull
from tests.integration.agent.replicas import eventually
from tests.unit.agent.shippers import Scene

NOW = 1_800_000_000.0


class Clock:
    """In the place of the module `time`: it passes when a test says so, waiting or at work."""

    def __init__(self) -> None:
        self.waited, self.worked = 0.0, 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.waited + self.worked

    def thread_time(self) -> float:
        return self.worked

    def time(self) -> float:
        return NOW + self.waited + self.worked


@pytest.fixture
def clock(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_replica_outputs, "time", made)
    monkeypatch.setattr(_large_files, "time", made)
    scene.context.ship_interval = 10.0
    return made


def change(tracked: Tracked, name: str, content: bytes, at: float = 2.0) -> None:
    place = tracked.root / "output" / name
    place.write_bytes(content)
    os.utime(place, (at, at))


@pytest.mark.parametrize(
    ("waits", "works", "want"),
    [(0.0, 0.0, 10.0), (300.0, 0.1, 10.0), (0.0, 2.0, 40.0), (0.0, 30.0, 60.0)],
    ids=["nothing", "a slow line", "some work", "much work"],
)
def test_what_counts_is_work_and_never_for_more_than_a_minute(
    scene: Scene, clock: Clock, waits: float, works: float, want: float
) -> None:
    def take() -> None:
        clock.waited += waits
        clock.worked += works

    scene.server.on_call = take
    tracked = scene.replica("a", {"model": b"x"}, over=False)
    pauses = [scene.shippers._ship(tracked, scene.line)]
    if not pauses[0]:  # after some seconds it is the turn of others
        pauses.append(scene.shippers._ship(tracked, scene.line))
    assert pauses[-1] == pytest.approx(want)


def test_a_job_with_many_files_goes_on_without_a_pause_while_it_only_waits(
    scene: Scene, clock: Clock
) -> None:
    """A turn ends after some seconds for the sake of others, not because it was much work."""

    def take() -> None:
        clock.waited += 30.0

    scene.server.on_call = take
    tracked = scene.replica("a", dict.fromkeys("abcd", b"x" * 70_000), over=False)
    pauses = [scene.shippers._ship(tracked, scene.line) for _ in range(5)]
    assert pauses == [0.0, 0.0, 0.0, 0.0, 10.0]


def test_a_file_is_left_alone_for_as_long_as_it_took_or_longer_if_it_was_work(
    scene: Scene, clock: Clock
) -> None:
    scene.server.on_call = lambda: setattr(clock, "waited", clock.waited + 30.0)
    tracked = scene.replica("a", {"model": b"x"}, over=False)
    scene.shippers._ship(tracked, scene.line)
    change(tracked, "model", b"other")
    clock.waited += 29.0
    scene.shippers._ship(tracked, scene.line)
    assert scene.server.sent == ["model"]
    clock.waited += 2.0
    scene.shippers._ship(tracked, scene.line)
    assert scene.server.sent == ["model", "model"]


def test_what_changes_all_the_time_is_sent_every_time_but_the_first(
    scene: Scene, clock: Clock
) -> None:
    tracked = scene.replica("a", {"log": b""}, over=False)
    for size in range(1, 5):
        clock.waited += 10.0
        change(tracked, "log", b"x" * size, clock.time() - 0.5)
        scene.shippers._ship(tracked, scene.line)
        assert len(scene.server.sent) == size - 1
    clock.waited += 10.0
    scene.shippers._ship(tracked, scene.line)
    change(tracked, "log", b"half", clock.time() + 9.5)
    clock.waited += 10.0
    scene.shippers._ship(tracked, scene.line)
    assert len(scene.server.sent) == 3, "it had rested, so it may be half written again"


def test_a_large_file_of_a_running_job_holds_up_none_of_its_small_ones(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE_WHILE_RUNNING", 100)
    scene.server.slow = {"large"}
    tracked = scene.replica("a", {"large": b"x" * 100, "small": b"1"}, over=False)
    scene.shippers.follow(tracked)
    scene.begin()
    eventually(lambda: set(scene.server.entered) == {"large", "small"})
    change(tracked, "small", b"22")
    change(tracked, "other", b"3")
    eventually(lambda: scene.server.sent == ["small", "other", "small"])
    assert scene.server.entered.count("large") == 1
    scene.server.go.set()
    eventually(lambda: "large" in scene.server.sent)
    tracked.end(exit_record("exit", now=1.0))
    scene.shippers.finish(tracked)
    eventually(lambda: tracked.shipped)
    assert scene.server.entered.count("large") == 1
    assert sorted(scene.server.listed) == ["output/large", "output/other", "output/small"]


def test_one_that_ends_meanwhile_waits_for_the_file_and_sends_it_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE_WHILE_RUNNING", 100)
    scene.server.slow = {"first"}
    tracked = scene.replica("a", {"first": b"x" * 100, "second": b"y" * 100}, over=False)
    scene.shippers.follow(tracked)
    scene.begin()
    eventually(lambda: scene.server.entered == ["first"])
    change(tracked, "small", b"1")
    eventually(lambda: scene.server.sent == ["small"])
    tracked.end(exit_record("exit", now=1.0))
    scene.shippers.finish(tracked)
    assert not tracked.shipped
    scene.server.go.set()
    eventually(lambda: tracked.shipped)
    assert scene.server.sent == ["small", "first", "second"]


def test_what_is_said_of_a_large_file_is_told_as_of_any_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE_WHILE_RUNNING", 100)
    scene.server.refused["large"] = Forbidden("path_unsafe", path="large")
    tracked = scene.replica("a", {"large": b"x" * 100, "small": b"1"}, over=False)
    tracked.own_bucket = True
    for _ in range(2):
        scene.shippers._ship(tracked, scene.line)
        scene.shippers._large_file_turn(scene.shippers._large_running, scene.line)
        scene.shippers._large_running.put(tracked)
    assert (scene.server.entered, scene.server.sent) == (["small", "large"], ["small"])
    assert tracked.held is not None
    assert tracked.held["code"] == "path_unsafe"


def test_a_large_file_without_room_is_tried_again_and_holds_up_no_small_one(
    scene: Scene, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE_WHILE_RUNNING", 100)
    scene.server.refused["large"] = StorageFull("store_full", path="large")
    tracked = scene.replica("a", {"large": b"x" * 100}, over=False)
    for number in range(5):
        change(tracked, f"small-{number}", b"1")
        clock.waited += 10.0
        scene.shippers._ship(tracked, scene.line)
        assert scene.server.sent[-1] == f"small-{number}"
        scene.server.refused = {} if number == 3 else scene.server.refused
        scene.shippers._large_running.put(tracked)
        scene.shippers._large_file_turn(scene.shippers._large_running, scene.line)
    assert scene.server.entered.count("large") == 4
    assert scene.server.sent[-2:] == ["large", "small-4"]


def found(name: str) -> scan.Found:
    return scan.Found(area="output", path=name, where=Path(name), mark=(1, 1, 1))


def test_a_thread_is_asked_for_once_and_again_when_it_found_nothing_left() -> None:
    waiting = _large_files.LargeFileQueue()
    assert [waiting.add(found("a")), waiting.add(found("b"))] == [True, False]
    for name in "ab":
        assert waiting.next_file() == found(name)
        waiting.end(_large_files.attempt(found(name), lambda: None))
    assert waiting.next_file() is None
    assert waiting.has("output/a")
    assert waiting.add(found("c"))
    assert [waiting.next_outcome() is None for _ in range(3)] == [False, False, True]
    assert not waiting.has("output/a")


def test_after_the_end_only_the_one_under_way_is_waited_for() -> None:
    waiting = _large_files.LargeFileQueue()
    waiting.add(found("a"))
    waiting.add(found("b"))
    waiting.next_file()
    assert not waiting.close()
    assert not waiting.has("output/b")
    waiting.end(_large_files.attempt(found("a"), lambda: None))
    assert waiting.close()
    assert waiting.next_file() is None
