"""A tunnel's client side against a server that speaks frames by hand."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from paddlecloud.model.protocol.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame_head,
    masked,
    read_head,
)
from paddlecloud.net import tunnel_end as net_relay
from paddlecloud.net._sockets import SocketStream
from paddlecloud.net.endpoint import Endpoint
from paddlecloud.net.http1 import Response
from paddlecloud.net.tunnel_end import BUFFER, FileEnd, Relay, SocketEnd
from paddlecloud.net.websocket import WebSocket

END = json.dumps({"end": True}).encode()
NORMAL = (1000).to_bytes(2, "big")


class Switched(Response):
    """The response to an upgrade, on a socket of the test."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._stream = SocketStream(sock, (BlockingIOError,), "server", 5.0)


class Server:
    """The other end of the connection."""

    def __init__(self, url: str = "http://127.0.0.1:1") -> None:
        ours, self.socket = socket.socketpair()
        self.socket.settimeout(10)
        self.websocket = WebSocket(Switched(ours), Endpoint(url, "", ""))
        self._buffer = b""

    def send(self, data: bytes, kind: int = BINARY, *, last: bool = True) -> None:
        self.socket.sendall(frame_head(kind, len(data), last=last) + data)

    def receive(self) -> tuple[int, bytes]:
        """The next frame; every frame of a client is masked."""
        while True:
            head = read_head(self._buffer, 0)
            if head is not None and len(self._buffer) >= head.end + head.size:
                assert head.key is not None
                data = self._buffer[head.end : head.end + head.size]
                self._buffer = self._buffer[head.end + head.size :]
                return head.kind, bytes(masked(data, head.key))
            more = self.socket.recv(1 << 20)
            assert more, "closed"
            self._buffer += more


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.close()


class Running:
    """A relay in a thread, with the program at its local end."""

    def __init__(self, server: Server) -> None:
        self.program, ours = socket.socketpair()
        self.program.settimeout(10)
        self.in_order: bool | None = None
        self._relay = Relay(server.websocket, SocketEnd(ours))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.in_order = self._relay.run()

    def ended(self) -> bool | None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.in_order


@pytest.fixture
def running(server: Server) -> Iterator[Running]:
    made = Running(server)
    yield made
    made.program.close()
    server.socket.close()
    made.ended()


def test_bytes_go_both_ways_and_each_way_ends_by_itself(server: Server, running: Running) -> None:
    running.program.sendall(b"question")
    assert server.receive() == (BINARY, b"question")
    running.program.shutdown(socket.SHUT_WR)
    assert server.receive() == (TEXT, END)
    server.send(b"ans", last=False)
    server.send(b"", PING)
    server.send(b"wer", CONTINUATION)
    assert server.receive() == (PONG, b"")
    with running.program.makefile("rb") as file:
        assert file.read(6) == b"answer"
    server.send(END, TEXT)
    assert running.program.recv(1) == b""
    assert server.receive() == (CLOSE, NORMAL)
    server.socket.close()
    assert running.ended() is True


def test_what_nobody_reads_is_not_taken_from_the_server(server: Server, running: Running) -> None:
    server.socket.setblocking(False)
    frame = frame_head(BINARY, 65536) + bytes(65536)
    sent, idle = 0, threading.Event()
    while not idle.wait(0.05):
        before = sent
        try:
            while True:
                sent += server.socket.send(frame[sent % len(frame) :])
        except BlockingIOError:
            if sent == before:
                break
    kernel = 4 * 1024 * 1024
    assert BUFFER <= sent < BUFFER + kernel


@pytest.mark.parametrize(
    ("frame", "in_order"),
    [
        (frame_head(CLOSE, 2) + NORMAL, True),
        (frame_head(CLOSE, 2) + (1008).to_bytes(2, "big"), False),
        (frame_head(BINARY, 1, b"abcd") + b"x", False),
        (frame_head(BINARY, 1 << 40), False),
        (frame_head(TEXT, 1) + b"{", True),
        (b"", False),
    ],
    ids=["normal", "key revoked", "masked", "too long", "no JSON", "connection lost"],
)
def test_how_it_ends_is_known(
    server: Server, running: Running, frame: bytes, in_order: bool
) -> None:
    server.socket.sendall(frame)
    server.socket.shutdown(socket.SHUT_WR)
    assert running.ended() is in_order
    assert running.program.recv(1) == b""


def test_a_program_that_is_gone_ends_the_tunnel(server: Server, running: Running) -> None:
    running.program.close()
    server.send(b"x" * 65536)
    kinds = {server.receive()[0] for _ in range(2)}
    assert CLOSE in kinds
    server.socket.close()
    assert running.ended() is True


def test_a_server_that_is_silent_for_too_long_is_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net_relay, "BEAT", 0.02)
    monkeypatch.setattr(net_relay, "SILENCE", 0.1)
    running = Running(server)
    assert server.receive() == (PONG, b"")  # a sign of life of ours
    assert running.ended() is False
    running.program.close()


def test_keys_and_sizes_of_a_terminal(server: Server) -> None:
    master, slave = os.openpty()
    os.set_blocking(master, False)
    seen: list[object] = []
    relay = Relay(server.websocket, FileEnd(master, master), on_control=seen.append)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    server.send(json.dumps({"resize": [3, 4]}).encode(), TEXT)
    server.send(b"a line\r")
    assert os.read(slave, 100) == b"a line\n"
    got = b""
    while got != b"a line\r\n":  # the echo
        got += server.receive()[1]
    os.write(slave, b"last")
    os.close(slave)
    assert server.receive() == (BINARY, b"last")
    assert server.receive() == (TEXT, END)
    server.socket.close()
    thread.join(10)
    os.close(master)
    assert not thread.is_alive()
    assert seen == [{"resize": [3, 4]}]


def test_what_comes_together_with_the_response_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    response = Switched(ours)
    response._stream._buffer += frame_head(BINARY, 5) + b"early"
    websocket = WebSocket(response, Endpoint("http://127.0.0.1:1", "", ""))
    assert websocket.has_more
    assert websocket.receive() == [(BINARY, b"early")]
    assert not websocket.has_more
    theirs.close()
    websocket.close()


def test_only_what_others_could_read_is_masked() -> None:
    for url, is_masked in (("http://10.0.0.1:80", True), ("https://10.0.0.1", False)):
        server = Server(url)
        server.websocket.send(b"hello" * 100)
        raw = server.socket.recv(1000)
        assert (b"hello" not in raw) is is_masked
        server.socket.close()
        server.websocket.close()
