"""Which of several addresses is connected to, and how long a silent one delays that."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from paddlecloud.client.transport import Transport
from paddlecloud.model.errors import Unreachable
from paddlecloud.net import _sockets
from paddlecloud.net.endpoint import Endpoint
from paddlecloud.net.retry import ONCE, is_transient

NEAR, FAR = "127.0.0.1", "127.0.0.2"


@contextmanager
def silent(port: int = 0) -> Iterator[int]:
    """A port at FAR that answers no SYN, as behind a dead route: its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((FAR, port))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield int(listener.getsockname()[1])


def seconds_to_connect(port: int, *ips: str, timeout: float = 30.0) -> float:
    began = time.monotonic()
    stream = _sockets.connect("a.example", port, False, timeout, ips=ips)
    spent = time.monotonic() - began
    assert stream._sock.getpeername()[0] == NEAR
    stream.close()
    return spent


def test_a_silent_address_costs_a_quarter_of_a_second() -> None:
    with socket.create_server((NEAR, 0)) as listener:
        port = listener.getsockname()[1]
        with silent(port):
            spent = seconds_to_connect(port, FAR, NEAR)
            assert _sockets.STAGGER <= spent < 10
            assert seconds_to_connect(port, NEAR, FAR) < _sockets.STAGGER


def test_one_that_refuses_costs_nothing() -> None:
    with socket.create_server((NEAR, 0)) as listener:
        port = listener.getsockname()[1]
        assert seconds_to_connect(port, FAR, FAR, FAR, NEAR) < _sockets.STAGGER


def test_none_that_answers_is_a_timeout() -> None:
    with silent() as port, pytest.raises(Unreachable) as caught:
        _sockets.connect("a.example", port, False, 0.05, ips=(FAR, FAR))
    assert caught.value.code == "server_timeout"


def test_the_reason_is_that_of_an_address_that_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = _sockets._begin

    def without_a_route(family: int, address: Any) -> socket.socket:
        if address[0] == FAR:
            raise OSError(101, "Network is unreachable")
        return begin(family, address)

    monkeypatch.setattr(_sockets, "_begin", without_a_route)
    with socket.create_server((NEAR, 0)) as listener:
        port = listener.getsockname()[1]
    for ips in ((FAR, NEAR), (NEAR, FAR)):
        with pytest.raises(Unreachable, match="Connection refused"):
            _sockets.connect("a.example", port, False, 5, ips=ips)
    with pytest.raises(Unreachable, match="Network is unreachable"):
        _sockets.connect("a.example", port, False, 5, ips=(FAR,))


def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(socket.AF_INET6, "six-1"), (socket.AF_INET6, "six-2"), (socket.AF_INET, "four")]

    def found(*_: object, **__: object) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", (name, 80)) for family, name in rows]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    addresses: list[Any] = [address for _, address in _sockets._addresses(["x"], 80)]
    assert [name for name, _ in addresses] == ["six-1", "four", "six-2"]


@contextmanager
def answering(said: bytes) -> Iterator[int]:
    """A server that answers every connection with these bytes, whatever it gets."""
    with socket.create_server((NEAR, 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with peer, suppress(OSError):
                        peer.recv(65536)
                        peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)


NGINX = b"<center>The plain HTTP request was sent to HTTPS port</center>"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x28", "server_wants_tls"),
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 62\r\n\r\n" + NGINX, "server_wants_tls"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "server_malformed"),
        (b"", "server_closed"),
    ],
    ids=["alert", "page", "ssh", "closed"],
)
def test_http_to_a_port_with_tls(said: bytes, code: str) -> None:
    with answering(said) as port:
        endpoint = Endpoint(f"http://{NEAR}:{port}", "a", "s")
        transport = Transport(lambda failed, wake: endpoint)
        with pytest.raises(Unreachable) as caught:
            transport.open("/x", policy=ONCE)
        transport.close()
    assert caught.value.code == code
    assert is_transient(caught.value) == (code != "server_wants_tls")


def test_https_to_a_port_without_tls() -> None:
    said = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    with answering(said) as port, pytest.raises(Unreachable) as caught:
        _sockets.connect(NEAR, port, True, 10)
    assert caught.value.code == "server_plain"
    assert not is_transient(caught.value)
