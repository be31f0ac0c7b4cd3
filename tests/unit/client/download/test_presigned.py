"""Ranges by presigned URL: what is returned, and what becomes of the connection."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paddlecloud.client.download._presigned import fetch
from paddlecloud.net.connection_pool import Pool

CONTENT = bytes(range(256)) * 16384


class _Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, last = map(int, self.headers["range"].removeprefix("bytes=").split("-"))
        piece = CONTENT[first : last + 1]
        self.send_response(206)
        self.send_header("content-length", str(len(piece)))
        self.end_headers()
        self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/bucket/key?signature=x"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def idle(pool: Pool) -> int:
    return sum(map(len, pool._idle.values()))


def test_a_connection_serves_one_range_after_the_other(url: str) -> None:
    received = bytearray()
    with Pool() as pool:
        for start in (0, 5):
            got = fetch(pool, url, start, 5, received.extend)
            assert got == hashlib.sha256(CONTENT[start : start + 5]).hexdigest()
            assert idle(pool) == 1
    assert received == CONTENT[:10]


def test_a_range_that_is_not_whole_counts_as_none(url: str) -> None:
    with Pool() as pool:
        assert fetch(pool, url, len(CONTENT) - 5, 6, lambda block: None) == ""


def test_a_bucket_that_cannot_be_reached_gives_nothing() -> None:
    with Pool() as pool:
        assert fetch(pool, "http://127.0.0.1:1/bucket/key", 0, 5, lambda block: None) == ""


def test_no_connection_stays_open_when_bytes_cannot_be_kept(url: str) -> None:
    def full(_: bytes) -> None:
        raise OSError("no space")

    with Pool() as pool:
        with pytest.raises(OSError, match="no space"):
            fetch(pool, url, 0, len(CONTENT), full)
        assert idle(pool) == 0
