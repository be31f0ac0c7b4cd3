"""Starting a replica when the disk or the machine does not play along: what is ended, and what is
left alone because it may already run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.inputs import snapshot_tree
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica import start as replica_start
from paddlecloud.agent.replica.start import Starters
from paddlecloud.agent.sandbox import workspace
from paddlecloud.agent.sandbox import workspace as sandbox_workspace
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.agent.work_queue import WorkQueue
from paddlecloud.model.errors import Refused, Retry
from paddlecloud.model.files.snapshot import Entry, EntryKind, snapshot_of
from tests.integration.agent.replicas import eventually
from tests.unit.agent.runs import a_run


class ScriptedSpawner:
    """Raises what it is told to, and counts."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[Any] = []
        self.able = False
        self.meanwhile: Callable[[], object] = lambda: None

    def spawn(self, launch: Any) -> int:
        self.asked.append(launch)
        self.meanwhile()
        if self.error is not None:
            raise self.error
        return 1

    def can_overlay(self, _root: str, _tree: str) -> bool:
        return self.able


class Scene:
    def __init__(self, folder: Path, *, starters: int = 1, fetchers: int = 1) -> None:
        self.spawner = ScriptedSpawner()
        config = AgentConfig(
            path=folder / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
        )
        log = AgentLog(folder / "agent.log")
        self.context = Context(config, log, cast("Spawner", self.spawner))
        (folder / "replicas").mkdir()
        self.starters = Starters(self.context)
        bodies = [self.starters.run_starter] * starters + [self.starters.run_fetcher] * fetchers
        self._threads = [threading.Thread(target=body) for body in bodies]
        for thread in self._threads:
            thread.start()

    def replica(self, name: str = "r") -> Tracked:
        root = self.context.registry.root(name)
        return self.context.registry.add(Tracked(id=name, fence=1, root=root, run=a_run(), acked=0))

    def start(self, tracked: Tracked) -> Tracked:
        self.starters.put(tracked)
        return tracked

    def close(self) -> None:
        self.context.stop()
        self.starters.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_it_is_launched_with_its_directories(scene: Scene) -> None:
    tracked = scene.start(scene.replica())
    eventually(lambda: not tracked.queued)
    assert (tracked.stage, tracked.spawned, tracked.launches) == (Stage.LAUNCHED, True, 1)
    assert scene.spawner.asked[0]["command"] == "true"
    names = sorted(path.name for path in tracked.root.iterdir())
    assert names == ["home", "log", "mount", "order.json", "output", "stdout.log", "tmp", "work"]


def test_an_error_after_a_supervisor_was_asked_for_ends_and_deletes_nothing(scene: Scene) -> None:
    scene.spawner.error = OSError(28, "No space left on device")
    tracked = scene.start(scene.replica())
    eventually(lambda: len(scene.spawner.asked) >= 2)
    assert tracked.stage is Stage.LAUNCHED
    assert (tracked.root / "work").is_dir()
    assert not (tracked.root / "exit.json").exists()
    scene.spawner.error = None
    eventually(lambda: not tracked.queued)
    assert tracked.stage is Stage.LAUNCHED


def test_a_machine_without_processes_is_told_to_the_owner_in_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_start, "_LONGEST_PAUSE", 0.1)
    scene.spawner.error = Retry("replica_not_started", replica="r", reason="no process")
    tracked = scene.start(scene.replica())
    eventually(lambda: tracked.stage is Stage.OVER)
    assert tracked.exit is not None
    assert tracked.exit["cause"] == "start_failed"
    assert "no process" in tracked.exit["message"]
    params = {"replica": "r", "reason": "no process"}
    assert tracked.exit["said"] == {"code": "replica_never_started", "params": params}
    assert "again" not in tracked.exit["message"]
    # A supervisor that comes late finds both records, and runs nothing.
    assert (tracked.root / "stop.json").exists()
    assert (tracked.root / "exit.json").exists()
    assert len(scene.spawner.asked) == 6


def test_one_whose_records_tell_of_it_is_not_asked_for_again(scene: Scene) -> None:
    tracked = scene.start(scene.replica())
    eventually(lambda: not tracked.queued)
    (tracked.root / "exit.json").write_text('{"cause": "exit"}')
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    assert len(scene.spawner.asked) == 1


def test_a_disk_that_refuses_before_that_is_told_to_the_owner(scene: Scene) -> None:
    (scene.context.directory / "replicas" / "r").write_text("in the way")
    tracked = scene.start(scene.replica())
    eventually(lambda: tracked.stage is Stage.OVER)
    assert tracked.exit is not None
    assert "cannot set up the job's files" in tracked.exit["message"]
    assert tracked.exit["said"]["code"] == "agent_workspace_failed"
    assert tracked.exit["said"]["params"].keys() == {"path", "reason"}
    assert scene.spawner.asked == []


class Erring:
    """A server that makes a mistake about everything."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self, *_asked: object, **_more: object) -> bytes:
        self.asked += 1
        raise Retry("internal", request_id="r-1")


def test_mistakes_of_the_server_about_its_files_are_put_up_with_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_start, "_MAX_INTERNAL_ERRORS", 3)
    server = Erring()
    monkeypatch.setattr(Link, "channel", lambda _link: server)
    scene = Scene(tmp_path)
    try:
        tracked = scene.replica()
        tracked.ordered["snapshot"] = f"sha256:{'0' * 64}"
        scene.start(tracked)
        eventually(lambda: tracked.stage is Stage.OVER)
    finally:
        scene.close()
    assert server.asked == 3
    assert tracked.exit is not None
    assert "internal server error (request r-1)" in tracked.exit["message"]
    assert tracked.exit["said"] == {"code": "internal", "params": {"request_id": "r-1"}}


def test_a_mistake_of_our_own_is_told_as_a_sentence_of_ours(scene: Scene) -> None:
    tracked = scene.replica()
    del cast("dict[str, Any]", tracked.run)["env"]
    scene.start(tracked)
    eventually(lambda: tracked.stage is Stage.OVER)
    assert tracked.exit is not None
    assert "internal error in the agent: KeyError('env')" in tracked.exit["message"]
    assert tracked.exit["said"] == {"code": "agent_mistake", "params": {"error": "KeyError('env')"}}


def test_turns_come_by_their_time_and_can_be_hurried() -> None:
    turns = WorkQueue()
    first, second, third = (
        Tracked(id=name, fence=1, root=Path(name), run=None, acked=0) for name in "abc"
    )
    far = time.monotonic() + 1000
    turns.put(first, far)
    turns.put(second, 2.0)
    turns.put(third, 1.0)
    assert [turns.take(), turns.take()] == [third, second]
    turns.hurry(second)
    turns.hurry(first)
    assert turns.take() is first
    turns.put(first, far)
    turns.put(second, far)
    turns.hurry()
    assert [turns.take(), turns.take()] == [first, second]
    turns.close()
    assert turns.take() is None


def with_tree(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Tracked:
    """A replica whose files are worth a tree."""
    monkeypatch.setattr(snapshot_tree, "WORTH_ENTRIES", 1)
    scene.spawner.able = True
    found = snapshot_of([Entry(path="empty", kind=EntryKind.DIRECTORY)])
    scene.starters._input_cache._keep_in_memory(found)
    tracked = scene.replica()
    tracked.ordered["snapshot"] = found.id
    return tracked


def prune(scene: Scene) -> int:
    """As another starter does it, at a time when everything here counts as old."""
    cache = scene.starters._input_cache
    cache._limit, cache._grown = 0, 1
    scene.starters._release_trees()
    return cache.prune(time.time() + 10_000, scene.starters._evictable)


def test_a_tree_stays_from_its_making_until_its_replica_has_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = with_tree(scene, monkeypatch)
    freed: list[int] = []
    scene.spawner.meanwhile = lambda: freed.append(prune(scene))
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    tree = Path(scene.spawner.asked[0]["tree"])
    assert (freed, tree.is_dir()) == ([0], True)
    assert prune(scene) == 0, "its supervisor may not be there yet"
    (tracked.root / "exit.json").write_text('{"cause": "exit"}')
    assert prune(scene) > 0
    assert not tree.exists()
    assert scene.starters._held_trees == {}


def test_a_tree_of_an_order_of_before_stays_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = with_tree(scene, monkeypatch)
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    tree = Path(scene.spawner.asked[0]["tree"])
    for _, held in scene.starters._held_trees.values():
        held.release()
    scene.starters._held_trees.clear()  # as after a restart of the agent
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    assert prune(scene) == 0
    assert tree.is_dir()


def test_a_tree_that_somebody_has_for_now_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = with_tree(scene, monkeypatch)
    make, busy = scene.starters._trees.make, [BlockingIOError(11, "busy")] * 2

    def at_the_third_try(*asked: Any, **how: Any) -> snapshot_tree.HeldTree | None:
        if busy:
            raise busy.pop()
        return make(*asked, **how)

    monkeypatch.setattr(scene.starters._trees, "make", at_the_third_try)
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    assert (tracked.stage, tracked.exit, busy) == (Stage.LAUNCHED, None, [])
    assert Path(scene.spawner.asked[0]["tree"]).is_dir()


def test_only_so_many_trees_are_held_for_those_that_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_start, "_MAX_HELD_TREES", 0)
    scene.starters._max_held_trees = 0
    tracked = with_tree(scene, monkeypatch)
    scene.start(tracked)
    eventually(lambda: not tracked.queued)
    assert list(scene.starters._held_trees) == [tracked.id]
    tracked.end(None)
    scene.starters._max_held_trees = 0
    scene.starters._hold_tree(scene.replica("other"), None)
    assert scene.starters._held_trees == {}


def test_the_tree_in_an_order_stays_although_an_earlier_agent_held_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = scene.start(with_tree(scene, monkeypatch))
    eventually(lambda: not tracked.queued)
    tree = Path(scene.spawner.asked[0]["tree"])
    for _, held in scene.starters._held_trees.values():
        held.release()
    scene.starters._held_trees.clear()
    assert prune(scene) == 0
    assert tree.is_dir()
    (tracked.root / "exit.json").write_text('{"cause": "exit"}')
    assert prune(scene) > 0


def test_whoever_tidies_up_is_woken_when_the_cache_grew_and_comes_until_it_is_small(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_start, "RECHECK_SECONDS", 0.01)
    scene.context.cache_limit = 1000
    cache = scene.starters._input_cache
    looks: list[bool] = []
    grown = threading.Event()

    def prune(_now: float, _others: object, _is_short: object) -> int:
        looks.append(grown.is_set() and looks.count(True) < 3)
        cache.above_limit = looks[-1]
        return 0

    monkeypatch.setattr(cache, "prune", prune)
    thread = threading.Thread(target=scene.starters.run_pruner)
    thread.start()
    try:
        eventually(lambda: looks == [False])
        grown.set()
        tracked = scene.start(scene.replica())
        eventually(lambda: not tracked.queued)
        eventually(lambda: looks == [False, True, True, True, False])
    finally:
        scene.context.stop()
        scene.starters.close()
        thread.join(20)
    assert not thread.is_alive()


def test_a_tree_of_no_use_goes_once_its_replica_has_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = scene.start(with_tree(scene, monkeypatch))
    eventually(lambda: not tracked.queued)
    tree = Path(scene.spawner.asked[0]["tree"])
    monkeypatch.setattr(snapshot_tree, "_is_useful", lambda _note: False)
    for ended in (False, True):
        if ended:
            (tracked.root / "exit.json").write_text('{"cause": "exit"}')
        scene.context.prune_due.set()
        scene.starters._pruner_turn()
        assert tree.exists() is not ended


def cached(scene: Scene) -> Path:
    """A content that was used long ago."""
    path = scene.context.directory / "cache" / "blobs" / "aa" / "old"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 1000)
    os.utime(path, (1, 1))
    return path


def test_what_is_cached_goes_before_a_job_fails_for_lack_of_space(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, lay_out = cached(scene), scene.starters._builder.create

    def full(root: Path, *given: Any, **how: Any) -> None:
        if old.exists():
            raise workspace.disk_error(OSError(28, "No space left on device"), root)
        lay_out(root, *given, **how)

    monkeypatch.setattr(scene.starters._builder, "create", full)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: 0)
    tracked = scene.start(scene.replica())
    eventually(lambda: not tracked.queued)
    assert (tracked.stage, old.exists()) == (Stage.LAUNCHED, False)


def test_a_job_that_finds_no_space_even_then_fails(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cached(scene)

    def full(root: Path, *_given: Any, **_how: Any) -> None:
        old.write_bytes(b"fetched again")
        os.utime(old, (1, 1))
        raise workspace.disk_error(OSError(28, "No space left on device"), root)

    monkeypatch.setattr(scene.starters._builder, "create", full)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: 0)
    tracked = scene.start(scene.replica())
    eventually(lambda: not tracked.queued)
    assert tracked.exit is not None
    assert tracked.exit["said"]["code"] == "agent_workspace_full"


def test_for_a_job_that_can_never_fit_nothing_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cached(scene)

    def full(root: Path, *_given: Any, **_how: Any) -> None:
        params = {"path": str(root), "needed": 10**9, "free": 0, "reason": ""}
        raise Refused("agent_workspace_full", **params)

    monkeypatch.setattr(scene.starters._builder, "create", full)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: 10**6)
    tracked = scene.start(scene.replica())
    eventually(lambda: not tracked.queued)
    assert tracked.exit is not None
    assert old.exists()


def test_outputs_that_were_not_sent_stay_while_the_cache_is_only_spared(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cached(scene)
    os.utime(old)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: -1)
    for spared in (True, False):
        scene.context.prune_due.set()
        scene.starters._pruner_turn()
        assert (old.exists(), scene.context.cache_spent) == (spared, not spared)
        if spared:
            os.utime(old, (1, 1))


def test_whoever_tidies_up_sees_that_the_disk_is_full(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cached(scene)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: -1 if old.exists() else 0)
    scene.starters._input_cache._grown = 0
    scene.context.prune_due.set()
    scene.starters._pruner_turn()
    assert (old.exists(), scene.context.cache_spent) == (False, False)
    monkeypatch.setattr(sandbox_workspace, "free_space", lambda _top: -1)
    scene.context.prune_due.set()
    scene.starters._pruner_turn()
    assert scene.context.cache_spent


def test_nothing_goes_before_the_limit_is_known_and_then_what_is_above_it(scene: Scene) -> None:
    old = cached(scene)
    os.truncate(old, 100 * 1024**3)
    os.utime(old, (1, 1))
    for limit, is_kept in ((None, True), (500 * 1024**3, True), (1000, False)):
        scene.context.cache_limit = limit
        scene.context.prune_due.set()
        scene.starters._pruner_turn()
        assert old.exists() is is_kept
