"""Uploads with the real client: parts, what breaks in the middle, what is damaged on the way."""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client import rerun, submit
from paddlecloud.client.scan.walk import scan
from paddlecloud.client.upload import _multipart, blobs
from paddlecloud.model.errors import (
    Conflict,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    StorageFull,
    Unreachable,
)
from paddlecloud.model.files.etag import at_once
from paddlecloud.model.protocol.bce_auth import CONTENT_CRC32
from paddlecloud.server.http import socket_body
from paddlecloud.server.http.app import App
from paddlecloud.server.schemas.transfer import PartsRequest
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.transfer import blobs as blob_uploads
from paddlecloud.stores.directory.safe_open import SCRATCH
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.memory import MemoryStore
from paddlecloud.stores.s3.store import create
from paddlecloud.transfer.presigned import PresignedConnections
from paddlecloud.transfer.resume import Progress
from tests.contract.disk import small_disk
from tests.faulty_proxy import FaultyProxy, faulty_proxy
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_user_bucket_timeouts import Calls
from tests.integration.server.world import World, a_directory

MIB = 1024 * 1024
GIB = 1024 * MIB
BIG = 20 * MIB
PART = 256 * 1024
"""Of a small file."""
NAMED = ("NAME", "EMAIL")


def leftovers(world: World) -> list[str]:
    """Whatever an unfinished upload leaves in the store."""
    root = world.deps.settings.store_dir
    records = (root / "users" / "someone" / "uploads").glob("*")
    return [*(str(p) for p in records), *(str(p) for p in (root / SCRATCH).glob("*"))]


def test_a_big_file_comes_in_parts_and_leaves_nothing_else(world: World, tmp_path: Path) -> None:
    data = os.urandom(BIG + 12345)
    found = a_directory(tmp_path / "job", model=data, small=b"1")
    heard: list[tuple[int, int]] = []
    blobs.upload(world.transport(), found, lambda *now: heard.append(now))
    assert world.blob(data).read_bytes() == data
    assert leftovers(world) == []
    total = len(data) + 1
    assert (sum(count for count, _ in heard), {whole for _, whole in heard}) == (total, {total})
    answer = world.user.post("/api/v1/snapshots", {"entries": found.entries})
    assert answer == {"id": found.id, "missing": []}


def test_a_hole_stays_a_hole(world: World, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    with (tmp_path / "job" / "sparse").open("wb") as file:
        file.truncate(BIG)
        file.seek(12 * MIB)
        file.write(b"x")
    blobs.upload(world.transport(), scan(str(tmp_path / "job"), now=4e9))
    stored = world.blob(bytes(12 * MIB) + b"x" + bytes(8 * MIB - 1)).stat()
    assert stored.st_size == BIG
    assert stored.st_blocks * 512 < 10 * MIB


def test_connections_are_used_again(world: World, tmp_path: Path) -> None:
    found = a_directory(tmp_path / "job", model=os.urandom(BIG))
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        blobs.upload(world.transport(way.url), found)
        assert way.connections <= _multipart.AT_ONCE + 1


class Cutting:
    """Counts what goes to the server, and cuts the line when enough has gone."""

    def __init__(self, way: FaultyProxy, after: int) -> None:
        self.sent = 0
        self._left = after
        self._lock = threading.Lock()
        way.there = self.pass_on

    def pass_on(self, data: bytes) -> bytes | None:
        with self._lock:
            self.sent += len(data)
            self._left -= len(data)
            return data if self._left > 0 else None


@pytest.mark.parametrize(
    ("restarted", "size"), [(True, BIG), pytest.param(False, 5 * BIG, marks=pytest.mark.slow)]
)
def test_a_broken_upload_goes_on(
    make_world: MakeWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarted: bool,
    size: int,
) -> None:
    """The line is cut for good; another client, or another server too, goes on."""
    monkeypatch.setattr("paddlecloud.net.retry.TRANSPORT.first_pause", 0.001)
    monkeypatch.setattr("paddlecloud.net.retry.RESUME.first_pause", 0.0)
    world = make_world()
    data = os.urandom(size)
    found = a_directory(tmp_path / "job", model=data)
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        first = Cutting(way, size // 2)
        with pytest.raises(Unreachable):
            blobs.upload(world.transport(way.url), found)
    assert not world.blob(data).exists()
    if restarted:
        world.close()
        world = make_world()
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        second = Cutting(way, 10**9)
        blobs.upload(world.transport(way.url), found)
    assert world.blob(data).read_bytes() == data
    # What goes on the line after the cut is not the client's loss but this test's.
    assert size // 2 + second.sent < 1.05 * size + 300_000
    assert first.sent > size // 3
    assert leftovers(world) == []


def test_a_submit_over_a_line_that_is_cut_goes_on_when_it_is_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.net.retry.TRANSPORT.first_pause", 0.001)
    monkeypatch.setattr("paddlecloud.net.retry.RESUME.first_pause", 0.0)
    data = os.urandom(BIG)
    a_directory(tmp_path / "job", model=data)
    person: Any = Person(world, tmp_path / "home")
    told: list[str] = []
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        Cutting(way, 5 * MIB)
        person.transport = world.transport(way.url)

        def note(code: str, **_: object) -> None:
            told.append(code)
            if code == "upload_again":
                way.there = lambda data: data

        parameters = {"files": str(tmp_path / "job"), "start_cmd": "true"}
        submit.submit(person, parameters, None, note)
    assert told == ["files_found", "upload_again"]
    assert world.blob(data).read_bytes() == data


def damage_once(way: FaultyProxy, mark: bytes) -> list[int]:
    """Change one byte of the first piece that has `mark` in it; how often it was seen."""
    seen: list[int] = []

    def pass_on(data: bytes) -> bytes:
        at = data.find(mark)
        if at >= 0:
            seen.append(at)
        return data if at < 0 or len(seen) > 1 else data[:at] + b"!" + data[at + 1 :]

    way.there = pass_on
    return seen


@pytest.mark.parametrize("size", [1000, BIG])
def test_damaged_bytes_are_refused_and_sent_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("paddlecloud.net.retry.TRANSPORT.first_pause", 0.001)
    monkeypatch.setattr("paddlecloud.net.retry.RESUME.first_pause", 0.0)
    data = b"\1" * (size // 2) + b"the mark of this test" + b"\2" * (size // 2)
    found = a_directory(tmp_path / "job", model=data)
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        seen = damage_once(way, b"the mark of this test")
        blobs.upload(world.transport(way.url), found)
    assert len(seen) == 2
    assert world.blob(data).read_bytes() == data


def test_a_damaged_list_of_files_is_sent_again(world: World, tmp_path: Path) -> None:
    data = os.urandom(100)
    found = a_directory(tmp_path / "job", model=data)
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        seen = damage_once(way, b'{"entries":')
        blobs.upload(world.transport(way.url), found)
    assert len(seen) > 1
    assert world.blob(data).read_bytes() == data


def begun(world: World, data: bytes) -> tuple[str, dict[str, Any]]:
    digest = hashlib.sha256(data).hexdigest()
    answer = world.user.post("/api/v1/uploads", {"sha256": digest, "size": len(data)})
    return digest, answer


def put(world: World, digest: str, number: int, data: bytes) -> None:
    world.transport().put(f"/uploads/{digest}/{number}", memoryview(data), f"{crc32(data):08x}")


def test_what_is_not_its_digest_gets_no_name(world: World) -> None:
    good, bad = b"g" * (2 * PART), b"b" * (2 * PART)
    digest, state = begun(world, good)
    assert (state["stored"], state["part_size"], state["parts"]) == (False, PART, [])
    for number in (2, 1):
        put(world, digest, number, bad[:PART])
    reply = world.user.call("POST", f"/api/v1/uploads/{digest}/finish", body=b"{}")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, "blob_digest")
    assert not world.blob(good).exists()
    assert leftovers(world) == []
    digest, state = begun(world, good)
    assert state["parts"] == []
    put(world, digest, 2, good[:PART])
    put(world, digest, 1, bad[:PART])
    put(world, digest, 1, good[:PART])
    assert world.user.post(f"/api/v1/uploads/{digest}/finish", {}) == {"stored": True}
    assert world.user.post(f"/api/v1/uploads/{digest}/finish", {}) == {"stored": True}
    assert begun(world, good)[1]["stored"] is True


def test_no_submit_waits_for_the_check_of_large_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, done = threading.Semaphore(0), threading.Event()

    def lasts(*_: object) -> bool:
        begun.release()
        return done.wait(60)

    monkeypatch.setattr(blob_uploads, "finish", lasts)
    finish = f"/api/v1/uploads/{'0' * 64}/finish"
    calls = Calls()
    try:
        for _ in range(8):
            calls.start(lambda: world.user.call("POST", finish, body={}))
        assert all(begun.acquire(timeout=20) for _ in range(4))
        assert world.user.post("/api/v1/snapshots", {"entries": []})["missing"] == []
        assert calls.replies == []
    finally:
        done.set()
        calls.end()
    assert [reply.json() for reply in calls.replies] == [{"stored": True}] * 8


def test_parts_that_are_none(world: World) -> None:
    data = os.urandom(3 * PART + 5)
    digest, _ = begun(world, data)

    def code(number: object, body: bytes, sha256: str = digest) -> str:
        with pytest.raises(PaddleCloudError) as caught:
            world.transport().put(
                f"/uploads/{sha256}/{number}", memoryview(body), f"{crc32(body):08x}"
            )
        return caught.value.code

    assert [code(n, b"x" * PART) for n in (0, 5, "x", "-1", 99999999999)] == ["upload_part"] * 5
    assert [code(1, b"x" * size) for size in (1, PART - 1, PART + 1)] == ["upload_part"] * 3
    assert code(4, b"x" * PART) == "upload_part"
    assert code(1, b"x" * PART, "0" * 64) == "upload_missing"
    with pytest.raises(Invalid) as caught:
        world.transport().put(f"/uploads/{digest}/1", memoryview(data[:PART]), "nonsense")
    assert (caught.value.code, caught.value.params["header"]) == ("upload_checksum", CONTENT_CRC32)
    put(world, digest, 4, data[3 * PART :])
    reply = world.user.call("POST", f"/api/v1/uploads/{digest}/finish", body=b"{}")
    assert json.loads(reply.body)["error"]["code"] == "upload_incomplete"


def trickle(sock: socket.socket) -> bytes | None:
    """What a sender of a byte now and then is answered before it is cut; None: it never is."""
    answer = b""
    with suppress(ConnectionError):
        for _ in range(600):
            sock.sendall(b"t")
            while select.select([sock], [], [], 0.05)[0]:
                piece = sock.recv(65536)
                answer += piece
                if not piece:
                    return answer
        return None
    return answer


def test_a_trickle_is_no_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that never falls silent, and is never done either, gives its thread back."""
    monkeypatch.setattr(socket_body, "SILENCE", 1.0)
    data = b"t" * (2 * PART)
    digest, _ = begun(world, data)
    path, user = f"/api/v1/uploads/{digest}/1", world.user
    headers = user.headers("PUT", path, "", data[:PART])
    lines = [f"PUT {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, f"content-length: {PART}", "", ""]).encode()
    with socket.create_connection((user.host, user.port), 10) as sock:
        sock.sendall(head)
        answer = trickle(sock)
    assert answer is not None
    assert answer == b"" or b'"body_cut"' in answer
    put(world, digest, 1, data[:PART])


def test_an_upload_is_its_owners_alone(world: World) -> None:
    data = os.urandom(2 * PART)
    digest, _ = begun(world, data)
    put(world, digest, 1, data[:PART])
    other = world.caller("somebody-else")
    world.user = other
    with pytest.raises(NotFound):
        put(world, digest, 2, data[PART:])
    assert other.call("POST", f"/api/v1/uploads/{digest}/finish", body=b"{}").status == 404
    assert begun(world, data)[1]["parts"] == []


def test_a_full_disk_is_told_and_the_upload_goes_on_later(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    data = os.urandom(BIG)
    found = a_directory(tmp_path / "job", model=data)
    with small_disk(tmp_path / "disk", size="24m") as disk:
        world = make_world()
        world.deps = replace(world.deps, store=DirectoryStore(disk / "store"))
        world.app = App(world.deps)
        world.enter()
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * (12 * MIB))
        with pytest.raises(StorageFull):
            blobs.upload(world.transport(), found)
        ballast.unlink()
        blobs.upload(world.transport(), found)
        kept = list(world.deps.store.list("users/someone/blobs/"))
        assert [(stat.path[-64:], stat.size) for stat in kept] == [
            (hashlib.sha256(data).hexdigest(), BIG)
        ]


def test_a_file_that_changes_meanwhile_is_named(world: World, tmp_path: Path) -> None:
    found = a_directory(tmp_path / "job", model=os.urandom(BIG))

    def change(_count: int, _total: int) -> None:
        with (tmp_path / "job" / "model").open("r+b") as file:
            file.write(b"changed")

    with pytest.raises(Conflict) as caught:
        blobs.upload(world.transport(), found, change)
    assert caught.value.code == "files_changed"
    assert world.user.post("/api/v1/snapshots", {"entries": found.entries})["missing"]


class Person:
    """As much of a client as a submit needs."""

    def __init__(self, world: World, home: Path) -> None:
        self.transport = world.transport()
        self.environ = {"PATH": os.environ["PATH"]}
        self.config = SimpleNamespace(embedded=False, home=str(home))


def test_a_directory_that_changes_is_read_again_and_said(world: World, tmp_path: Path) -> None:
    """A change before the upload is over means another look; one after it, a word."""
    a_directory(tmp_path / "job", model=os.urandom(BIG), other=b"1")
    changes = {"model": b"!" * 7, "other": b"22"}
    told: list[str] = []

    def change(_count: int, total: int) -> None:
        # Called by every thread that sends: the second change belongs to the second look.
        name = "other" if "files_read_again" in told else "model"
        data = changes.pop(name, None)
        if data is not None:
            with (tmp_path / "job" / name).open("r+b") as file:
                file.write(data)

    person: Any = Person(world, tmp_path / "home")
    parameters = {"files": str(tmp_path / "job"), "start_cmd": "true"}
    answer = submit.submit(person, parameters, change, lambda code, **_: told.append(code))
    assert [code for code in told if code != "files_found"] == [
        "files_read_again",
        "files_changed_since",
    ]
    job = world.job(answer["job"]["job_id"])
    rows = world.user.get(f"/api/v1/jobs/{job.id}/files", prefix="/")["files"]
    assert {row["path"]: row["size"] for row in rows}["other"] == 1
    assert (tmp_path / "job" / "other").read_bytes() == b"22"


def test_the_repository_is_told_with_the_job(world: World, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    a_directory(root, train=b"one\n", secret=b"hunter2\n")
    (root / ".paddlecloudignore").write_text("secret\n")
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in NAMED}
    person: Any = Person(world, tmp_path / "home")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True, env={**person.environ, **names})
    (root / "train").write_bytes(b"two\n")
    (root / "secret").write_bytes(b"hunter3\n")
    answer = submit.submit(person, {"files": str(root), "start_cmd": "true"})
    git = world.look(answer["job"]["job_id"])["git"]
    assert (len(git["commit"]), git["dirty"]) == (40, "1")
    assert "-one\n+two\n" in git["diff"]
    assert "hunter" not in git["diff"]
    assert git["left_out"] == "secret"
    assert "diff" not in world.look(answer["job"]["job_id"], wait=1)["git"]
    again = rerun.rerun(person, answer["job"]["job_id"], {"start_cmd": "false"})
    assert world.look(again["job"]["job_id"])["git"] == git
    assert world.look(world.submit())["git"] is None


def test_two_who_send_the_same_do_no_harm(world: World, tmp_path: Path) -> None:
    data = os.urandom(BIG)
    found = a_directory(tmp_path / "job", model=data)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            blobs.upload(world.transport(), found)
        except PaddleCloudError as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert world.blob(data).read_bytes() == data
    assert leftovers(world) == []


def test_what_was_abandoned_goes_after_a_day(world: World) -> None:
    data = os.urandom(2 * PART)
    digest, _ = begun(world, data)
    put(world, digest, 1, data[:PART])
    world.clock.move(hours=20)
    garbage_collection.collect(world.deps)
    assert begun(world, data)[1]["parts"] == [1]
    old = (world.clock.now - timedelta(days=2)).timestamp()
    for left in leftovers(world):
        os.utime(left, (old, old))
    garbage_collection.collect(world.deps)
    assert leftovers(world) == []
    assert begun(world, data)[1]["parts"] == []


def test_an_upload_whose_parts_still_come_is_not_abandoned(world: World) -> None:
    data = os.urandom(2 * PART)
    digest, _ = begun(world, data)
    put(world, digest, 1, data[:PART])
    old = (world.clock.now - timedelta(hours=23)).timestamp()
    for left in leftovers(world):
        os.utime(left, (old, old))
    world.clock.move(hours=2)
    upload = blob_uploads.BlobUpload(world.deps, "someone", digest)
    upload.put_part(upload.open(), 2, data[PART:])
    garbage_collection.collect(world.deps)
    assert blob_uploads.finish(world.deps, "someone", digest)
    assert world.blob(data).read_bytes() == data


def test_files_of_a_job_that_waits_or_runs_are_never_collected(make_world: MakeWorld) -> None:
    soon = timedelta(seconds=1)
    world = make_world(
        change=lambda s: replace(
            s, retention=replace(s.retention, unused_files=soon, finished_jobs=soon)
        )
    )
    job_id = world.submit()
    world.snapshot({"other": b"nobody's"})
    for wanted in (True, False):
        world.clock.move(hours=3)
        for path in world.deps.settings.store_dir.rglob("blobs/*/*"):
            os.utime(path, (1, 1))
        garbage_collection.collect(world.deps)
        assert world.blob(b"echo hi\n").exists()
        assert not world.blob(b"nobody's").exists()
        if wanted:
            world.plan()
            order = world.agent.order(job_id)
            world.agent.start(order)


@pytest.mark.parametrize(
    ("size", "local", "want"),
    [
        (16 * MIB, True, MIB // 4),
        (200 * MIB, True, 3 * MIB + MIB // 8),
        (1024 * MIB, True, 8 * MIB),
        (16 * MIB, False, 5 * MIB),
        (1024 * MIB, False, 8 * MIB),
        (600 * GIB, False, 62 * MIB),
        (1024 * GIB, True, 64 * MIB),
        (blob_uploads.LARGEST_FILE, True, 64 * MIB),
    ],
)
def test_the_size_of_parts(size: int, local: bool, want: int) -> None:
    found = blob_uploads.part_size_of(size, local=local)
    assert found == want
    assert local or -(-size // found) <= blob_uploads.MOST_PARTS


@pytest.mark.parametrize(("local", "least"), [(True, 16 * MIB), (False, 100 * MIB)])
@given(data=st.data())
def test_what_is_under_way_is_little_of_a_file(
    data: st.DataObject, local: bool, least: int
) -> None:
    size = data.draw(st.integers(least, 100 * GIB))
    each = blob_uploads.part_size_of(size, local=local)
    assert at_once(size, each) * each <= size / 20


def test_a_file_that_no_parts_can_hold_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.deps.store, "free_bytes", lambda: 2**60)
    request = PartsRequest(sha256="0" * 64, size=blob_uploads.LARGEST_FILE)
    assert blob_uploads.begin(world.deps, "someone", request).part_size == blob_uploads.LARGEST_PART
    further = PartsRequest(sha256="1" * 64, size=blob_uploads.LARGEST_FILE + 1)
    with pytest.raises(Refused, match="accepts files up to 16 TiB"):
        blob_uploads.begin(world.deps, "someone", further)
    far = replace(world.deps, store=MemoryStore())
    fits = PartsRequest(sha256="2" * 64, size=625 * GIB)
    assert blob_uploads.begin(far, "someone", fits).part_size == blob_uploads.LARGEST_PART
    with pytest.raises(Refused, match="accepts files up to 625 GiB"):
        blob_uploads.begin(far, "someone", PartsRequest(sha256="3" * 64, size=625 * GIB + 1))


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False])
def test_to_an_object_store(
    make_world: MakeWorld, tmp_path: Path, s3_settings: dict[str, str], direct: bool
) -> None:
    """Bytes go past the server where they can, and it checks them before it believes them."""
    world = make_world()
    behind = create(s3_settings)
    world.deps = replace(world.deps, store=LayeredStore(DirectoryStore(tmp_path / "s"), behind))
    world.app = App(world.deps)
    world.enter()
    data = os.urandom(BIG + 1)
    found = a_directory(tmp_path / "job", model=data)
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        line = Cutting(way, 10**9)
        transport = world.transport(way.url)
        if not direct:
            sha256 = hashlib.sha256(data).hexdigest()
            source = found.sources[sha256]
            connections = PresignedConnections(transport.pool)
            connections.mark_away("http://the.store/")
            _multipart.send(transport, sha256, source, BIG, Progress(), connections)
        blobs.upload(transport, found)
    assert (line.sent < MIB) is direct
    assert (
        b"".join(
            world.deps.store.read(
                f"users/someone/blobs/{found.entries[0][3][:2]}/{found.entries[0][3]}"
            )
        )
        == data
    )
    assert list(world.deps.store.list("users/someone/uploads/")) == []
    behind.close()


def test_small_files_that_do_not_fit_together_are_refused_before_one_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.deps.store, "free_bytes", lambda: 1000)
    world.snapshot({"a": b"a" * 600})
    with pytest.raises(StorageFull, match=r"2 files of 1\.2 KiB in total do not fit") as caught:
        world.snapshot({"b": b"b" * 600, "c": b"c" * 600})
    assert caught.value.code == "store_room_files"
    assert not world.blob(b"b" * 600).exists()
