"""Pieces from the addresses of a store: what becomes of the connection."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paddlecloud.client.download import presigned
from paddlecloud.client.download.presigned import Addresses
from paddlecloud.net.endpoint import connection_to, split_url
from paddlecloud.net.http1 import Connection

CONTENT = b"0123456789"


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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    found: list[Connection] = []

    def noted(url: str) -> Connection:
        found.append(connection_to(url))
        return found[-1]

    monkeypatch.setattr(presigned, "connection_to", noted)
    return found


def test_a_connection_serves_one_piece_after_the_other(url: str, made: list[Connection]) -> None:
    store, came = Addresses(), bytearray()
    for start in (0, 5):
        got = store.fetch(url, start, 5, came.extend)
        assert got == hashlib.sha256(CONTENT[start : start + 5]).hexdigest()
    store.close()
    assert came == CONTENT
    assert len(made) == 1


def test_a_piece_that_is_not_whole_is_none(url: str, made: list[Connection]) -> None:
    assert Addresses().fetch(url, 5, 6, lambda piece: None) == ""
    assert made[0]._stream is None


def test_no_connection_stays_open_when_bytes_cannot_be_kept(
    url: str, made: list[Connection]
) -> None:
    def full(_: bytes) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Addresses().fetch(url, 0, 5, full)
    assert made[0]._stream is None


class Snatched(list[Connection]):
    """Another thread takes the last connection between the look at it and the taking."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        self.clear()
        return found


def test_two_threads_that_want_the_last_connection_both_get_one(
    url: str, made: list[Connection]
) -> None:
    store = Addresses()
    store._idle[split_url(url)] = Snatched([connection_to(url)])
    assert store.fetch(url, 0, 5, lambda piece: None)
    store.close()
