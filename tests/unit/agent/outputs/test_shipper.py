"""Who waits for whom when outputs are sent, and how long a server's mistakes are put up with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from paddlecloud.agent.outputs import _multipart, _replica_outputs, retry_limits, shipper, unsent
from paddlecloud.agent.outputs.shipper import Shippers
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.model.errors import Forbidden, PaddleCloudError, Retry, StaleFence, StorageFull
from tests.integration.agent.replicas import eventually
from tests.unit.agent.shippers import Scene, Server, kept_in, over_well


def test_a_small_output_waits_neither_for_running_jobs_nor_for_large_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE", 100)
    scene.server.slow = {*(f"run-{n}" for n in range(5)), *(f"large-{n}" for n in range(5))}
    scene.begin()
    for n in range(5):
        scene.shippers.follow(scene.replica(f"a{n}", {f"run-{n}": b"x"}, over=False))
    large = [scene.replica(f"b{n}", {f"large-{n}": b"x" * 100}, over=True) for n in range(5)]
    for each in large:
        scene.shippers.finish(each)
    eventually(lambda: len(scene.server.entered) >= 4)
    small = scene.replica("c", {"model": b"weights"}, over=True)
    scene.shippers.finish(small)
    eventually(lambda: small.shipped)
    assert scene.server.sent == ["model"]
    assert not any(each.shipped for each in large)
    scene.server.go.set()
    eventually(lambda: all(each.shipped for each in large))
    assert {f"output/large-{n}" for n in range(5)} <= set(scene.server.listed)


def test_the_large_file_of_a_job_does_not_wait_for_the_huge_ones_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE", 100)
    scene.server.slow = {f"huge-{n}" for n in range(7)}
    scene.begin()
    huge = [scene.replica(f"a{n}", {f"huge-{n}": b"x" * 1000}, over=True) for n in range(7)]
    for each in huge:
        scene.shippers.finish(each)
    eventually(lambda: len(scene.server.entered) == 7)
    other = scene.replica("b", {"model": b"x" * 200}, over=True)
    scene.shippers.finish(other)
    eventually(lambda: other.shipped)
    assert scene.server.sent == ["model"]
    scene.server.go.set()
    eventually(lambda: all(each.shipped for each in huge))
    assert len(scene.shippers.bodies()) == 16, "threads are few, however many jobs there are"


class Parted(Server):
    """Takes large files in parts; with the first of them the job writes its file again."""

    def __init__(self, changes: Callable[[], object]) -> None:
        super().__init__()
        self._changes: list[Callable[[], object]] = [changes]
        self.asked: list[str] = []

    def call(self, method: str, path: str, body: Any, query: object, *, timeout: float) -> bytes:
        self.asked.append(f"{method} {path.split('/')[4]}")
        while self._changes:
            self._changes.pop()()
        return super().call(method, path, body, query, timeout=timeout)

    def json(
        self, method: str, path: str, body: Mapping[str, Any], *rest: object
    ) -> dict[str, Any]:
        if "/parts/" not in path:
            return super().json(method, path, body, *rest)
        self.asked.append(f"{method} parts")
        return {"upload": "u", "part_size": 100, "addresses": [], "parts": [], "through": True}


def test_a_large_file_that_changes_while_it_is_sent_is_not_sent_whole_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_multipart, "_LEAST_THROUGH", 100)
    tracked = scene.replica("a", {"big": b"x" * 150}, over=True)
    file = tracked.root / "output" / "big"
    scene.server = server = Parted(lambda: file.write_bytes(b"y" * 150))
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    sends = ["POST parts", "PUT part", "PUT part"]
    assert server.asked == [*sends, *sends, "PUT parts"]


def test_replicas_take_turns_between_their_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_TURN", -1.0)
    monkeypatch.setattr(shipper, "_THREADS", 1)
    for name in "ab":
        files = {f"{name}{n}": b"x" for n in range(3)}
        scene.shippers.follow(scene.replica(name, files, over=False))
    scene.begin()
    eventually(lambda: len(scene.server.sent) == 6)
    assert scene.server.sent == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_one_that_ends_while_it_waits_among_the_running_is_sent_to_the_end(scene: Scene) -> None:
    tracked = scene.replica("a", {"model": b"x"}, over=False)
    scene.shippers.follow(tracked)
    tracked.end(exit_record("exit", now=1.0))
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert (scene.server.sent, scene.server.listed) == (["model"], ["output/model"])


def test_mistakes_of_the_server_lose_nothing_and_hold_up_no_other_file(scene: Scene) -> None:
    scene.server.bad = {"one": 1, "listing": 1}
    tracked = scene.replica("a", {"one": b"1", "two": b"2"}, over=True)
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert scene.server.sent == ["two", "one"]
    assert sorted(scene.server.listed) == ["output/one", "output/two"]


def test_a_file_about_which_it_always_errs_is_kept_here_and_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_limits, "INTERNAL_ERROR_SECONDS", 0.3)
    scene.server.bad = {"one": 1000, "listing": 1000}
    tracked = scene.replica("a", {"one": b"1", "two": b"2"}, over=True)
    tracked.exit = {**exit_record("exit", now=1.0), "exit_code": 0}
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert scene.server.entered.count("one") >= 2
    kept = scene.context.directory / unsent.DIRECTORY / "a" / "output" / "one"
    assert kept.read_bytes() == b"1"
    log = (tracked.root / "stdout.log").read_text()
    assert "the server could not store these outputs" in log
    assert "服务器无法保存以下输出" in log
    english, chinese = log.splitlines()[-2:]
    assert "internal server error" in english
    assert "服务器内部错误" in chinese
    assert "internal server error" not in chinese
    assert tracked.exit["cause"] == "exit"


def test_what_the_server_refuses_is_kept_here_unless_its_attempt_is_over(scene: Scene) -> None:
    scene.server.refused = {
        "one": Forbidden("path_unsafe", path="one"),
        "two": StaleFence("fence_stale", replica="a", fence=1),
    }
    tracked = scene.replica("a", {"one": b"1", "two": b"2", "three": b"3"}, over=True)
    tracked.exit = {**exit_record("exit", now=1.0), "exit_code": 0}
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    kept = scene.context.directory / unsent.DIRECTORY / "a" / "output"
    assert [path.name for path in kept.iterdir()] == ["one"]
    assert scene.server.listed == ["output/three"]
    assert (tracked.exit["cause"], tracked.exit["said"]["code"]) == ("exit", "unsent_kept")


def test_a_refused_file_that_is_gone_is_told_no_longer(scene: Scene) -> None:
    scene.server.refused["one"] = Forbidden("path_unsafe", path="one")
    tracked = scene.replica("a", {"one": b"1", "two": b"2"}, over=False)
    tracked.own_bucket = True
    scene.shippers._ship(tracked, scene.line)
    assert tracked.held is not None
    assert (tracked.held["code"], tracked.held["runs"]) == ("path_unsafe", True)
    (tracked.root / "output" / "one").unlink()
    scene.shippers._ship(tracked, scene.line)
    assert tracked.held is None
    assert scene.shippers._outputs["a"].files.keys() == {"output/two"}


def test_an_output_that_finds_no_room_holds_up_no_other_and_is_given_up_alone(
    scene: Scene,
) -> None:
    scene.server.refused["big"] = StorageFull("store_full", path="big")
    tracked = over_well(scene, {"big": b"1" * 100, "model": b"2", "report": b"3"})
    tracked.store_timeout, scene.context.link._up = 3600.0, True
    assert scene.shippers._ship(tracked, scene.line) is not None
    assert scene.server.sent == ["model", "report"]
    assert tracked.held is not None
    assert tracked.held["code"] == "store_full"
    scene.shippers._outputs["a"].progress_at -= 3601
    assert scene.shippers._ship(tracked, scene.line) is None
    assert scene.server.listed == ["output/model", "output/report"], "their digests are known"
    assert tracked.exit is not None
    assert tracked.exit["cause"] == "outputs_lost"
    assert tracked.exit["said"]["params"]["files"] == "output/big"
    assert kept_in(scene) == ["a/output/big"]


def test_what_is_missed_when_the_rest_is_given_up_is_kept_too(scene: Scene) -> None:
    scene.server.refused["big"] = StorageFull("store_full", path="big")
    scene.server.missed = {"output/model"}
    tracked = over_well(scene, {"big": b"1" * 100, "model": b"2", "report": b"3"})
    tracked.store_timeout, scene.context.link._up = 0.0, True
    while scene.shippers._ship(tracked, scene.line) is not None:
        pass
    assert scene.server.listed == ["output/report"]
    assert kept_in(scene) == ["a/output/big", "a/output/model"]


def test_a_server_that_takes_no_list_holds_up_nobody(scene: Scene) -> None:
    scene.server.refused["big"] = StorageFull("store_full", path="big")
    scene.server.bad["listing"] = 1000
    tracked = over_well(scene, {"big": b"1" * 100, "model": b"2"})
    tracked.store_timeout, scene.context.link._up = 0.0, True
    while scene.shippers._ship(tracked, scene.line) is not None:
        pass
    assert kept_in(scene) == ["a/output/big"]


def test_it_is_sent_as_soon_as_there_is_room(scene: Scene) -> None:
    scene.server.refused["big"] = StorageFull("store_full", path="big")
    tracked = over_well(scene, {"big": b"1" * 100, "model": b"2"})
    assert scene.shippers._ship(tracked, scene.line) is not None
    scene.server.refused.clear()
    assert scene.shippers._ship(tracked, scene.line) is None
    assert scene.server.listed == ["output/model", "output/big"]
    assert tracked.exit is not None
    assert (tracked.exit["cause"], "said" in tracked.exit) == ("exit", False)


def test_an_output_of_a_running_job_that_finds_no_room_is_told_until_it_does(scene: Scene) -> None:
    scene.server.refused["big"] = StorageFull("store_full", path="big")
    tracked = scene.replica("a", {"big": b"1" * 100, "model": b"2"}, over=False)
    scene.shippers._ship(tracked, scene.line)
    assert scene.server.sent == ["model"]
    assert tracked.held is not None
    assert (tracked.held["code"], tracked.held["runs"]) == ("store_full", True)
    # For a while it is left alone; that does not mean that it was stored.
    file = scene.shippers._outputs["a"].file("output/big")
    file.not_before += 3600
    scene.shippers._ship(tracked, scene.line)
    assert (scene.server.entered.count("big"), tracked.held["code"]) == (1, "store_full")
    scene.server.refused.clear()
    file.not_before = 0.0
    scene.shippers._ship(tracked, scene.line)
    assert scene.server.sent == ["model", "big"]
    assert scene.context.registry.all()[0].held is None


@pytest.mark.parametrize(
    "error", [StorageFull("store_full", path="a"), Retry("internal", request_id="r-1")]
)
def test_the_others_have_their_turn_before_what_was_tried_in_vain(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: PaddleCloudError
) -> None:
    monkeypatch.setattr(_replica_outputs, "_TURN", -1.0)
    scene.server.refused = {"a": error, "b": error}
    tracked = over_well(scene, {name: b"x" for name in "abcd"})
    for _ in range(7):
        assert scene.shippers._ship(tracked, scene.line) is not None
    assert scene.server.entered == ["a", "b", "c", "d", "a", "b"]


def test_a_store_that_takes_nothing_is_not_asked_to_take_all_without_a_pause(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_TURN", -1.0)
    full = StorageFull("store_full", path="a")
    scene.server.refused = {"a": full, "c": full, "d": full}
    tracked = over_well(scene, {name: b"x" for name in "abcd"})
    pauses = [scene.shippers._ship(tracked, scene.line) for _ in range(4)]
    assert scene.server.entered == ["a", "b", "c", "d"]
    assert [bool(pause) for pause in pauses] == [True, False, True, True]


def test_what_large_files_grew_by_waits_for_a_slot(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE", 100)
    monkeypatch.setattr(shipper, "_LARGE_PARTS", 1)
    scene.shippers = Shippers(scene.context)
    before = b"x" * 100_000
    tracked = [scene.replica(f"a{n}", {f"one-{n}": before}, over=False) for n in range(3)]
    for number, each in enumerate(tracked):
        scene.shippers._ship(each, scene.line)
        (each.root / "output" / f"one-{number}").write_bytes(before + b"more")
        each.end(exit_record("exit", now=1.0))
    scene.server.slow = {f"one-{n}" for n in range(3)}
    scene.server.entered.clear()
    scene.begin()
    for each in tracked:
        scene.shippers.finish(each)
    eventually(lambda: scene.server.entered and len(scene.shippers._slots._waiting) == 2)
    assert len(scene.server.entered) == 1
    scene.server.go.set()
    eventually(lambda: all(each.shipped for each in tracked))
    assert len(scene.server.sent) == 6


def test_many_small_files_are_one_request(scene: Scene) -> None:
    small = {f"f{number}": b"x" * number for number in range(20)}
    tracked = scene.replica("a", {**small, "large": b"x" * 70_000}, over=True)
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert [sorted(names) for names in scene.server.bundles] == [sorted(small)]
    assert sorted(scene.server.sent) == sorted([*small, "large"])
    assert sorted(scene.server.listed) == sorted(f"output/{name}" for name in (*small, "large"))


def test_what_a_bundle_did_not_bring_goes_by_itself(scene: Scene) -> None:
    scene.server.bad["b"] = 2
    scene.server.refused["c"] = Forbidden("path_unsafe", path="c")
    tracked = scene.replica("a", dict.fromkeys("abcd", b"x"), over=True)
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert scene.server.bundles == [["a", "d"]]
    assert scene.server.entered.count("b") == 3
    assert sorted(scene.server.sent) == ["a", "b", "d"]
    kept = scene.context.directory / unsent.DIRECTORY / "a" / "output"
    assert [path.name for path in kept.iterdir()] == ["c"]
