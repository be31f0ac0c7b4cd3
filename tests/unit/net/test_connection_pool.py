"""Connections that threads share: kept when a response was read, and given to one request each."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from paddlecloud.model.errors import Unreachable
from paddlecloud.net.connection_pool import Pool


class Server:
    """Answers every request with two bytes, or cuts the response short."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.body = b"ok"
        self.length = 2
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self.connections += 1
                self._threads.append(threading.Thread(target=self._serve, args=(peer,)))
                self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while data := peer.recv(65536):
                self.requests.append(data)
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % self.length
                peer.sendall(head + self.body)
                if self.length > len(self.body):
                    return


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()


def test_a_connection_is_kept_when_its_response_was_read() -> None:
    with serving() as server, Pool() as pool:
        for _ in range(3):
            assert pool.request("GET", f"{server.url}/a?b=c").read() == b"ok"
        assert server.connections == 1
        assert server.requests[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")


def test_two_responses_at_once_have_two_connections() -> None:
    with serving() as server, Pool() as pool:
        first = pool.request("GET", f"{server.url}/")
        second = pool.request("GET", f"{server.url}/")
        assert (second.read(), first.read()) == (b"ok", b"ok")
        for _ in range(2):
            pool.request("GET", f"{server.url}/").read()
        assert server.connections == 2


def test_a_response_that_was_not_read_costs_its_connection() -> None:
    with serving() as server, Pool() as pool:
        with pool.request("GET", f"{server.url}/") as response:
            assert response.take(1) == b"o"
        assert pool.request("GET", f"{server.url}/").take(9) == b"ok"
        assert server.connections == 2


def test_a_response_that_is_cut_costs_its_connection() -> None:
    with serving() as server, Pool() as pool:
        server.length = 5
        with pytest.raises(Unreachable, match="closed the connection"):
            pool.request("GET", f"{server.url}/").read()
        server.length = 2
        assert pool.request("GET", f"{server.url}/").read() == b"ok"


def test_servers_have_connections_of_their_own() -> None:
    with serving() as one, serving() as other, Pool() as pool:
        for _ in range(2):
            pool.request("GET", f"{one.url}/one").read()
            pool.request("GET", f"{other.url}/other").read()
        assert (one.connections, other.connections) == (1, 1)
        assert all(b"GET /one " in request for request in one.requests)


def test_no_more_connections_are_kept_than_allowed_and_none_after_the_end() -> None:
    with serving() as server:
        pool = Pool(keep=1)
        responses = [pool.request("GET", f"{server.url}/") for _ in range(3)]
        for response in responses:
            response.read()
        assert [len(idle) for idle in pool._idle.values()] == [1]
        late = pool.request("GET", f"{server.url}/")
        pool.close()
        assert late.read() == b"ok"
        assert not any(pool._idle.values())


def test_a_child_process_does_not_use_the_connections_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as server, Pool() as pool:
        pool.request("GET", f"{server.url}/").read()
        kept = next(iter(pool._idle.values()))[0]
        monkeypatch.setattr(os, "getpid", lambda: -1)
        pool.request("GET", f"{server.url}/").read()
        assert server.connections == 2
        kept.close()


def test_the_caller_is_told_when_a_request_goes_out() -> None:
    sent: list[int] = []
    with serving() as server, Pool() as pool:
        pool.request("GET", f"{server.url}/", on_send=lambda: sent.append(1)).read()
        gone = server.url
    with Pool() as pool, pytest.raises(Unreachable):
        pool.request("GET", f"{gone}/", on_send=lambda: sent.append(2))
    assert sent == [1]


class Snatched(list[Any]):
    """Another thread takes the last connection between the look at it and the taking."""

    def __bool__(self) -> bool:
        found = len(self) > 0
        while len(self):
            self.pop().close()
        return found


def test_two_threads_that_want_the_last_connection_both_get_one() -> None:
    with serving() as server:
        pool = Pool()
        pool.request("GET", f"{server.url}/").read()
        for origin, idle in pool._idle.items():
            pool._idle[origin] = Snatched(idle)
        pool.close()
        assert pool.request("GET", f"{server.url}/").read() == b"ok"
