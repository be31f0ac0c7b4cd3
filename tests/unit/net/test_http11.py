"""One connection to a store: how a body goes out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from paddlecloud.net.http11 import Connection

MIB = 1024 * 1024


class Noting:
    """A socket that notes how much is handed to it under one time limit."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.sizes: list[int] = []
        self.recv, self.close = real.recv, real.close

    def sendall(self, data: bytes | memoryview) -> None:
        self.sizes.append(len(data))
        self._real.sendall(data)


@pytest.fixture
def received() -> Iterator[tuple[int, bytearray]]:
    """The port of a server that takes one request, and what it has taken of it."""
    listener, taken = socket.create_server(("127.0.0.1", 0)), bytearray()

    def serve() -> None:
        near, _ = listener.accept()
        with near:
            while not taken.endswith(b"end"):
                taken.extend(near.recv(MIB))
            near.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], taken
    thread.join(60)
    listener.close()


@pytest.mark.parametrize("size", [0, 64 * 1024, 64 * 1024 + 1, 3 * MIB + 5])
def test_a_slow_way_is_no_silent_server(received: tuple[int, bytearray], size: int) -> None:
    """A time limit is for what is handed over at once: that is little, however long the body."""
    port, taken = received
    body = bytearray(b"z" * size + b"end")
    with closing(Connection("127.0.0.1", port, None)) as connection:
        noting = Noting(connection._socket)
        connection._socket = noting  # type: ignore[assignment]  # it does what is needed of one
        assert connection.exchange("PUT", "/x", {"host": "h"}, body).status == 204
    head, _, sent = bytes(taken).partition(b"\r\n\r\n")
    assert f"content-length: {size + 3}".encode() in head
    assert sent == body
    assert max(noting.sizes) <= 256 * 1024
    body.append(0)  # nobody holds on to it
