"""Large files in parts: a few parts at a time, and the files take turns."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.runtime import outputs, parts
from paddlecloud.runtime.book import Tracked
from paddlecloud.runtime.parts import Room
from tests.integration.runtime.replicas import eventually

PART = 10


class Channel:
    """Begins and ends uploads."""

    def __init__(self, there: Sequence[tuple[int, str]] = ()) -> None:
        self._there = list(there)

    def json(
        self, method: str, path: str, body: Mapping[str, Any], *_rest: object
    ) -> dict[str, Any]:
        if method == "PUT":
            return {}
        name = path.rpartition("/")[2]
        numbers = range(-(-int(body["size"]) // PART))
        addresses = [f"{name}{number}" for number in numbers]
        told = {"upload": "u", "part_size": PART, "addresses": addresses}
        return told | ({"parts": self._there} if self._there else {})


class Bucket:
    """Takes each part when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.here: list[str] = []
        self.taken: list[str] = []
        self.most = 0
        self.go: dict[str, threading.Event] = {}

    def put(self, address: str, _data: bytes) -> bool:
        with self.lock:
            self.here.append(address)
            self.most = max(self.most, len(self.here))
            go = self.go.setdefault(address, threading.Event())
        assert go.wait(60)
        with self.lock:
            self.here.remove(address)
            self.taken.append(address)
        return True

    def take(self, address: str) -> None:
        with self.lock:
            self.go.setdefault(address, threading.Event()).set()


class Sender(threading.Thread):
    def __init__(self, folder: Path, name: str, count: int, bucket: Bucket, room: Room) -> None:
        super().__init__(daemon=True)
        root = folder / name
        (root / "output").mkdir(parents=True)
        (root / "output" / name).write_bytes(b"x" * PART * count)
        (self._found,) = outputs.scan(root, [])
        self._tracked = Tracked(id=name, fence=1, root=root, run={}, acked=0)
        self._bucket, self._room = bucket, room
        self.digest: str | None = None
        self.start()

    def run(self) -> None:
        with (self._tracked.root / self._found.name).open("rb") as file:
            channel, bucket = cast("Any", Channel()), cast("Any", self._bucket)
            found = outputs.found_again(self._found, file)
            put = parts.put
            self.digest = put(self._tracked, found, file, channel, bucket, self._room)


def test_a_small_file_passes_a_huge_one_between_its_parts(tmp_path: Path) -> None:
    bucket, room = Bucket(), Room(1)
    huge = Sender(tmp_path, "huge", 100, bucket, room)
    eventually(lambda: bucket.here == ["huge0"])
    small = Sender(tmp_path, "small", 2, bucket, room)
    eventually(lambda: len(room._waiting) == 1)
    for address in ("huge0", "small0", "huge1", "small1"):
        eventually(lambda wanted=address: bucket.here == [wanted])  # type: ignore[misc]
        bucket.take(address)
        if address != "small1":
            eventually(lambda: len(room._waiting) == 1)
    small.join(20)
    assert small.digest
    for number in range(2, 100):
        bucket.take(f"huge{number}")
    huge.join(20)
    assert huge.digest
    assert bucket.most == 1
    assert bucket.taken[:4] == ["huge0", "small0", "huge1", "small1"]


def test_places_are_few_and_given_back_also_after_a_mistake() -> None:
    room = Room(2)
    with room.place(), room.place():
        assert room._free == 0
    for _ in range(3):
        with pytest.raises(ValueError, match="wrong"), room.place():
            raise ValueError("wrong")
    assert (room._free, len(room._waiting)) == (2, 0)


def test_parts_that_are_there_are_not_sent_again_if_they_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    data = b"1" * PART + b"2" * PART + b"3" * PART + b"4"
    (tmp_path / "output" / "big").write_bytes(data)
    (found,) = outputs.scan(tmp_path, [])
    same = hashlib.md5(b"1" * PART, usedforsecurity=False).hexdigest()
    there = [(1, f'"{same}"'), (2, f'"{same}"'), (3, '"no md5-1"')]
    bucket = Bucket()
    for number in range(4):
        bucket.take(f"big{number}")
    with (tmp_path / found.name).open("rb") as file:
        tracked = Tracked(id="r", fence=1, root=tmp_path, run={}, acked=0)
        sent, channel = outputs.found_again(found, file), cast("Any", Channel(there))
        digest = parts.put(tracked, sent, file, channel, cast("Any", bucket))
    assert digest == hashlib.sha256(data).hexdigest()
    assert bucket.taken == ["big1", "big2", "big3"]
