"""Parts of big blobs, by presigned URLs and through the server; both are scripted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.scan.walk import scan
from paddlecloud.client.upload import _multipart
from paddlecloud.model.errors import Unreachable
from paddlecloud.transfer import presigned
from paddlecloud.transfer.presigned import PresignedConnections
from paddlecloud.transfer.resume import Progress
from tests.unit.client.trees import NOW, tree

PART = 4


class Server:
    """Takes parts of four bytes, and gives presigned URLs for them to who asks."""

    def __init__(self, *, gives_addresses: bool = True) -> None:
        self._gives_addresses = gives_addresses
        self.came: dict[str, dict[int, bytes]] = {}
        self.asked_direct: list[bool] = []
        self.whole: set[str] = set()
        self.sent: list[int] = []
        self.skipped: list[int] = []

    def post(self, path: str, value: dict[str, Any], **_: object) -> dict[str, Any]:
        if path.endswith("/finish"):
            self.whole.add(path.split("/")[2])
            return {"stored": True}
        sha256, size = value["sha256"], value["size"]
        self.asked_direct.append(value["direct"])
        came = self.came.setdefault(sha256, {})
        numbers = range(1, -(-size // PART) + 1)
        urls = [(n, f"http://bucket/{sha256}/{n}") for n in numbers if n not in came]
        return {
            "stored": sha256 in self.whole,
            "part_size": PART,
            "parts": sorted(came),
            "urls": urls if value["direct"] and self._gives_addresses else [],
        }

    def put(self, path: str, data: memoryview, _crc32: str) -> dict[str, Any]:
        _, _, sha256, number = path.split("/")
        self.came[sha256][int(number)] = bytes(data)
        return {}


class Bucket:
    """A pool of connections to a store that goes wrong in these ways, one after the other."""

    def __init__(self, *faults: str) -> None:
        self._faults = [*faults]
        self.requests = 0

    def request(self, *_: object, **__: object) -> Any:
        self.requests += 1
        if self._faults:
            raise Unreachable(self._faults.pop(0), address="bucket")
        return Answer()

    def close(self) -> None:
        pass


class Answer:
    status = 403
    headers: dict[str, str] = {}  # noqa: RUF012 - of one answer for all

    def take(self, _size: int) -> bytes:
        return b""

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def send_all(
    server: Server, directory: Path, contents: dict[str, bytes | None], bucket: Any = None
) -> None:
    found = scan(str(tree(directory, contents)), now=NOW)
    transport: Any = server
    connections = PresignedConnections(bucket)
    progress = Progress(
        lambda count, _: server.sent.append(count), lambda count, _: server.skipped.append(count)
    )
    progress.begin(found.bytes)
    for sha256, source in found.sources.items():
        _multipart.send(transport, sha256, source, found.bytes, progress, connections)
    assert server.whole == {*found.sources}


@pytest.mark.parametrize(
    ("faults", "tries"),
    [
        (("server_timeout",), 1),
        (("server_unreachable",), 1),
        (("server_closed", "server_timeout"), 2),
        (("server_closed",) * 9, presigned.POLICY.attempts),
        ((), 1),
    ],
    ids=["silent", "unreachable", "closed and silent", "always closed", "refused"],
)
def test_a_bucket_that_is_of_no_use_is_asked_once_for_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: tuple[str, ...], tries: int
) -> None:
    monkeypatch.setattr(presigned.POLICY, "first_pause", 0.0)
    bucket, server = Bucket(*faults), Server()
    monkeypatch.setattr(_multipart, "AT_ONCE", 1)
    send_all(server, tmp_path, {name: name.encode() * 10 for name in "abc"}, bucket)
    assert bucket.requests == tries
    assert server.asked_direct[0] and not any(server.asked_direct[1:])


def test_parts_that_are_there_are_told_apart_from_those_that_are_sent(tmp_path: Path) -> None:
    server = Server(gives_addresses=False)
    data = b"0123456789"
    sha256 = hashlib.sha256(data).hexdigest()
    server.came[sha256] = {2: data[4:8]}
    send_all(server, tmp_path, {"f": data})
    assert (sum(server.sent), sum(server.skipped)) == (6, 4)
    assert b"".join(part for _, part in sorted(server.came[sha256].items())) == data
