"""The offline check of stored files: damaged and missing ones are found, named and repaired."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.tables import snapshots
from paddlecloud.model.errors import NotFound, Refused
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.files import verify
from paddlecloud.server.services.files.verify import CHANGED, DAMAGED, MISSING, Check, Finding
from paddlecloud.stores.base import Reader, Store
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.memory import MemoryStore
from tests.integration.server.world import World, a_submit, packed

WORDS = b"to be or not to be\n"
FILES = {"run.sh": b"cat words\n", "words": WORDS, "copy/of/words": WORDS}
WHEN = 1_700_000_000.0
LARGE = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(WORDS).hexdigest()


def flip(path: Path) -> None:
    """Change a bit in the middle; size and times stay as they are."""
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(found.st_size // 2)
        byte = file.read(1)[0]
        file.seek(found.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def findings(
    world: World, *, repair: bool = False, store: Store | None = None, user: str | None = None
) -> list[Finding]:
    check = Check(deps=replace(world.deps, store=store or world.deps.store), repair=repair)
    return [finding for finding in check.run(user) if finding is not None]


def finished_with_output(world: World, **outputs: bytes) -> str:
    job_id, order = world.placed()
    world.agent.start(order)
    rows = []
    for name, data in outputs.items():
        assert world.agent.upload(order, name, data, mtime=WHEN).status == 200
        rows.append([f"output/{name}", len(data), WHEN, hashlib.sha256(data).hexdigest()])
    place = f"/api/v1/agent/replicas/{order['replica']}/listing"
    body = json.dumps({"files": rows}).encode()
    reply = world.agent.caller.call("POST", place, {"fence": order["fence"]}, body)
    assert (reply.status, reply.json()) == (200, {"missing": []})
    world.agent.exit(order)
    world.release()
    assert world.state(job_id) == "success"
    return job_id


def test_a_sound_store_has_no_findings(world: World) -> None:
    world.snapshot(FILES)
    finished_with_output(world, model=b"weights")
    before = sorted(world.deps.settings.store_dir.rglob("*"))
    check = Check(deps=world.deps, repair=True)
    assert [*filter(None, check.run())] == []
    contents = {*FILES.values(), b"echo hi\n"}
    assert check.files == len(contents) + 1
    assert check.bytes == sum(map(len, contents)) + len(b"weights")
    assert sorted(world.deps.settings.store_dir.rglob("*")) == before


def test_a_damaged_blob_is_named_with_its_jobs_and_left(world: World) -> None:
    files = world.snapshot(FILES)
    job_id = world.submit(snapshot=files)
    flip(world.blob(WORDS))
    for _ in range(2):
        (found,) = findings(world)
        assert (found.kind, found.problem, found.user_id) == ("submitted", DAMAGED, "someone")
        assert (found.sha256, found.size, found.aside) == (SHA256, len(WORDS), "")
        assert sorted(found.paths) == ["copy/of/words", "words"]
        assert (found.jobs, found.snapshots) == ([job_id], [files])
    assert world.blob(WORDS).exists()
    world.submit(snapshot=files)


def test_a_missing_blob_is_named_with_its_jobs(world: World) -> None:
    files = world.snapshot(FILES)
    job_id = world.submit(snapshot=files)
    world.blob(WORDS).unlink()
    (found,) = findings(world)
    assert (found.problem, found.sha256, found.jobs) == (MISSING, SHA256, [job_id])


def test_a_repair_moves_a_damaged_blob_aside(world: World) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))
    damaged = world.blob(WORDS).read_bytes()
    (found,) = findings(world, repair=True)
    assert (world.deps.settings.store_dir / found.aside).read_bytes() == damaged
    assert not world.blob(WORDS).exists()
    assert findings(world, repair=True) == []  # no job needs it


@pytest.mark.parametrize("missing", [False, True], ids=["damaged", "missing"])
def test_after_a_repair_the_next_submit_uploads_it_again(world: World, missing: bool) -> None:
    files = world.snapshot(FILES)
    world.submit(snapshot=files)
    world.blob(WORDS).unlink() if missing else flip(world.blob(WORDS))
    assert len(findings(world, repair=True)) == 1
    assert [found.problem for found in findings(world)] == [MISSING]
    body = a_submit({"start_cmd": "true", "snapshot": files, "directory": "job"})
    reply = world.user.call("POST", "/api/v1/jobs", body=json.dumps(body).encode())
    assert (reply.status, reply.code) == (409, "snapshot_missing")
    entries = [
        [path, "file", len(data), hashlib.sha256(data).hexdigest(), 0, ""]
        for path, data in FILES.items()
    ]
    offered = world.user.post("/api/v1/snapshots", {"entries": entries})
    assert offered["missing"] == [SHA256]
    world.user.post("/api/v1/blobs", packed(WORDS))
    assert world.user.post("/api/v1/snapshots", {"entries": entries})["missing"] == []
    assert world.user.post("/api/v1/jobs", body)["job"]["job_id"]
    assert world.blob(WORDS).read_bytes() == WORDS
    assert findings(world) == []


def test_a_job_that_waits_learns_what_became_of_its_files(world: World) -> None:
    files = world.snapshot(FILES)
    _, order = world.placed(snapshot=files)
    flip(world.blob(WORDS))
    findings(world, repair=True)
    place = f"/api/v1/agent/blobs/{SHA256}"
    reply = world.agent.caller.call("GET", place, {"replica": order["replica"]})
    assert (reply.status, reply.code) == (404, "content_gone")


def test_damaged_blobs_are_deleted_with_the_unused_files_and_other_files_stay(
    world: World,
) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))
    (found,) = findings(world, repair=True)
    aside = world.deps.settings.store_dir / found.aside
    stray = aside.parent / "notes.txt"
    stray.write_bytes(b"looked at it\n")
    kept = world.deps.settings.retention.unused_files
    garbage_collection.collect(world.with_clock(world.clock() + kept - timedelta(minutes=1)))
    assert aside.exists()
    garbage_collection.collect(world.with_clock(world.clock() + kept + timedelta(minutes=1)))
    assert (aside.exists(), stray.exists()) == (False, True)


def test_a_damaged_output_is_named_and_stays(world: World) -> None:
    job_id = finished_with_output(world, model=LARGE, events=b"steps\n")
    path = f"output/{job_id}/rank-0/model"
    file = world.deps.settings.store_dir / "users" / "someone" / path
    flip(file)
    (found,) = findings(world, repair=True)
    assert (found.kind, found.problem) == ("output", DAMAGED)
    assert (found.paths, found.jobs) == ([path], [job_id])
    assert (found.sha256, found.aside) == (hashlib.sha256(LARGE).hexdigest(), "")
    assert file.exists()
    file.unlink()
    assert [found.problem for found in findings(world)] == [MISSING]


def test_an_output_that_was_rewritten_is_not_damaged(world: World) -> None:
    job_id = finished_with_output(world, model=LARGE)
    (path,) = world.deps.settings.store_dir.rglob(f"{job_id}/rank-0/model")
    path.write_bytes(LARGE[::-1])  # as by a later attempt whose machine was lost
    os.utime(path, (1_800_000_000, 1_800_000_000))
    (found,) = findings(world)
    assert found.problem == CHANGED
    assert (found.paths, found.jobs) == ([f"output/{job_id}/rank-0/model"], [job_id])


def test_outputs_of_a_running_job_are_not_checked(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.upload(order, "model", LARGE)
    flip(world.deps.settings.store_dir / f"users/someone/output/{job_id}/rank-0/model")
    assert findings(world) == []


def test_a_repair_that_was_interrupted_is_completed_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(snapshot=world.snapshot(FILES))
    flip(world.blob(WORDS))

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cutting, pytest.raises(KeyboardInterrupt):
        cutting.setattr(snapshots, "take_out_of_use", cut)
        findings(world, repair=True)
    assert [found.problem for found in findings(world, repair=True)] == [MISSING]


def test_one_user_alone(world: World) -> None:
    other = world.caller("other")
    world.snapshot(FILES)
    world.snapshot({"a": b"a", "b": b"b"}, other)
    flip(world.blob(WORDS))
    assert findings(world, user="other") == []
    assert len(findings(world, user="someone")) == 1
    with pytest.raises(NotFound):
        findings(world, user="nobody")


class ReplacedStore(DirectoryStore):
    """A blob is uploaded again while it is read."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        reader = super().read(path, offset, length)
        if path.endswith(SHA256):
            self.delete(path)
            self.write(path, [WORDS])
        return reader


def test_a_blob_that_is_replaced_while_it_is_read_is_not_damaged(world: World) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))
    os.utime(world.blob(WORDS), (1, 1))
    with closing(ReplacedStore(world.deps.settings.store_dir)) as store:
        assert findings(world, repair=True, store=store) == []
    assert world.blob(WORDS).read_bytes() == WORDS


def test_a_store_that_cannot_move_files_copies_them(world: World) -> None:
    world.snapshot({"words": WORDS})
    store = MemoryStore(clock=world.clock)
    store.write(f"users/someone/blobs/{SHA256[:2]}/{SHA256}", [WORDS.upper()])
    found = next(each for each in findings(world, repair=True, store=store) if each.aside)
    assert [stat.path for stat in store.list()] == [found.aside]
    assert b"".join(store.read(found.aside)) == WORDS.upper()


class BadDisk(DirectoryStore):
    """Cannot read one content, and says so as a worn-out disk or a broken file system does."""

    def __init__(self, root: Path, number: int) -> None:
        super().__init__(root)
        self._number = number

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        reader = super().read(path, offset, length)
        if path.endswith(SHA256):
            return Reader(reader.stat, reader.length, self._worn_out, reader.close)
        return reader

    def _worn_out(self, _size: int) -> bytes:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA])
def test_what_the_disk_cannot_read_is_damaged(world: World, number: int) -> None:
    world.snapshot(FILES)
    with closing(BadDisk(world.deps.settings.store_dir, number)) as store:
        (found,) = findings(world, repair=True, store=store)
    assert found.sha256 == SHA256
    assert (world.deps.settings.store_dir / found.aside).exists()


def test_what_the_process_may_not_read_is_not_damaged(world: World) -> None:
    world.snapshot(FILES)
    disk = BadDisk(world.deps.settings.store_dir, errno.EACCES)
    with closing(disk) as store, pytest.raises(PermissionError):
        findings(world, repair=True, store=store)
    assert world.blob(WORDS).exists()


def test_memory_does_not_grow_with_the_file(world: World) -> None:
    size = 64 * 1024 * 1024
    world.snapshot({"words": WORDS})
    with world.blob(WORDS).open("r+b") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        (found,) = findings(world)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.size == size
    assert most < size // 8


def test_a_home_without_a_server_is_refused(world: World, tmp_path: Path) -> None:
    settings = replace(world.deps.settings, home=tmp_path / "none")
    with pytest.raises(Refused) as refused:
        verify.main(settings, user=None, repair=False, as_json=False, lang="en")
    assert refused.value.code == "verify_no_database"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_findings_and_exits_with_1(
    world: World, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    job_id = finished_with_output(world, model=b"weights")
    settings = world.deps.settings
    assert verify.main(settings, user=None, repair=False, as_json=as_json, lang="en") == 0
    assert ("0 damaged, 0 missing\n" in capfd.readouterr().out) is not as_json
    (path,) = settings.store_dir.rglob(f"{job_id}/rank-0/model")
    flip(path)
    assert verify.main(settings, user=None, repair=False, as_json=as_json, lang="en") == 1
    out = capfd.readouterr().out
    if as_json:
        facts = json.loads(out)
        assert facts["damaged_files"] == len(facts["damaged"]) == 1
        assert facts["damaged"][0]["jobs"] == [job_id]
        assert (facts["missing"], facts["changed"]) == ([], [])
    else:
        line, last = out.splitlines()
        assert f"rank-0/model is not what {job_id} wrote" in line
        assert last.endswith(": 1 damaged, 0 missing")
