"""Stored bytes that went bad are found, named, and taken out of use; sound ones are left alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.tables.tokens import TokenKind
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import TooMany
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.partial_digests import Halves
from paddlecloud.server.schemas.verify import VerifyAnswer, VerifyPlace, VerifyRequest
from paddlecloud.server.services.files import retention, scrub
from paddlecloud.stores.base import CHUNK, Reader, Stat, Store
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.memory import MemoryStore
from paddlecloud.testing import SignedCaller
from tests.integration.server.world import World, a_submit, packed

VERIFY = "/api/v1/admin/verify"
WORDS = b"to be or not to be\n"
FILES = {"run.sh": b"cat words\n", "words": WORDS, "copy/of/words": WORDS}
WHEN = 1_700_000_000.0
LARGE = bytes(range(256)) * 4096
CHIEF = Caller(ak="", user_id="chief", kind=TokenKind.USER, role=UserRole.ADMIN)
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


@pytest.fixture(autouse=True)
def long_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """No page ends because this machine paused."""
    monkeypatch.setattr(scrub, "PAGE", 60.0)


@pytest.fixture
def admin(world: World) -> SignedCaller:
    return world.caller("chief", role=UserRole.ADMIN)


def verified(admin: SignedCaller, **body: Any) -> dict[str, Any]:
    """All pages together; `pages` says how many there were."""
    found: dict[str, Any] = {"files": 0, "bytes": 0, "damaged": [], "changed": [], "pages": 0}
    at = None
    while True:
        page = admin.post(VERIFY, {**body, "at": at})
        found["pages"] += 1
        for key in ("files", "bytes", "damaged", "changed"):
            found[key] += page[key]
        at = page["next"]
        if at is None:
            return found


def begun(admin: SignedCaller, **body: Any) -> dict[str, Any]:
    """Where the first page begins."""
    answer = admin.post(VERIFY, body)
    assert (answer["files"], answer["damaged"]) == (0, [])
    place: dict[str, Any] = answer["next"]
    return place


def in_short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page ends with the first thing that it has done."""
    monkeypatch.setattr(scrub, "PAGE", 0.0)


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


def test_a_sound_store_has_nothing_to_tell(world: World, admin: SignedCaller) -> None:
    world.snapshot(FILES)
    finished_with_output(world, model=b"weights")
    before = sorted(world.deps.settings.store_dir.rglob("*"))
    found = verified(admin)
    contents = {*FILES.values(), b"echo hi\n"}
    assert found["damaged"] == []
    assert found["files"] == len(contents) + 1
    assert found["bytes"] == sum(map(len, contents)) + len(b"weights")
    assert sorted(world.deps.settings.store_dir.rglob("*")) == before


def test_a_damaged_content_is_told_and_kept_aside(world: World, admin: SignedCaller) -> None:
    files = world.snapshot(FILES)
    job_id = world.submit(snapshot=files)
    flip(world.blob(WORDS))
    damaged = world.blob(WORDS).read_bytes()
    (row,) = verified(admin)["damaged"]
    assert (row["kind"], row["user_id"], row["sha256"]) == ("submitted", "someone", SHA256)
    assert sorted(row["paths"]) == ["copy/of/words", "words"]
    assert (row["jobs"], row["snapshots"]) == ([job_id], [files])
    assert (world.deps.settings.store_dir / row["aside"]).read_bytes() == damaged
    assert not world.blob(WORDS).exists()
    assert verified(admin)["damaged"] == []
    (event,) = admin.get("/api/v1/admin/audit")["events"]
    assert (event["action"], event["target"]) == ("content.damaged", "someone")
    assert event["detail"]["aside"] == row["aside"]


@pytest.mark.parametrize("others", [0, 5], ids=["alone", "among others"])
def test_a_page_that_is_asked_for_again_tells_the_same(
    world: World, admin: SignedCaller, others: int
) -> None:
    """As when its answer was lost."""
    world.snapshot({**FILES, **{str(number): b"%d" % number for number in range(others)}})
    at = begun(admin)
    world.clock.move(seconds=1)
    flip(world.blob(WORDS))
    first = admin.post(VERIFY, {"at": at})
    assert [row["sha256"] for row in first["damaged"]] == [SHA256]
    assert admin.post(VERIFY, {"at": at}) == first
    world.clock.move(seconds=1)
    assert verified(admin)["damaged"] == []


def test_what_a_page_told_is_not_told_by_the_next(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {str(number): b"%d" % number for number in range(10, 30)}
    world.snapshot(contents)
    world.snapshot({"a": b"other"}, world.caller("other"))
    for data in contents.values():
        flip(world.blob(data))
    in_short_pages(monkeypatch)
    at: dict[str, Any] | None = begun(admin)
    told = []
    while at is not None:
        world.clock.move(seconds=1)
        answers = [admin.post(VERIFY, {"at": at}) for _ in range(2)]  # each of them comes twice
        told += [row["paths"] for row in answers[1]["damaged"]]
        at = answers[0]["next"]
    assert sorted(told) == sorted([name] for name in contents)


def test_what_was_set_aside_goes_with_the_unused_files(world: World, admin: SignedCaller) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))
    (row,) = verified(admin)["damaged"]
    aside = world.deps.settings.store_dir / row["aside"]
    kept = world.deps.settings.retention.unused_files
    retention.collect(world.with_clock(world.clock() + kept - timedelta(minutes=1)))
    assert aside.exists()
    retention.collect(world.with_clock(world.clock() + kept + timedelta(minutes=1)))
    assert not aside.exists()


def test_a_file_of_somebody_else_beside_them_keeps_nothing_from_going(
    world: World, admin: SignedCaller
) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))
    (row,) = verified(admin)["damaged"]
    aside = world.deps.settings.store_dir / row["aside"]
    stray = aside.parent / "notes.txt"
    stray.write_bytes(b"looked at it\n")
    kept = world.deps.settings.retention.unused_files
    retention.collect(world.with_clock(world.clock() + kept + timedelta(minutes=1)))
    assert (aside.exists(), stray.exists()) == (False, True)


def test_the_next_submit_sends_it_again(world: World, admin: SignedCaller) -> None:
    files = world.snapshot(FILES)
    flip(world.blob(WORDS))
    verified(admin)
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
    assert verified(admin)["damaged"] == []


def test_a_job_that_waits_learns_what_became_of_its_files(
    world: World, admin: SignedCaller
) -> None:
    files = world.snapshot(FILES)
    _, order = world.placed(snapshot=files)
    flip(world.blob(WORDS))
    verified(admin)
    place = f"/api/v1/agent/blobs/{SHA256}"
    reply = world.agent.caller.call("GET", place, {"replica": order["replica"]})
    assert (reply.status, reply.code) == (404, "content_gone")


def test_a_damaged_output_is_told_and_stays(world: World, admin: SignedCaller) -> None:
    job_id = finished_with_output(world, model=LARGE, events=b"steps\n")
    path = f"output/{job_id}/rank-0/model"
    file = world.deps.settings.store_dir / "users" / "someone" / path
    flip(file)
    (row,) = verified(admin)["damaged"]
    assert (row["kind"], row["paths"], row["jobs"]) == ("output", [path], [job_id])
    assert (row["sha256"], row["aside"]) == (hashlib.sha256(LARGE).hexdigest(), "")
    assert file.exists()


def test_an_output_that_was_written_anew_is_not_damaged(world: World, admin: SignedCaller) -> None:
    job_id = finished_with_output(world, model=LARGE)
    (path,) = world.deps.settings.store_dir.rglob(f"{job_id}/rank-0/model")
    path.write_bytes(LARGE[::-1])  # as by a later attempt whose machine was lost
    os.utime(path, (1_800_000_000, 1_800_000_000))
    found = verified(admin)
    assert found["damaged"] == []
    (row,) = found["changed"]
    assert (row["paths"], row["jobs"]) == ([f"output/{job_id}/rank-0/model"], [job_id])
    assert admin.get("/api/v1/admin/audit")["events"] == []


def test_what_is_set_aside_is_written_down_before_it_goes(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.snapshot(FILES)
    flip(world.blob(WORDS))

    def cut(*_: object) -> None:
        raise OSError(errno.EIO, "cut off")

    with monkeypatch.context() as cutting:
        cutting.setattr(world.deps.store, "move", cut)
        body = json.dumps({"at": begun(admin)}).encode()
        assert admin.call("POST", VERIFY, body=body).status >= 500
    (event,) = admin.get("/api/v1/admin/audit")["events"]
    assert event["action"] == "content.damaged"
    assert len(verified(admin)["damaged"]) == 1


def test_what_a_job_still_writes_is_not_judged(world: World, admin: SignedCaller) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.upload(order, "model", LARGE)
    flip(world.deps.settings.store_dir / f"users/someone/output/{job_id}/rank-0/model")
    assert verified(admin)["damaged"] == []


def test_one_user_alone(world: World, admin: SignedCaller) -> None:
    other = world.caller("other")
    world.snapshot(FILES)
    world.snapshot({"a": b"a", "b": b"b"}, other)
    flip(world.blob(WORDS))
    found = verified(admin, user="other")
    assert (found["files"], found["damaged"]) == (2, [])
    reply = admin.call("POST", VERIFY, body=json.dumps({"user": "nobody"}).encode())
    assert reply.status == 404
    assert len(verified(admin, user="someone")["damaged"]) == 1


def test_only_admins_may(world: World) -> None:
    reply = world.user.call("POST", VERIFY, body=b"{}")
    assert reply.status == 403


def test_short_pages_read_everything_once(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.snapshot({str(number): b"%d" % number for number in range(20)})
    world.snapshot({"a": b"other"}, world.caller("other"))
    for _ in range(2):
        finished_with_output(world, model=b"weights", events=b"steps\n")
    whole = verified(admin)
    in_short_pages(monkeypatch)
    pieces = verified(admin)
    assert pieces["pages"] > whole["files"]
    assert pieces | {"pages": whole["pages"]} == whole


def test_many_contents_are_listed_by_directory(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {str(number): b"%d" % number for number in range(30)}
    world.snapshot(contents)
    monkeypatch.setattr(scrub, "FEW", 5)
    assert verified(admin)["files"] == len(contents)
    in_short_pages(monkeypatch)
    flip(world.blob(b"17"))
    found = verified(admin)
    assert found["files"] == len(contents)
    assert [row["paths"] for row in found["damaged"]] == [["17"]]


def test_a_large_file_takes_several_pages(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.snapshot({"large": LARGE})
    in_short_pages(monkeypatch)
    found = verified(admin)
    assert (found["files"], found["bytes"], found["damaged"]) == (1, len(LARGE), [])
    assert found["pages"] >= len(LARGE) // CHUNK
    flip(world.blob(LARGE))
    assert len(verified(admin)["damaged"]) == 1


def in_turns(*servers: Deps) -> tuple[int, int]:
    """How many files were read, and how many of them are damaged, when these servers have the pages
    of a search one after the other; none reads on for longer than a page."""
    files = damaged = 0
    at = None
    for server in islice(cycle(servers), 10 * len(LARGE) // CHUNK):
        page = scrub.page(server, CHIEF, VerifyRequest(user="someone", at=at))
        assert page.bytes <= CHUNK
        files, damaged, at = files + page.files, damaged + len(page.damaged), page.next
        if at is None:
            return files, damaged
    raise AssertionError("it does not end")


@pytest.mark.parametrize("damaged", [False, True])
def test_servers_that_take_turns_come_to_the_end_of_a_large_file(
    world: World, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    world.snapshot({"large": LARGE})
    if damaged:
        flip(world.blob(LARGE))
    in_short_pages(monkeypatch)
    found = in_turns(world.deps, replace(world.deps, halves=Halves()))
    assert found == (1, int(damaged))


def test_two_searches_on_a_server_both_come_to_their_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LARGE[::-1]
    world.snapshot({"large": LARGE})
    world.snapshot({"large": other}, world.caller("other"))
    in_short_pages(monkeypatch)
    at: dict[str, VerifyPlace | None] = {"someone": None, "other": None}
    read = dict.fromkeys(at, 0)
    for user in islice(cycle(at), 4 * len(LARGE) // CHUNK):
        page = scrub.page(world.deps, CHIEF, VerifyRequest(user=user, at=at[user]))
        at[user] = page.next
        read[user] += page.files
        if not any(at.values()):
            break
    assert read == {"someone": 1, "other": 1}


def test_what_was_replaced_meanwhile_is_left_alone(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.snapshot({"large": LARGE})
    in_short_pages(monkeypatch)
    first = admin.post(VERIFY, {"user": "someone", "at": begun(admin, user="someone")})
    os.utime(world.blob(LARGE), (1, 1))
    page = admin.post(VERIFY, {"user": "someone", "at": first["next"]})
    assert (page["files"], page["damaged"]) == (0, [])
    assert world.blob(LARGE).exists()


class SentAgain(MemoryStore):
    """Cannot move a file. While one is read for the digest, or copied aside, it is sent again."""

    def __init__(self, world: World, after_reads: int) -> None:
        super().__init__(clock=world.clock)
        self._world = world
        self._reads = after_reads
        self.copies = 0

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        reader = super().read(path, offset, length)
        self._reads -= 1
        if not self._reads:
            self._world.clock.move(seconds=1)
            self.write(path, [WORDS])
        return reader

    def write(self, path: str, *args: Any, **more: Any) -> Stat:
        self.copies += "/damaged/" in path
        return super().write(path, *args, **more)


@pytest.mark.parametrize(("after_reads", "copies"), [(1, 0), (2, 1)], ids=["read", "copied"])
def test_what_is_replaced_before_it_goes_aside_is_not_told_as_damaged(
    world: World, after_reads: int, copies: int
) -> None:
    store = SentAgain(world, after_reads)
    path = f"users/someone/blobs/{SHA256[:2]}/{SHA256}"
    store.write(path, [WORDS.upper()])
    for _ in range(2):
        world.clock.move(seconds=1)
        assert page_of(world, store).damaged == []
    assert [stat.path for stat in store.list()] == [path]
    assert store.copies == copies


def test_what_cannot_be_moved_is_copied_aside(world: World) -> None:
    store = SentAgain(world, after_reads=0)
    store.write(f"users/someone/blobs/{SHA256[:2]}/{SHA256}", [WORDS.upper()])
    (row,) = page_of(world, store).damaged
    assert [stat.path for stat in store.list()] == [row.aside]
    assert b"".join(store.read(row.aside)) == WORDS.upper()


def test_an_answer_names_only_so_many(
    world: World, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {str(number): b"%d" % number for number in range(9)}
    world.snapshot(contents)
    for data in contents.values():
        flip(world.blob(data)) if len(data) > 1 else world.blob(data).write_bytes(b"?")
    monkeypatch.setattr(scrub, "MOST_DAMAGED", 4)
    page = admin.post(VERIFY, {"at": begun(admin)})
    assert len(page["damaged"]) == 4
    assert page["next"] is not None
    assert len(verified(admin)["damaged"]) == 5


def page_of(world: World, store: Store) -> VerifyAnswer:
    deps = replace(world.deps, store=store)
    at = VerifyPlace(owner="someone")
    return scrub.page(deps, CHIEF, VerifyRequest(user="someone", at=at))


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
def test_what_the_disk_does_not_give_is_damaged(world: World, number: int) -> None:
    world.snapshot(FILES)
    with closing(BadDisk(world.deps.settings.store_dir, number)) as store:
        answer = page_of(world, store)
    (row,) = answer.damaged
    assert (row.sha256, answer.next) == (SHA256, None)
    assert (world.deps.settings.store_dir / row.aside).exists()


def test_what_the_server_may_not_read_is_not_called_damaged(world: World) -> None:
    world.snapshot(FILES)
    disk = BadDisk(world.deps.settings.store_dir, errno.EACCES)
    with closing(disk) as store, pytest.raises(PermissionError):
        page_of(world, store)
    assert world.blob(WORDS).exists()


def test_a_server_that_ends_does_not_read_on(world: World) -> None:
    world.snapshot({"large": LARGE})
    world.deps.hub.closed = True
    answer = page_of(world, world.deps.store)
    assert answer.bytes <= CHUNK
    assert answer.next == VerifyPlace(
        owner="someone", after=hashlib.sha256(LARGE).hexdigest(), offset=CHUNK
    )


def test_two_do_not_read_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_short_pages(monkeypatch)
    with world.deps.halves.turn, pytest.raises(TooMany) as refused:
        page_of(world, world.deps.store)
    assert refused.value.code == "verify_busy"


def test_memory_does_not_grow_with_the_file(world: World) -> None:
    size = 64 * 1024 * 1024
    path = world.deps.settings.store_dir / "users" / "someone" / "blobs" / "ab" / ("ab" * 32)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        seen = page_of(world, world.deps.store)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen.bytes > size // 8
    assert most < size // 8
