"""Outputs that stay behind when a job is over: unreadable, refused or passed over. Each is kept and
told by the name that its owner knows, and no store is blamed for another's fault."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.outputs import _replica_outputs, scan, unsent
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.messages import render
from paddlecloud.model.errors import Forbidden, PaddleCloudError, StorageFull
from paddlecloud.model.files.layout import replica_id
from paddlecloud.model.files.snapshot import MAX_DEPTH
from paddlecloud.model.protocol.bce_auth import quote
from tests.integration.agent.replicas import eventually
from tests.unit.agent.shippers import Scene, kept_in, over_well


def test_a_sparse_file_is_sent_and_one_that_would_take_hours_is_kept_and_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_SPARSE_LIMIT", 1024 * 1024)
    tracked = over_well(scene, {"sparse": b"", "map": b""})
    os.truncate(tracked.root / "output" / "sparse", 1024 * 1024)
    os.truncate(tracked.root / "output" / "map", 1024**4)
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert (scene.server.sent, scene.server.listed) == (["sparse"], ["output/sparse"])
    assert kept_in(scene) == ["a/output/map"]
    assert tracked.exit is not None
    assert tracked.exit["said"]["code"] == "unsent_kept"
    english, chinese = (tracked.root / "stdout.log").read_text().splitlines()
    assert "output/map (it has 1099511627776 bytes" in english
    assert "output/map（该文件大小为 1099511627776 字节" in chinese


class Unreadable:
    """The error with which the output `bad` is opened, while there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = OSError(errno.ESTALE, "Stale file handle")
        self._real = scan.open_inside
        monkeypatch.setattr(scan, "open_inside", self._open_inside)

    def _open_inside(self, found: scan.Found, root: Path) -> Any:
        if found.path == "bad" and self.error is not None:
            raise self.error
        return self._real(found, root)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Unreadable:
    return Unreadable(monkeypatch)


def is_over_after(scene: Scene, tracked: Tracked, seconds: float) -> bool:
    """Whether all is sent or given up when it could not be read for so long."""
    outputs = scene.shippers._outputs.get(tracked.id)
    if outputs is not None:
        outputs.progress_at = time.monotonic() - seconds
    return scene.shippers._ship(tracked, scene.line) is None


def test_a_file_that_cannot_be_read_is_tried_again_and_again(
    scene: Scene, unreadable: Unreadable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_TURN", -1.0)
    tracked = over_well(scene, {"bad": b"1", "good": b"2"})
    for _ in range(20):
        assert scene.shippers._ship(tracked, scene.line) is not None
    assert scene.server.sent == ["good"]
    assert tracked.held is not None
    assert tracked.held["params"] == {"path": "output/bad", "reason": "Stale file handle"}
    unreadable.error = None
    assert None in [scene.shippers._ship(tracked, scene.line) for _ in range(6)]
    assert sorted(scene.server.listed) == ["output/bad", "output/good"]
    assert tracked.exit is not None
    assert "said" not in tracked.exit


def test_and_after_two_minutes_it_is_kept_and_told(scene: Scene, unreadable: Unreadable) -> None:
    assert unreadable.error is not None
    tracked = over_well(scene, {"bad": b"1", "good": b"2"})
    tracked.store_timeout = 3600.0
    assert not is_over_after(scene, tracked, 0.0)
    assert not is_over_after(scene, tracked, 110.0)
    assert is_over_after(scene, tracked, 121.0)
    assert scene.server.listed == ["output/good"]
    assert tracked.exit is not None
    assert tracked.exit["said"]["code"] == "unsent_kept"
    assert kept_in(scene) == ["a/output/bad"]
    assert "Stale file handle" in (tracked.root / "stdout.log").read_text()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_agent_itself_lacks_is_waited_for_as_a_store_is(
    scene: Scene, unreadable: Unreadable, number: int
) -> None:
    unreadable.error = OSError(number, os.strerror(number))
    tracked = over_well(scene, {"bad": b"1", "good": b"2"})
    tracked.store_timeout = 3600.0
    assert not is_over_after(scene, tracked, 0.0)
    assert not is_over_after(scene, tracked, 3500.0)
    assert is_over_after(scene, tracked, 3601.0)
    assert kept_in(scene) == ["a/output/bad"]


def test_who_kills_a_job_does_not_wait_for_a_file_that_cannot_be_read(
    scene: Scene, unreadable: Unreadable
) -> None:
    assert unreadable.error is not None
    tracked = over_well(scene, {"bad": b"1"})
    tracked.store_timeout = 40.0
    assert not is_over_after(scene, tracked, 0.0)
    assert is_over_after(scene, tracked, 41.0)


def test_who_kills_a_job_waits_for_its_grace_and_for_no_pause(
    scene: Scene, unreadable: Unreadable
) -> None:
    """Not for the one that grew while the job ran, nor for that between the last two tries."""
    scene.server.refused["model"] = StorageFull("store_full", path="model")
    tracked = scene.replica("a", {"model": b"1"}, over=False)
    tracked.store_timeout, scene.context.link._up = 3600.0, True
    scene.shippers._ship(tracked, scene.line)
    while scene.shippers._outputs["a"].backoff.next() < 30.0:
        pass
    tracked.store_timeout = 20.0
    tracked.end(exit_record("stopped", now=1.0))
    pauses = [scene.shippers._ship(tracked, scene.line) or 0.0 for _ in range(12)]
    assert pauses[0] < 1.0
    assert 14.0 < pauses[-1] <= 20.0
    scene.server.refused.clear()
    (tracked.root / "output" / "bad").write_bytes(b"2")
    pauses = [scene.shippers._ship(tracked, scene.line) or 0.0 for _ in range(2)]
    assert unreadable.error is not None
    assert all(14.0 < pause <= 20.0 for pause in pauses)


def test_nor_for_a_server_that_makes_mistakes(scene: Scene) -> None:
    scene.server.bad = {"one": 1000}
    tracked = scene.replica("a", {"one": b"1"}, over=True)
    tracked.store_timeout, scene.context.link._up = 40.0, True
    assert scene.shippers._ship(tracked, scene.line) is not None
    scene.shippers._outputs["a"].progress_at -= 41
    assert scene.shippers._ship(tracked, scene.line) is None
    assert kept_in(scene) == ["a/output/one"]


@pytest.mark.parametrize("own_bucket", [True, False])
def test_a_file_that_may_not_be_read_fails_no_job_and_nobody_else_is_blamed(
    scene: Scene, unreadable: Unreadable, own_bucket: bool
) -> None:
    unreadable.error = PermissionError(errno.EACCES, "Permission denied")
    tracked = over_well(scene, {"bad": b"1", "good": b"2"})
    tracked.own_bucket = own_bucket
    assert scene.shippers._ship(tracked, scene.line) is None
    assert tracked.exit is not None
    assert (tracked.exit["cause"], tracked.exit["said"]["code"]) == ("exit", "unsent_kept")
    english, chinese = (tracked.root / "stdout.log").read_text().splitlines()
    assert english.startswith("[paddlecloud] these outputs were not sent: output/bad (c")
    assert chinese.startswith("[paddlecloud] 以下输出未发送：output/bad")


def test_the_end_blames_a_bucket_for_what_it_refused_alone(
    scene: Scene, unreadable: Unreadable
) -> None:
    unreadable.error = PermissionError(errno.EACCES, "Permission denied")
    scene.server.refused["model"] = denied("no such key")
    tracked = over_well(scene, {"bad": b"1", "model": b"2"})
    tracked.own_bucket = True
    assert scene.shippers._ship(tracked, scene.line) is None
    assert tracked.exit is not None
    assert tracked.exit["cause"] == "outputs_lost"
    assert tracked.exit["said"]["params"]["files"] == "output/model"
    assert tracked.exit["message"].startswith("output/model (the store b rejects these keys")
    log = (tracked.root / "stdout.log").read_text().splitlines()
    assert "these outputs were not sent: output/bad" in log[0]
    assert "these outputs are not in the bucket: output/model" in log[2]


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("path_unsafe", path="a\\b"),
        Forbidden("path_deep", path="d", depth=201, limit=200),
        Forbidden("store_path_long", path="long", limit=1024),
    ],
)
def test_nor_for_a_name_that_no_bucket_was_asked_to_take(
    scene: Scene, error: PaddleCloudError
) -> None:
    scene.server.refused["model"] = error
    tracked = over_well(scene, {"model": b"1", "good": b"2"})
    tracked.own_bucket = True
    assert scene.shippers._ship(tracked, scene.line) is None
    assert tracked.exit is not None
    assert (tracked.exit["cause"], tracked.exit["said"]["code"]) == ("exit", "unsent_kept")
    english, _ = (tracked.root / "stdout.log").read_text().splitlines()
    assert english.startswith("[paddlecloud] these outputs were not sent: output/model (")


def test_each_reason_is_told_beside_its_own_files(scene: Scene) -> None:
    scene.server.refused = {
        "one": denied("no such key"),
        "two": Forbidden("store_failed", place="b", detail="broken"),
        "three": denied("no such key"),
    }
    tracked = over_well(scene, {name: b"x" for name in ("one", "two", "three", "four")})
    tracked.own_bucket = True
    assert scene.shippers._ship(tracked, scene.line) is None
    assert tracked.exit is not None
    said = tracked.exit["said"]
    for lang, apart in (("en", "("), ("zh", "（")):
        text = render(said["code"], said["params"], lang)
        assert text.startswith(f"output/two{apart}") or text.startswith(f"output/two {apart}")
        before, _, after = text.partition("output/one, output/three")
        assert ("broken" in before, "no such key" in before) == (True, False)
        assert ("broken" in after, "no such key" in after) == (False, True)
    assert tracked.exit["message"] == render(said["code"], said["params"], "en")


def denied(detail: str) -> PaddleCloudError:
    return Forbidden("store_denied", place="b", detail=detail)


def test_a_directory_that_cannot_be_listed_is_told_and_so_is_what_was_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(fd: Any) -> Any:
        if isinstance(fd, int) and Path(f"/proc/self/fd/{fd}").readlink().name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    scene.server.refused["one"] = Forbidden("path_unsafe", path="one")
    tracked = over_well(scene, {"one": b"1", "two": b"2"})
    (tracked.root / "output" / "shut").mkdir()
    (tracked.root / "output" / "shut" / "model").write_bytes(b"3")
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    assert kept_in(scene) == ["a/output/one"]
    assert tracked.exit is not None
    said = tracked.exit["said"]
    assert (said["code"], said["params"]["files"]) == ("unsent_given_up", "output/shut")
    log = (tracked.root / "stdout.log").read_text().splitlines()
    assert len(log) == 4
    assert "output/shut (cannot read it" in log[0]
    assert "output/one (it is not a safe relative path" in log[2]


def test_what_is_passed_over_is_told_though_the_store_is_given_up(scene: Scene) -> None:
    scene.server.refused["model"] = StorageFull("store_full", path="model")
    tracked = over_well(scene, {"model": b"1", os.fsdecode(b"\xff"): b"2"})
    tracked.store_timeout, scene.context.link._up = -1.0, True
    top = tracked.root / "output"
    (top / "latest").symlink_to("/elsewhere")
    os.mkfifo(top / "pipe")
    (top / "/".join(["d"] * MAX_DEPTH)).mkdir(parents=True)
    assert scene.shippers._ship(tracked, scene.line) is None
    log = (tracked.root / "stdout.log").read_text().splitlines()[::2]
    assert len(log) == 5
    assert ": output/latest; copy the files" in log[0]
    assert "output/pipe" in log[1]
    assert "output/%FF" in log[2]
    assert "output/d/d/d/" in log[3]
    assert "is 201 directories deep" in log[3]
    assert "the server could not store these outputs: output/model" in log[4]
    assert tracked.exit is not None
    assert tracked.exit["cause"] == "outputs_lost"


def test_nor_does_a_directory_that_may_be_listed_later_hold_up_that_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def scandir(fd: Any) -> Any:
        if isinstance(fd, int) and Path(f"/proc/self/fd/{fd}").readlink().name == "shut":
            raise OSError(errno.EIO, "Input/output error")
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    scene.server.refused["model"] = StorageFull("store_full", path="model")
    tracked = over_well(scene, {"model": b"1"})
    tracked.store_timeout, scene.context.link._up = -1.0, True
    (tracked.root / "output" / "shut").mkdir()
    assert scene.shippers._ship(tracked, scene.line) is None
    assert "output/shut (cannot read it" in (tracked.root / "stdout.log").read_text()


def test_it_is_told_and_kept_under_the_name_that_its_owner_knows(scene: Scene) -> None:
    scene.server.refused["one"] = Forbidden("path_unsafe", path="one")
    scene.server.refused["two"] = Forbidden("path_unsafe", path="two")
    name = replica_id("job-1", 1, "trainer-3")
    tracked = scene.replica(name, {"one": b"1"}, over=True)
    (tracked.root / "log").mkdir()
    (tracked.root / "log" / "two").write_bytes(b"2")
    for area in ("output", "log"):
        (tracked.root / area / "out").symlink_to("/elsewhere")
    assert scene.shippers._ship(tracked, scene.line) is None
    log = (tracked.root / "stdout.log").read_text().splitlines()
    assert ": rank-3/out, log/rank-3/out; copy the files" in log[0]
    assert ": rank-3/one, log/rank-3/two (the first of them is not a safe" in log[2]
    assert "：rank-3/one, log/rank-3/two（其中第一个文件不是安全的" in log[3]
    assert kept_in(scene) == [f"{name}/log/rank-3/two", f"{name}/rank-3/one"]


def test_what_is_kept_is_the_file_and_not_a_link_to_it(scene: Scene) -> None:
    for name in ("best", "%FF"):
        scene.server.refused[quote(name)] = Forbidden("path_unsafe", path=name)
    tracked = over_well(scene, {"model": b"weights", os.fsdecode(b"\xff"): b"bytes"})
    (tracked.root / "output" / "best").symlink_to("model")
    scene.shippers.finish(tracked)
    scene.begin()
    eventually(lambda: tracked.shipped)
    top = scene.context.directory / unsent.DIRECTORY / "a" / "output"
    assert {path.name: path.read_bytes() for path in top.iterdir()} == {
        "best": b"weights",
        "%FF": b"bytes",
    }
