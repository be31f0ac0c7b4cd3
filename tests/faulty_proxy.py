"""A proxy that damages, cuts or refuses the bytes that pass through it, as a test sets it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Filter = Callable[[bytes], bytes | None]
"""What the proxy passes on for the bytes it received; None cuts the connection."""


def as_it_is(data: bytes) -> bytes:
    return data


class FaultyProxy:
    """Listens on a port of its own; `there` and `back` can be changed at any time."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.there: Filter = as_it_is
        self.back: Filter = as_it_is
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(self._server, 10)
            self._open += [near, far]
            for source, target, name in ((near, far, "there"), (far, near, "back")):
                threading.Thread(target=self._carry, args=(source, target, name)).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _carry(self, source: socket.socket, target: socket.socket, name: str) -> None:
        with suppress(OSError):
            while data := source.recv(64 * 1024):
                passed = getattr(self, name)(data)
                if passed is None:
                    break
                target.sendall(passed)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    """A way to the server at `endpoint`, http://host:port."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    way = FaultyProxy(host, int(port))
    thread = threading.Thread(target=way.run)
    thread.start()
    try:
        yield way
    finally:
        way.close()
        thread.join()
