"""Outputs that change without a trace: the server must have the last word of each all the same."""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.outputs import _replica_outputs, _send, scan
from paddlecloud.agent.outputs.sent_files import SHIPPED, SentFiles
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.model.errors import StorageFull
from tests.unit.agent.shippers import Scene

SIZE = 200_000
MEMORY = Path("/dev/shm")


@pytest.fixture(params=["disk", "memory"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Its files on a disk, and in memory, where the time of a file says least."""
    if request.param == "memory" and not MEMORY.is_dir():
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir=MEMORY if request.param == "memory" else tmp_path) as at:
        made = Scene(Path(at))
        yield made
        made.close()


class Mapping:
    """A file of a fixed size, mapped by the job and written to by nothing else."""

    def __init__(self, path: Path, *, size: int = SIZE) -> None:
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)

    def read(self) -> bytes:
        return self._mapped[:]

    def write(self, letter: bytes) -> None:
        self._mapped[:] = letter * len(self._mapped)

    def close(self) -> None:
        self._mapped.close()


def ship_running(scene: Scene, tracked: Tracked) -> None:
    """What changes all the time is sent at the second look at it."""
    for _ in range(2):
        scene.shippers._ship(tracked, scene.line)


def ship_rest(scene: Scene, tracked: Tracked) -> None:
    tracked.end(exit_record("exit", now=1.0))
    scene.shippers.finish(tracked)
    assert scene.shippers._ship(tracked, scene.line) is None


def listed(tracked: Tracked) -> dict[str, str]:
    return {name: digest for name, _, _, digest in SentFiles(tracked.root).rows()}


def on_disk(tracked: Tracked) -> dict[str, str]:
    return {
        found.name: hashlib.sha256(found.where.read_bytes()).hexdigest()
        for found in scan.scan(tracked.root)
    }


@pytest.mark.parametrize("size", [100, SIZE])
def test_what_a_mapping_writes_after_it_was_sent_arrives(scene: Scene, size: int) -> None:
    tracked = scene.replica("a", {"other": b"x"}, over=False)
    path = tracked.root / "output" / "emb"
    mapped = Mapping(path, size=size)
    mapped.write(b"1")
    os.utime(path, (1.0, 1.0))
    ship_running(scene, tracked)
    assert "emb" in scene.server.sent
    mapped.write(b"2")
    os.utime(path, (1.0, 1.0))  # as it stays by itself, unless the kernel wrote it back
    mapped.close()
    ship_rest(scene, tracked)
    assert scene.server.sent.count("emb") == 2
    assert listed(tracked) == on_disk(tracked)


def test_and_so_does_what_one_writes_that_was_made_later(scene: Scene) -> None:
    tracked = scene.replica("a", {"emb": b"1" * SIZE}, over=False)
    ship_running(scene, tracked)
    mapped = Mapping(tracked.root / "output" / "emb")
    assert mapped.read() == b"1" * SIZE
    mapped.write(b"2")
    mapped.close()
    ship_rest(scene, tracked)
    assert listed(tracked) == on_disk(tracked)


def test_a_new_agent_knows_which_of_them_it_has_to_read_again(scene: Scene) -> None:
    tracked = scene.replica("a", {}, over=False)
    mapped = Mapping(tracked.root / "output" / "emb")
    mapped.write(b"1")
    ship_running(scene, tracked)
    mapped.write(b"2")
    mapped.close()
    scene.shippers._outputs.clear()
    ship_rest(scene, tracked)
    assert listed(tracked) == on_disk(tracked)


def test_one_that_did_not_change_is_read_and_not_sent_again(scene: Scene) -> None:
    tracked = scene.replica("a", {}, over=False)
    mapped = Mapping(tracked.root / "output" / "emb")
    small = Mapping(tracked.root / "output" / "small", size=100)
    for each in (mapped, small):
        each.write(b"1")
    ship_running(scene, tracked)
    for each in (mapped, small):
        each.close()
    ship_rest(scene, tracked)
    assert sorted(scene.server.sent) == ["emb", "small"]
    assert sorted(scene.server.listed) == ["output/emb", "output/small"]


def test_one_of_which_that_is_not_known_is_kept_if_the_store_is_given_up(scene: Scene) -> None:
    tracked = scene.replica("a", {"a-first": b"x" * SIZE}, over=False)
    mapped = Mapping(tracked.root / "output" / "emb")
    mapped.write(b"1")
    scene.server.refused["a-first"] = StorageFull("store_full", path="a-first")
    ship_running(scene, tracked)
    mapped.write(b"2")
    mapped.close()
    scene.server.refused["emb"] = StorageFull("store_full", path="emb")
    tracked.store_timeout, scene.context.link._up = -1.0, True
    ship_rest(scene, tracked)
    kept = scene.context.directory / "unsent" / "a" / "output"
    assert sorted(path.name for path in kept.iterdir()) == ["a-first", "emb"]


def test_one_that_was_sent_in_the_moment_of_a_change_arrives(scene: Scene) -> None:
    """The clock of a file system has ticks: two changes within one leave the same time."""
    tracked = scene.replica("a", {"status": b"1" * SIZE}, over=False)
    path = tracked.root / "output" / "status"
    moment = time.time() + 3600.0
    os.utime(path, (moment, moment))
    ship_running(scene, tracked)
    assert scene.server.sent == ["status"]
    path.write_bytes(b"2" * SIZE)
    os.utime(path, (moment, moment))
    ship_rest(scene, tracked)
    assert listed(tracked) == on_disk(tracked)


def test_a_large_file_that_is_under_way_at_the_end_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replica_outputs, "_LARGE_WHILE_RUNNING", SIZE)
    tracked = scene.replica("a", {"emb": b"1" * SIZE}, over=False)
    path = tracked.root / "output" / "emb"
    ship_running(scene, tracked)
    scene.shippers._large_file_turn(scene.shippers._large_running, scene.line)
    assert scene.server.sent == ["emb"]
    mapped = Mapping(path)
    mapped.write(b"2")
    mapped.close()
    os.utime(path, (1.0, 1.0))
    ship_rest(scene, tracked)
    assert scene.server.sent.count("emb") == 2
    assert listed(tracked) == on_disk(tracked)


def test_each_file_is_read_once_at_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = scene.replica("a", {"model": b"1" * SIZE, "small": b"1", "no": b"2"}, over=False)
    ship_running(scene, tracked)
    opened: list[str] = []
    real = scan.open_inside

    def open_inside(found: scan.Found, root: Path) -> object:
        opened.append(found.path)
        return real(found, root)

    monkeypatch.setattr(scan, "open_inside", open_inside)
    scene.server.refused["no"] = StorageFull("store_full", path="no")
    (tracked.root / "output" / "no").write_bytes(b"33")
    tracked.end(exit_record("exit", now=1.0))
    for _ in range(3):
        assert scene.shippers._ship(tracked, scene.line) is not None
    assert sorted(opened) == ["model", "no", "no", "no", "small"]


@pytest.mark.parametrize("row", [(), ("digest",), ("digest", True)])
def test_what_earlier_agents_noted_is_understood(tmp_path: Path, row: tuple[object, ...]) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "model").write_bytes(b"1")
    (found,) = scan.scan(tmp_path)
    records.write(tmp_path / SHIPPED, {found.name: (*found.mark, *row)})
    sent = SentFiles(tmp_path)
    assert (sent.has(found), sent.sha256(found)) == (True, "digest" if row else "")


def test_a_digest_of_what_is_there_no_more_is_none(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    path = tmp_path / "output" / "model"
    path.write_bytes(b"12")
    (found,) = scan.scan(tmp_path)
    path.write_bytes(b"1")
    with path.open("rb") as file:
        assert _send.same(found, file, "digest") is None
