"""Large outputs in parts: what server and bucket are asked, and the files take turns."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.outputs import _multipart, scan
from paddlecloud.agent.outputs._multipart import PartProgress
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.server_link.channel import PartBody
from paddlecloud.model.errors import NotFound, PaddleCloudError, StorageFull
from paddlecloud.model.files.etag import joined_tag
from paddlecloud.transfer.presigned import PutFailed
from paddlecloud.transfer.slots import Slots
from tests.integration.agent.replicas import eventually

PART = 10


class Channel:
    """Begins and ends uploads, and takes parts as `given` says."""

    def __init__(
        self, there: Sequence[tuple[int, str]] = (), tag: str = "", **given: object
    ) -> None:
        self._there, self._tag, self._given = list(there), tag, given
        self.taken: list[tuple[int, bytes | PartBody]] = []
        self.ends: list[Mapping[str, Any]] = []
        self.refusal: PaddleCloudError | None = None

    def json(
        self, method: str, path: str, body: Mapping[str, Any], *_rest: object
    ) -> dict[str, Any]:
        if method == "PUT":
            self.ends.append(body)
            return {"stored": len(self.ends) > 1} if self._given else {}
        name = path.rpartition("/")[2]
        numbers = range(-(-int(body["size"]) // PART))
        addresses = [f"http://there/{name}{number}" for number in numbers]
        told: dict[str, Any] = {"upload": "u", "part_size": PART, "addresses": addresses}
        if self._tag:
            told |= {"tag": self._tag, "addresses": []}
        told |= self._given
        return told | ({"parts": self._there} if self._there else {})

    def call(
        self,
        _method: str,
        path: str,
        body: memoryview | PartBody,
        query: Mapping[str, Any],
        *,
        timeout: float,
    ) -> bytes:
        assert (path, query["upload"], query["fence"]) == (
            "/agent/replicas/r/part/output/big",
            "u",
            1,
        )
        if self.refusal is not None:
            raise self.refusal
        if isinstance(body, PartBody):
            self.taken.append((query["number"], PartBody(data=bytes(body.data))))
        else:
            self.taken.append((query["number"], bytes(body)))
        return b"{}"


class Bucket:
    """Takes each part when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.here: list[str] = []
        self.taken: list[str] = []
        self.most = 0
        self.go: dict[str, threading.Event] = {}

    def is_away(self, _url: str) -> bool:
        return False

    def put(self, url: str, _data: memoryview, _report: object) -> str:
        address = url.rpartition("/")[2]
        with self.lock:
            self.here.append(address)
            self.most = max(self.most, len(self.here))
            go = self.go.setdefault(address, threading.Event())
        assert go.wait(60)
        with self.lock:
            self.here.remove(address)
            self.taken.append(address)
        return '"tag"'

    def take(self, address: str) -> None:
        with self.lock:
            self.go.setdefault(address, threading.Event()).set()


class Sender(threading.Thread):
    def __init__(self, folder: Path, name: str, count: int, bucket: Bucket, slots: Slots) -> None:
        super().__init__(daemon=True)
        root = folder / name
        (root / "output").mkdir(parents=True)
        (root / "output" / name).write_bytes(b"x" * PART * count)
        (self._found,) = scan.scan(root)
        self._tracked = Tracked(id=name, fence=1, root=root, run=None, acked=0)
        self._bucket, self._slots = bucket, slots
        self.digest: str | None = None
        self.start()

    def run(self) -> None:
        with (self._tracked.root / self._found.name).open("rb") as file:
            channel, bucket = cast("Any", Channel()), cast("Any", self._bucket)
            found = scan.refreshed(self._found, file)
            put = _multipart.put
            self.digest = put(self._tracked, found, file, channel, bucket, self._slots)


def test_a_small_file_passes_a_huge_one_between_its_parts(tmp_path: Path) -> None:
    bucket, slots = Bucket(), Slots(1)
    huge = Sender(tmp_path, "huge", 100, bucket, slots)
    eventually(lambda: bucket.here == ["huge0"])
    small = Sender(tmp_path, "small", 2, bucket, slots)
    eventually(lambda: len(slots._waiting) == 1)
    for address in ("huge0", "small0", "huge1", "small1"):
        eventually(lambda wanted=address: bucket.here == [wanted])  # type: ignore[misc]
        bucket.take(address)
        if address != "small1":
            eventually(lambda: len(slots._waiting) == 1)
    small.join(20)
    assert small.digest
    for number in range(2, 100):
        bucket.take(f"huge{number}")
    huge.join(20)
    assert huge.digest
    assert bucket.most == 1
    assert bucket.taken[:4] == ["huge0", "small0", "huge1", "small1"]


DATA = b"1" * PART + b"2" * PART + b"3" * PART + b"4"
TAGS = [
    hashlib.md5(DATA[start : start + PART], usedforsecurity=False).hexdigest()
    for start in range(0, len(DATA), PART)
]


class Failing:
    """Takes only the first parts that it is asked to take."""

    def __init__(self, takes: int) -> None:
        self.left = takes
        self.asked: list[str] = []

    def is_away(self, _url: str) -> bool:
        return self.left < 0

    @property
    def is_any_away(self) -> bool:
        return self.left < 0

    def put(self, url: str, _data: memoryview, _report: object) -> str:
        self.asked.append(url.rpartition("/")[2])
        self.left -= 1
        if self.left < 0:
            raise PutFailed("500 InternalError")
        return '"tag"'


def put(
    folder: Path, bucket: object, channel: Channel, progress: PartProgress | None = None
) -> str | None:
    """The file with these bytes, by a replica of this directory."""
    (folder / "output").mkdir(exist_ok=True)
    (folder / "output" / "big").write_bytes(DATA)
    (found,) = scan.scan(folder)
    tracked = Tracked(id="r", fence=1, root=folder, run=None, acked=0)
    with (folder / found.name).open("rb") as file:
        sent, line = scan.refreshed(found, file), cast("Any", channel)
        return _multipart.put(tracked, sent, file, line, cast("Any", bucket), None, progress)


def test_parts_that_are_there_are_not_sent_again_if_they_are_the_same(tmp_path: Path) -> None:
    there = [(1, f'"{TAGS[0]}"'), (2, f'"{TAGS[0]}"'), (3, '"no md5-1"')]
    bucket = Bucket()
    for number in range(4):
        bucket.take(f"big{number}")
    digest = put(tmp_path, bucket, Channel(there))
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert bucket.taken == ["big1", "big2", "big3"]


def test_a_part_that_the_bucket_has_without_a_tag_is_sent_again(tmp_path: Path) -> None:
    """The whole is not compared there, so another one would not be noticed."""
    bucket = Bucket()
    for number in range(4):
        bucket.take(f"big{number}")
    digest = put(tmp_path, bucket, Channel([(1, f'"{TAGS[0]}"'), (2, "")]))
    assert digest == hashlib.sha256(DATA).hexdigest()
    assert bucket.taken == ["big1", "big2", "big3"]


@pytest.mark.parametrize("form", ["{}", '"{}"'])
def test_a_file_that_has_its_name_already_is_compared_and_not_sent(
    tmp_path: Path, form: str
) -> None:
    tag = form.format((joined_tag(TAGS) or "").strip('"'))
    bucket = Failing(0)
    assert put(tmp_path, bucket, Channel(tag=tag)) == hashlib.sha256(DATA).hexdigest()
    other = form.format((joined_tag(TAGS[::-1]) or "").strip('"'))
    assert put(tmp_path, bucket, Channel(tag=other)) is None
    assert bucket.asked == []


@pytest.mark.parametrize("takes", [0, 2])
def test_without_a_server_that_takes_parts_the_file_goes_as_a_whole(
    tmp_path: Path, takes: int
) -> None:
    """As of the version before, for smaller files."""
    bucket, channel = Failing(takes), Channel()
    assert put(tmp_path, bucket, channel) is None
    assert bucket.asked == ["big0", "big1", "big2"][: takes + 1]
    assert (channel.taken, channel.ends) == ([], [])


PIECES = [DATA[start : start + PART] for start in range(0, len(DATA), PART)]


def test_parts_go_through_a_server_that_has_no_addresses(tmp_path: Path) -> None:
    channel = Channel([(2, "")], through=True, addresses=[])
    assert put(tmp_path, Failing(0), channel) == hashlib.sha256(DATA).hexdigest()
    bodies = [PartBody(data=piece) for piece in PIECES]
    assert channel.taken == [(1, bodies[0]), (3, bodies[2]), (4, bodies[3])]
    # Asked again while the server still compares the digest.
    end = {"upload": "u", "size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest()}
    assert channel.ends == [end, end]


@pytest.mark.parametrize("takes", [0, 1])
def test_parts_go_through_the_server_when_the_bucket_is_out_of_reach(
    tmp_path: Path, takes: int
) -> None:
    channel, progress = Channel([(1, TAGS[0])], through=True), PartProgress()
    bucket = Failing(takes)
    assert put(tmp_path, bucket, channel, progress) == hashlib.sha256(DATA).hexdigest()
    # Signed by their digests: the bucket joins them before the whole could be verified.
    parts = [(2, PIECES[1]), (3, PIECES[2]), (4, PIECES[3])]
    assert channel.taken == parts[takes:]
    assert len(bucket.asked) == takes + 1
    assert progress.moved_at > 0


def test_a_server_that_takes_no_parts_gets_the_whole_file(tmp_path: Path) -> None:
    assert put(tmp_path, Failing(0), Channel(addresses=[], upload="")) is None
    other = Channel(through=True, addresses=[])
    other.refusal = NotFound("route_unknown", method="PUT", path="there")
    assert put(tmp_path, Failing(0), other) is None
    assert (other.taken, other.ends) == ([], [])


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    channel = Channel(through=True, addresses=[])
    channel.refusal = StorageFull("store_full", path="there")
    with pytest.raises(StorageFull):
        put(tmp_path, Failing(0), channel)
    channel.refusal = None
    assert put(tmp_path, Failing(0), channel) == hashlib.sha256(DATA).hexdigest()


def test_a_file_that_the_server_has_already_is_compared_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    same = Channel(through=True, addresses=[], sha256=digest)
    assert put(tmp_path, Failing(0), same) == digest
    other = Channel(through=True, addresses=[], sha256="0" * 64)
    assert put(tmp_path, Failing(0), other) is None
    assert (same.taken, same.ends, other.taken) == ([], [], [])
