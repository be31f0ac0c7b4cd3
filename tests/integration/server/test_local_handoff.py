"""Big files on one machine: handed over to the embedded server, and copied back from its store."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import submit
from paddlecloud.client.download import engine
from paddlecloud.client.scan.walk import ScanProgress, scan
from paddlecloud.client.transport import Transport
from paddlecloud.client.upload import _multipart, blobs, copy_file
from paddlecloud.client.upload.local_handoff import LocalHandoff
from paddlecloud.model.errors import Conflict, Invalid, Refused
from paddlecloud.server.http.app import App
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.stores.directory.safe_open import SCRATCH
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.s3.store import create
from tests.contract.disk import small_disk
from tests.faulty_proxy import faulty_proxy
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_uploads import Person
from tests.integration.server.world import World, a_directory

MIB = 1024 * 1024
BIG = 20 * MIB


@pytest.fixture
def transport(world: World) -> Transport:
    return world.transport()


@pytest.fixture
def no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object) -> None:
        raise AssertionError("a file went through a socket")

    monkeypatch.setattr(_multipart, "send", send)


def scratch(world: World) -> list[Path]:
    return list((world.deps.settings.store_dir / SCRATCH).iterdir())


def begin(world: World, data: bytes, handed: str, size: int | None = None) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    asked = {"sha256": digest, "size": len(data) if size is None else size, "handed": handed}
    answer: dict[str, Any] = world.user.post("/api/v1/uploads", asked)
    return answer


@pytest.mark.parametrize("read_ahead", [True, False], ids=["with the scan", "digest known"])
@pytest.mark.usefixtures("no_parts")
def test_big_files_are_handed_over(
    world: World, transport: Transport, tmp_path: Path, read_ahead: bool
) -> None:
    one, two = os.urandom(BIG), os.urandom(BIG + 12345)
    heard: list[int] = []
    with LocalHandoff(transport, near=True) as handoff:
        ahead = handoff if read_ahead else None
        found = a_directory(tmp_path / "job", ahead, one=one, two=two, same=one, small=b"1")
        assert bool(scratch(world)) is read_ahead
        blobs.upload(transport, found, lambda count, _: heard.append(count), handoff)
    for data in (one, two):
        assert world.blob(data).read_bytes() == data
        assert world.blob(data).stat().st_mode & 0o777 == 0o600
    assert scratch(world) == []
    assert sum(heard) == len(one) + len(two) + 1
    answer = world.user.post("/api/v1/snapshots", {"entries": found.entries})
    assert answer == {"id": found.id, "missing": []}


def test_what_the_server_has_is_copied_for_nothing_and_goes(
    world: World, transport: Transport, tmp_path: Path
) -> None:
    for _ in range(2):
        with LocalHandoff(transport, near=True) as handoff:
            found = a_directory(tmp_path / "job", handoff, model=b"m" * BIG)
            blobs.upload(transport, found, None, handoff)
        assert scratch(world) == []


def test_a_source_that_changed_since_it_was_read_is_named(
    world: World, transport: Transport, tmp_path: Path
) -> None:
    found = a_directory(tmp_path / "job", model=os.urandom(BIG))
    (tmp_path / "job" / "model").write_bytes(os.urandom(BIG))
    with LocalHandoff(transport, near=True) as handoff, pytest.raises(Conflict) as caught:
        blobs.upload(transport, found, None, handoff)
    assert caught.value.code == "files_changed"
    assert world.user.post("/api/v1/snapshots", {"entries": found.entries})["missing"]
    assert scratch(world) == []


def test_a_source_that_changes_while_it_is_copied_is_named(
    world: World, transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalHandoff._take

    def take(handoff: LocalHandoff, *how: Any) -> str:
        sha256 = real(handoff, *how)
        with (tmp_path / "job" / "model").open("r+b") as changed:
            changed.write(b"later")
        return sha256

    monkeypatch.setattr(LocalHandoff, "_take", take)
    with LocalHandoff(transport, near=True) as handoff, pytest.raises(Conflict) as caught:
        a_directory(tmp_path / "job", handoff, model=os.urandom(BIG))
    assert caught.value.code == "files_changed"
    assert scratch(world) == []


def test_a_team_server_gives_no_place(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(change=lambda settings: replace(settings, team=True))
    assert world.user.post("/api/v1/uploads/place", {}) == {"name": "", "path": ""}
    data = os.urandom(BIG)
    name, place = world.deps.store.make_place()  # type: ignore[attr-defined]
    (place / hashlib.sha256(data).hexdigest()).write_bytes(data)
    assert begin(world, data, name)["stored"] is False
    transport = world.transport()
    with LocalHandoff(transport, near=True) as handoff:
        found = a_directory(tmp_path / "job", handoff, model=data)
        blobs.upload(transport, found, None, handoff)
    assert world.blob(data).read_bytes() == data


def test_of_another_s_server_nothing_is_asked(transport: Transport, tmp_path: Path) -> None:
    asked: list[str] = []

    def post(path: str, *_: object, **__: object) -> dict[str, Any]:
        asked.append(path)
        return {}

    transport.post = post  # type: ignore[method-assign]
    with LocalHandoff(transport, near=False) as handoff:
        a_directory(tmp_path / "job", handoff, model=b"m" * BIG)
    assert asked == []


def test_a_place_is_for_its_own_user_alone(world: World) -> None:
    place = Path(world.user.post("/api/v1/uploads/place", {})["path"])
    assert place.stat().st_mode & 0o777 == 0o700
    assert place.stat().st_uid == os.geteuid()
    for above in (world.deps.settings.store_dir, place.parent):
        assert above.stat().st_mode & 0o077 == 0


def test_a_place_that_others_could_enter_is_not_used(
    world: World, transport: Transport, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    answer = {"name": "0" * 24, "path": str(elsewhere)}
    transport.post = lambda *_, **__: answer  # type: ignore[method-assign]
    with LocalHandoff(transport, near=True) as handoff:
        a_directory(tmp_path / "job", handoff, model=b"m" * BIG)
        assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["nothing", "link", "second name", "directory", "longer", "pipe"])
def test_what_is_not_the_file_itself_is_not_taken(world: World, tmp_path: Path, kind: str) -> None:
    data = os.urandom(MIB)
    answer = world.user.post("/api/v1/uploads/place", {})
    there = Path(answer["path"]) / hashlib.sha256(data).hexdigest()
    other = tmp_path / "other"
    other.write_bytes(data)
    make: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "link": lambda: there.symlink_to(other),
        "second name": lambda: there.hardlink_to(other),
        "directory": there.mkdir,
        "longer": lambda: there.write_bytes(data + b"!"),
        "pipe": lambda: os.mkfifo(there),
    }
    make[kind]()
    assert begin(world, data, answer["name"])["stored"] is False
    assert not world.blob(data).exists()


@pytest.mark.parametrize("handed", ["../../users", "0" * 23, "0" * 24 + "\n", "Z" * 24, "." * 24])
def test_a_name_that_the_server_never_gave_is_refused(world: World, handed: str) -> None:
    with pytest.raises(Invalid):
        begin(world, b"data", handed)


def test_a_place_that_is_gone_means_the_usual_way(world: World) -> None:
    data = os.urandom(MIB)
    assert begin(world, data, "0" * 24) == {
        "stored": False, "part_size": MIB // 4, "parts": [], "urls": []
    }  # fmt: skip


def test_parts_that_came_before_are_not_needed_any_more(world: World) -> None:
    data = os.urandom(2 * MIB)
    assert begin(world, data, "")["stored"] is False
    answer = world.user.post("/api/v1/uploads/place", {})
    (Path(answer["path"]) / hashlib.sha256(data).hexdigest()).write_bytes(data)
    assert begin(world, data, answer["name"])["stored"] is True
    assert world.blob(data).read_bytes() == data
    assert [path.name for path in scratch(world)] == [Path(answer["path"]).name]
    assert list((world.deps.settings.store_dir / "users/someone/uploads").iterdir()) == []
    assert begin(world, data, "")["stored"] is True


def test_a_store_without_room_is_left_alone_and_the_server_says_it(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", size="24m") as disk:
        world = make_world()
        world.deps = replace(world.deps, store=DirectoryStore(disk / "store"))
        world.app = App(world.deps)
        world.enter()
        (disk / "ballast").write_bytes(b"x" * (12 * MIB))
        with LocalHandoff(world.transport(), near=True) as handoff:
            found = a_directory(tmp_path / "job", handoff, model=os.urandom(BIG))
            source = next(iter(found.sources.items()))
            assert handoff.give(*source) is False
            assert [path.stat().st_size for path in disk.rglob("part-*")] == []


KILLED = """
import os, sys
from paddlecloud.client.upload import copy_file
def stuck(*args, **kwargs):
    print("copying", flush=True)
    os.read(0, 1)
real, copy_file._hash = copy_file._hash, stuck
from paddlecloud.client.upload.local_handoff import LocalHandoff
from paddlecloud.client.scan.walk import scan
from paddlecloud.client.transport import Transport
from paddlecloud.net.endpoint import Endpoint
endpoint = Endpoint(sys.argv[1], sys.argv[2], sys.argv[3])
scan(sys.argv[4], now=4e9, handoff=LocalHandoff(Transport(lambda *_: endpoint), near=True))
"""


def test_a_client_that_is_killed_leaves_nothing_under_a_name(world: World, tmp_path: Path) -> None:
    data = os.urandom(BIG)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "model").write_bytes(data)
    words = [f"http://127.0.0.1:{world.stage.port}", world.user.ak, world.user.sk]
    client = subprocess.Popen(
        [sys.executable, "-c", KILLED, *words, str(tmp_path / "job")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"copying\n"
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=60)
    (place,) = scratch(world)
    assert [path.name.partition("-")[0] for path in place.iterdir()] == ["part"]
    assert not world.blob(data).exists()
    garbage_collection.collect(world.deps)
    assert scratch(world) == []


def test_a_place_is_swept_when_its_client_is_dead_and_not_before(
    world: World, transport: Transport, tmp_path: Path
) -> None:
    with LocalHandoff(transport, near=True) as handoff:
        a_directory(tmp_path / "job", handoff, model=os.urandom(BIG))
        (place,) = scratch(world)
        world.user.post("/api/v1/uploads/place", {})
        assert place in scratch(world)
        os.close(handoff._directory)  # as the death of its process does
        handoff._directory = -1
        world.user.post("/api/v1/uploads/place", {})
        assert place not in scratch(world)


def listing(world: World, job_id: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    answer = world.user.get(f"/api/v1/jobs/{job_id}/files", prefix="/", direct=1)
    return answer["files"], answer["ways"]


def test_files_come_from_the_store_on_this_machine(
    world: World, transport: Transport, tmp_path: Path
) -> None:
    data = os.urandom(BIG)
    job_id = world.submit(snapshot=world.snapshot({"model": data, "sub/small": b"1"}))
    rows, ways = listing(world, job_id)
    assert ways["model"] == str(world.blob(data))
    assert sorted(ways) == ["model", "sub/small"]
    transport.open = None  # type: ignore[method-assign,assignment]
    into = str(tmp_path / "into")
    done = engine.download(transport, job_id, rows, into, now=0.0, locations=ways)
    assert (done.files, done.bytes) == (2, BIG + 1)
    assert (tmp_path / "into" / "model").read_bytes() == data
    assert (tmp_path / "into" / "sub" / "small").read_bytes() == b"1"


def test_without_being_asked_no_way_is_told(world: World) -> None:
    job_id = world.submit(snapshot=world.snapshot({"model": b"1"}))
    assert "ways" not in world.user.get(f"/api/v1/jobs/{job_id}/files", prefix="/")


def test_a_team_server_tells_no_way_on_its_machine(make_world: MakeWorld) -> None:
    world = make_world(change=lambda settings: replace(settings, team=True))
    job_id = world.submit(snapshot=world.snapshot({"model": b"1"}))
    assert listing(world, job_id)[1] == {}


@pytest.mark.slow
@pytest.mark.parametrize("reachable", [True, False])
def test_files_come_from_the_bucket_past_the_server(
    make_world: MakeWorld, tmp_path: Path, s3_settings: dict[str, str], reachable: bool
) -> None:
    world = make_world()
    behind = create(s3_settings)
    world.deps = replace(world.deps, store=LayeredStore(DirectoryStore(tmp_path / "s"), behind))
    world.app = App(world.deps)
    world.enter()
    data = os.urandom(BIG + 1)
    job_id = world.submit(snapshot=world.snapshot({"model": data, "small": b"1", "none": b""}))
    rows, ways = listing(world, job_id)
    assert sorted(ways) == ["model", "none", "small"]
    if not reachable:
        ways = {name: f"http://127.0.0.1:9/{name}" for name in ways}
    came = [0]
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:

        def count(piece: bytes) -> bytes:
            came[0] += len(piece)
            return piece

        way.back = count
        into = str(tmp_path / "into")
        transport = world.transport(way.url)
        done = engine.download(transport, job_id, rows, into, now=0.0, locations=ways)
    assert done.bytes == len(data) + 1
    assert (tmp_path / "into" / "model").read_bytes() == data
    assert (tmp_path / "into" / "small").read_bytes() == b"1"
    assert (tmp_path / "into" / "none").read_bytes() == b""
    assert (came[0] == 0) is reachable
    behind.close()


@pytest.mark.parametrize("broken", [False, True], ids=["copied", "no room half way"])
def test_bytes_are_counted_while_they_are_copied(
    transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Once, also those that are read again because they could not be copied."""
    scan_progress = ScanProgress()
    seen: list[int] = []
    really = copy_file.copy_and_hash

    def watched(*args: Any, report: Callable[[int], None], **how: Any) -> str:
        def noted(count: int) -> None:
            report(count)
            seen.append(scan_progress.bytes)
            if broken:
                raise OSError(28, "full")

        return really(*args, report=noted, **how)

    monkeypatch.setattr(copy_file, "copy_and_hash", watched)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "model").write_bytes(os.urandom(BIG))
    with LocalHandoff(transport, near=True) as handoff:
        scan(str(tmp_path / "job"), now=4e9, handoff=handoff, scan_progress=scan_progress)
    assert 0 < seen[0] < MIB
    assert scan_progress.bytes == BIG


def test_for_a_job_that_can_never_run_nothing_is_read_or_copied(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr("paddlecloud.client.scan.walk._digest", read)
    (tmp_path / "job").mkdir()
    with (tmp_path / "job" / "model").open("wb") as file:
        file.truncate(3 * 1024 * MIB)
    person: Any = Person(world, tmp_path / "home")
    person.config.embedded = True
    parameters = {"files": str(tmp_path / "job"), "start_cmd": "true", "cpu": 1000}
    with pytest.raises(Refused):
        submit.submit(person, parameters)
    assert scratch(world) == []
    with pytest.raises(AssertionError, match="a file was read"):
        submit.submit(person, {**parameters, "cpu": 1})
    assert world.user.get("/api/v1/jobs")["jobs"] == []
