"""Files of a job straight from a bucket: a real S3 server, and a server that only gives addresses.

Whatever the bucket does not give as it should is asked of the server, which tells what is wrong.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.inputs._presigned import DirectDownloads
from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.model.errors import Conflict, Invalid
from paddlecloud.model.files.etag import mark
from paddlecloud.net.proxy import DIRECT
from paddlecloud.stores.s3.store import S3Store

HOUR = timedelta(hours=1)
LARGE = os.urandom(250_000)
NOWHERE = "http://127.0.0.1:9/x?X-Amz-Signature=0"


class Server:
    """Stands where the channel of the agent is; counts what is asked of it."""

    def __init__(self, rows: list[tuple[str, int, str, str]]) -> None:
        self.rows = rows
        self.asked: list[str] = []
        self.body = b""
        self.error: Exception | None = None
        self.queries: list[dict[str, Any]] = []

    def json(self, method: str, path: str, body: dict[str, str]) -> dict[str, Any]:
        self.asked.append(f"{method} {path}")
        names = [row[0] for row in self.rows]
        return {"contents": self.rows[names.index(body["sha256"]) :]}

    def call(
        self, method: str, path: str, *, query: dict[str, Any], sink: Callable[[bytes], object]
    ) -> bytes:
        self.asked.append(f"{method} {path}")
        self.queries.append(query)
        if self.error is not None:
            raise self.error
        sink(self.body)
        return b""


def address(bucket: S3Store, path: str) -> str:
    return bucket.presign_read(path, good_for=HOUR, now=datetime.now(UTC))


def row_of(bucket: S3Store, path: str, data: bytes) -> tuple[str, int, str, str]:
    """Of a file in a user's own bucket."""
    bucket.write(path, [data])
    stat = bucket.stat(path)
    assert stat is not None
    return mark("b.bj", path, stat.size, stat.tag), stat.size, address(bucket, path), stat.tag


def opened(cache: InputCache, server: Server, row: tuple[str, int, str, str]) -> bytes:
    source = cache.source("r", None, server, direct=True)  # type: ignore[arg-type]
    fd = source(row[0], row[1])
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def test_contents_come_past_the_server_and_stay(bucket: S3Store, tmp_path: Path) -> None:
    data = {hashlib.sha256(text).hexdigest(): text for text in (b"one", b"two", b"")}
    for name, text in data.items():
        bucket.write(name, [text])
    server = Server([(name, len(text), address(bucket, name), "") for name, text in data.items()])
    cache = InputCache(tmp_path, limit=1 << 20)
    source = cache.source("r", None, server, direct=True)  # type: ignore[arg-type]
    for name, text in data.items():
        fd = source(name, len(text))
        assert os.read(fd, 100) == text
        os.close(fd)
    assert server.asked == ["POST /agent/replicas/r/contents"]
    assert not list(tmp_path.rglob("*.part"))


def test_a_file_known_by_its_tag(bucket: S3Store, tmp_path: Path) -> None:
    small = row_of(bucket, "dir/small", b"mine")
    large = os.urandom(9 * 1024 * 1024)
    parts = row_of(bucket, "dir/in parts", large)
    assert "-" in parts[3], "a file that came in parts has a tag of another kind"
    server = Server([small, parts])
    assert opened(InputCache(tmp_path, limit=1 << 30), server, small) == b"mine"
    cached = tmp_path / "blobs" / parts[0][:2] / parts[0]
    assert cached.read_bytes() == large
    assert server.asked == ["POST /agent/replicas/r/contents"]


def test_a_file_that_changed_is_left_to_the_server(bucket: S3Store, tmp_path: Path) -> None:
    row = row_of(bucket, "x", b"as it was")
    bucket.write("x", [b"as it is!"])
    server = Server([row])
    server.error = Conflict("private_file_changed", path="x", bos_url="b.bj.bcebos.com")
    with pytest.raises(Conflict, match="changed or deleted after"):
        opened(InputCache(tmp_path, limit=1 << 20), server, row)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_bucket_out_of_reach_is_asked_for_through_the_server(tmp_path: Path) -> None:
    names = [hashlib.sha256(text).hexdigest() for text in (b"one", b"two")]
    server = Server([(name, 3, NOWHERE, "") for name in names])
    server.body = b"one"
    cache = InputCache(tmp_path, limit=1 << 20)
    assert opened(cache, server, server.rows[0]) == b"one"
    server.body = b"not"
    with pytest.raises(Invalid) as caught:
        opened(cache, server, server.rows[1])
    assert caught.value.code == "agent_blob_damaged"
    assert server.asked.count(f"GET /agent/blobs/{names[0]}") == 1
    assert server.asked.count(f"GET /agent/blobs/{names[1]}") == 3


def test_a_range_of_a_file_with_its_tag_is_fetched(bucket: S3Store) -> None:
    data = os.urandom(300_000)
    bucket.write("out", [data])
    tag = bucket.stat("out").tag  # type: ignore[union-attr]
    direct = DirectDownloads(DIRECT)
    got, rest = bytearray(), bytearray()
    assert direct.fetch(address(bucket, "out"), got.extend)
    assert bytes(got) == data
    assert direct.fetch(address(bucket, "out"), rest.extend, tag, 200_000)
    assert bytes(rest) == data[200_000:]
    assert not direct.fetch(address(bucket, "out"), rest.extend, tag, 300_000)
    assert not direct.fetch(address(bucket, "out"), rest.extend, '"other"')
    assert not direct.fetch(address(bucket, "none"), got.extend)
    assert not direct.fetch(NOWHERE, got.extend)
    direct.drop_idle()
    assert (len(got), len(rest)) == (300_000, 100_000)


@pytest.fixture
def breaking() -> Iterator[tuple[ThreadingHTTPServer, str]]:
    """A bucket whose answers break after 100,000 bytes; it notes from where on it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = int(self.headers.get("range", "bytes=0-")[6:-1])
            asked.append((start, self.headers.get("if-match", "")))
            rest = LARGE[0 if self.path == "/ignores" else start :]
            self.send_response(206 if rest != LARGE else 200)
            self.send_header("content-range", f"bytes {start}-{len(LARGE) - 1}/{len(LARGE)}")
            self.send_header("content-length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[:100_000])

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    asked: list[tuple[int, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = asked  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_bucket_whose_line_breaks_is_asked_for_the_rest(
    tmp_path: Path, breaking: tuple[Any, str]
) -> None:
    bucket, where = breaking
    tag = f'"{hashlib.md5(LARGE).hexdigest()}"'
    server = Server([("a" * 64, len(LARGE), f"{where}/x", tag)])
    assert opened(InputCache(tmp_path, limit=1 << 30), server, server.rows[0]) == LARGE
    assert bucket.asked == [(0, tag), (100_000, tag), (200_000, tag)]
    assert server.asked == ["POST /agent/replicas/r/contents"]


def test_a_bucket_that_knows_no_ranges_is_asked_once(
    tmp_path: Path, breaking: tuple[Any, str]
) -> None:
    bucket, where = breaking
    name = hashlib.sha256(LARGE).hexdigest()
    server = Server([(name, len(LARGE), f"{where}/ignores", "")])
    server.body = LARGE[100_000:]
    assert opened(InputCache(tmp_path, limit=1 << 30), server, server.rows[0]) == LARGE
    assert [start for start, _ in bucket.asked] == [0, 100_000]
    assert server.queries == [{"replica": "r", "offset": 100_000}]
