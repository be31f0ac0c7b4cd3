"""Replicas that wait for slow downloads: they can be killed, and delay no other replica."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.inputs import _blob_source, snapshot_tree
from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.agent.registry import Stage, StopRequest, Tracked
from paddlecloud.agent.replica import _restore_outputs
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.model.errors import Retry
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of
from tests.integration.agent.replicas import eventually
from tests.unit.agent.replica.test_start import Scene

PIECE = b"piece"


def files(name: str, count: int) -> dict[str, bytes]:
    contents = [f"{name} {number}".encode() for number in range(count)]
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


class SlowServer:
    """Gives out a content when it is let, one for each permit."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.lists: dict[str, Snapshot] = {}
        self.asked: list[str] = []
        self.permits = threading.Semaphore(0)
        self.error: Exception | None = None

    def keep(self, name: str, count: int) -> str:
        contents = files(name, count)
        self.contents |= contents
        entries = [
            Entry(path=f"{name}-{at}", size=len(content), sha256=digest)
            for at, (digest, content) in enumerate(contents.items())
        ]
        snapshot = snapshot_of(entries)
        self.lists[snapshot.id] = snapshot
        return snapshot.id

    def call(
        self,
        _method: str,
        path: str,
        *_rest: object,
        sink: Callable[[bytes], object] = lambda _piece: None,
        **_more: object,
    ) -> bytes:
        last = path.rpartition("/")[2]
        self.asked.append(last)
        if last in self.lists:
            rows = [
                [e.path, e.kind.value, e.size, e.sha256, 0, ""] for e in self.lists[last].entries
            ]
            return b'{"entries":%b}' % json.dumps(rows, separators=(",", ":")).encode()
        assert self.permits.acquire(timeout=20)
        if self.error is not None:
            raise self.error
        sink(self.contents[last])
        return b""

    def parsed(self, answer: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(answer)
        return found

    def let_all_go(self) -> None:
        self.permits.release(10_000)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> SlowServer:
    made = SlowServer()
    monkeypatch.setattr(Link, "channel", lambda _link: made)
    return made


@pytest.fixture
def scene(tmp_path: Path, server: SlowServer) -> Iterator[Scene]:
    """With as many threads as an agent has, nearly."""
    made = Scene(tmp_path, starters=2, fetchers=2)
    made.spawner.able = True
    yield made
    server.let_all_go()
    made.close()


def replica(scene: Scene, name: str, snapshot: str | None = None) -> Tracked:
    tracked = scene.replica(name)
    tracked.ordered["snapshot"] = snapshot
    return scene.start(tracked)


def kill(scene: Scene, tracked: Tracked) -> None:
    tracked.stop = StopRequest(grace=0.0, cause="stopped")
    scene.starters.hurry(tracked)


@pytest.mark.parametrize("count", [10, 100], ids=["copies", "a tree"])
def test_one_that_is_killed_while_its_files_come_does_not_wait_for_all(
    scene: Scene, server: SlowServer, count: int
) -> None:
    tracked = replica(scene, "r", server.keep("file", count))
    server.permits.release(2)
    eventually(lambda: len(server.asked) == 4)
    kill(scene, tracked)
    server.permits.release()
    eventually(lambda: tracked.stage is Stage.OVER)
    assert tracked.exit is not None
    assert (tracked.exit["cause"], len(server.asked)) == ("stopped", 4)
    assert scene.spawner.asked == []
    assert not list((scene.context.directory / "cache" / "blobs").rglob("*.part"))
    assert not list((scene.context.directory / "cache" / "trees").glob("*"))


def test_one_that_is_killed_before_a_fetcher_is_free_waits_for_none(
    scene: Scene, server: SlowServer
) -> None:
    busy = [replica(scene, name, server.keep(name, 2)) for name in ("a", "b")]
    eventually(lambda: len(server.asked) == 4)
    late = replica(scene, "late", server.keep("late", 2))
    eventually(lambda: scene.starters._fetch_queue._waiting)
    kill(scene, late)
    eventually(lambda: late.stage is Stage.OVER)
    assert [one.stage for one in busy] == [Stage.ORDERED] * 2


@pytest.mark.parametrize("count", [10, 100], ids=["copies", "a tree"])
def test_files_in_the_cache_need_no_fetcher(scene: Scene, server: SlowServer, count: int) -> None:
    snapshot = server.keep("file", count)
    server.permits.release(count)
    first = replica(scene, "first", snapshot)
    eventually(lambda: first.stage is Stage.LAUNCHED)
    asked = len(server.asked)
    busy = [replica(scene, name, server.keep(name, 2)) for name in ("a", "b")]
    eventually(lambda: len(server.asked) == asked + 4)
    second = replica(scene, "second", snapshot)
    eventually(lambda: second.stage is Stage.LAUNCHED)
    assert [one.stage for one in busy] == [Stage.ORDERED] * 2


def test_a_gang_that_fetches_holds_up_nobody_and_fetches_once(
    scene: Scene, server: SlowServer
) -> None:
    snapshot = server.keep("data", 100)
    gang = [replica(scene, f"g{number}", snapshot) for number in range(6)]
    eventually(lambda: len(server.asked) >= 2)
    other = replica(scene, "other", server.keep("other", 2))
    plain = replica(scene, "plain")
    eventually(lambda: plain.stage is Stage.LAUNCHED)
    eventually(lambda: len(set(server.asked) & files("other", 2).keys()) == 1)
    held = {"code": "held_fetching", "params": {"worker": "trainer-0"}}
    eventually(lambda: [one.held for one in gang if one.held] == [held] * 5)
    assert {one.stage for one in (*gang, other)} == {Stage.ORDERED}
    server.let_all_go()
    eventually(lambda: all(one.stage is Stage.LAUNCHED for one in gang))
    assert len([name for name in server.asked if name in files("data", 100)]) == 100


def test_those_that_wait_for_a_tree_start_as_soon_as_it_is_made(
    scene: Scene, server: SlowServer
) -> None:
    """However long they have waited, and their pauses have become."""
    snapshot = server.keep("data", 100)
    gang = [replica(scene, f"g{number}", snapshot) for number in range(3)]
    for tracked in gang:
        tracked.pause = 1000.0
    eventually(lambda: len(scene.starters._waiting_for_tree) == 2)
    server.let_all_go()
    eventually(lambda: all(one.stage is Stage.LAUNCHED for one in gang))
    assert scene.starters._waiting_for_tree == {}


def test_when_the_one_that_fetched_is_killed_another_goes_on(
    scene: Scene, server: SlowServer
) -> None:
    snapshot = server.keep("data", 100)
    gang = [replica(scene, f"g{number}", snapshot) for number in range(3)]
    eventually(lambda: len(scene.starters._waiting_for_tree) == 2)
    (first,) = [one for one in gang if one.id not in scene.starters._waiting_for_tree]
    kill(scene, first)
    server.let_all_go()
    eventually(lambda: first.stage is Stage.OVER)
    eventually(lambda: [one.stage for one in gang].count(Stage.LAUNCHED) == 2)


def test_one_that_came_too_late_to_be_woken_is_tried_at_once(
    scene: Scene, server: SlowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, busy = scene.starters._trees.ready, [True]

    def a_moment_ago(*asked: Any) -> snapshot_tree.HeldTree | None:
        if busy:
            busy.clear()
            raise snapshot_tree.TreeBusy(11, "it creating Python environment", "done by now")
        return ready(*asked)

    monkeypatch.setattr(scene.starters._trees, "ready", a_moment_ago)
    server.let_all_go()
    tracked = scene.replica("r")
    tracked.pause = 1000.0
    tracked.ordered["snapshot"] = server.keep("data", 100)
    scene.start(tracked)
    eventually(lambda: tracked.stage is Stage.LAUNCHED)


def test_a_silent_bucket_is_not_waited_for_when_the_replica_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_blob_source, "_POLL_SECONDS", 0.01)
    answers, ended = threading.Event(), threading.Semaphore(0)
    wanted, begun = [True], []

    class SilentBucket:
        def fetch(self, url: str, *_how: object) -> bool:
            begun.append(url)
            answers.wait(20)
            ended.release()
            return False

        def drop_idle(self) -> None:
            pass

        def json(self, *_rest: object) -> dict[str, Any]:
            return {"contents": [[digest, 1, "http://bucket/x", ""] for digest in files("x", 20)]}

    cache = InputCache(tmp_path, limit=1 << 30)
    cache._downloads.direct = bucket = cast("Any", SilentBucket())
    source = cache.source("r", None, bucket, direct=True, is_wanted=lambda: wanted[0])

    def ask() -> None:
        with pytest.raises(Retry, match="it is to stop"):
            source(next(iter(files("x", 20))), 1)

    asks = threading.Thread(target=ask)
    asks.start()
    eventually(lambda: len(begun) == 8)
    wanted[0] = False
    asks.join(20)
    assert not asks.is_alive()
    assert not ended.acquire(blocking=False)
    answers.set()
    for _ in begun:
        assert ended.acquire(timeout=20)
    assert len(begun) == 8


def test_a_kill_in_the_middle_of_a_file_does_not_blame_the_bucket(tmp_path: Path) -> None:
    digest, wanted = hashlib.sha256(PIECE * 3).hexdigest(), [True]

    class Bucket:
        """Sends the first chunk, and then the replica is not wanted any more."""

        def fetch(self, _address: str, take: Callable[[bytes], object], *_how: object) -> bool:
            take(PIECE)
            wanted[0] = False
            take(PIECE)
            return False

        def drop_idle(self) -> None:
            pass

        def json(self, *_rest: object) -> dict[str, Any]:
            return {"contents": [[digest, 15, "http://bucket/x", ""]]}

    cache = InputCache(tmp_path, limit=1 << 30)
    cache._downloads.direct = bucket = cast("Any", Bucket())
    source = cache.source("r", None, bucket, direct=True, is_wanted=lambda: wanted[0])
    with pytest.raises(Retry, match="it is to stop"):
        source(digest, 15)
    (half,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert half.read_bytes() == PIECE, "for the next job of these files"


def test_outputs_of_the_attempt_before_are_given_up_in_the_middle_of_a_file(
    tmp_path: Path,
) -> None:
    tracked = Tracked(id="r", fence=1, root=tmp_path, run=None, acked=0)
    (tmp_path / "output").mkdir()

    class Server:
        def json(self, *_asked: object) -> dict[str, Any]:
            return {"files": [["model", 15, 1.0]]}

        def call(self, *_asked: object, sink: Callable[[bytes], object]) -> None:
            sink(PIECE)
            tracked.stop = StopRequest(grace=0.0, cause="stopped")
            sink(PIECE)
            raise AssertionError("nobody wants the rest")

    with pytest.raises(Retry, match="it is to stop"):
        _restore_outputs.restore(tracked, None, Server(), owner=None)  # type: ignore[arg-type]
