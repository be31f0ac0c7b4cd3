"""Forwards local ports to ports of a worker (`port-forward`), each connection by its own tunnel.

The tunnel goes to the server, which asks the agent of the worker to connect from its side: nothing
dials in to the machine of the worker. A thread accepts connections, and each one gets a thread.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from errno import EACCES, EADDRINUSE

from paddlecloud.client import response_schemas
from paddlecloud.client.exec import OPEN_SECONDS
from paddlecloud.model.errors import Conflict, Invalid, NotFound, PaddleCloudError
from paddlecloud.net.tunnel_end import Relay, SocketEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from paddlecloud.client.sdk import Client

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_MOST_PORT = 65_535
#: Errors after which no further connection can work: the job or the worker is over.
_FINAL = ("exec_not_running", "tunnel_worker_over", "worker_unknown")


class PortForward:
    """Ports of this machine that lead to ports of a worker, until `close`."""

    def __init__(
        self,
        client: Client,
        job: str,
        ports: Sequence[tuple[int, int]],
        *,
        worker: str | None = None,
        address: str = LOOPBACK,
        on_error: Callable[[PaddleCloudError], object] = lambda _: None,
    ) -> None:
        """`job` is the path of a job. `ports` are pairs of a local port (0: any free one) and one
        of the worker. `on_error` is called when a connection could not be forwarded, in its thread.
        """
        self._client = client
        found = client.transport.get(
            f"{job}/port_forward", {"worker": worker}, schema=response_schemas.PORT_FORWARD
        )
        self.job_id, self.worker = str(found["job_id"]), str(found["worker"])
        self._on_error = on_error
        self._over = threading.Event()
        self.error: PaddleCloudError | None = None
        """Why it has ended by itself."""
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listeners: list[socket.socket] = []
        self.ports: list[tuple[int, int]] = []
        """Local and remote port of each pair."""
        try:
            for local, remote in ports:
                listener = _listen(address, local, remote)
                self._listeners.append(listener)
                self.ports.append((int(listener.getsockname()[1]), remote))
        except BaseException:
            self.close()
            raise
        for listener, (_, remote) in zip(self._listeners, self.ports, strict=True):
            threading.Thread(target=self._accept, args=(listener, remote), daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended, by `close` or because the worker has, within so many seconds."""
        return self._over.wait(seconds)

    def close(self) -> None:
        """Close the local ports and all connections."""
        self._over.set()
        with self._lock:
            open_ones, self._connections = [*self._connections], set()
        for one in (*self._listeners, *open_ones):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            if one in self._listeners:
                one.close()

    def __enter__(self) -> PortForward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self, listener: socket.socket, remote: int) -> None:
        while not self._over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._over.wait(0.1):  # closed; else too many open files
                    return
                continue
            threading.Thread(target=self._forward, args=(connection, remote), daemon=True).start()

    def _forward(self, connection: socket.socket, remote: int) -> None:
        """The body of the thread of one connection."""
        with self._lock:
            self._connections.add(connection)
        try:
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                query = {"port": remote, "worker": self.worker}
                path = f"/jobs/{self.job_id}/tunnel"
                tunnel = self._client.transport.websocket(path, query, OPEN_SECONDS)
                Relay(tunnel, SocketEnd(connection)).run()
        except PaddleCloudError as error:
            if not self._over.is_set():
                self._on_error(error)
            if error.code in _FINAL or isinstance(error, NotFound):
                self.error = error
                self.close()
        except OSError:
            pass  # the local program has closed the connection
        finally:
            with self._lock:
                self._connections.discard(connection)


def parse_ports(words: Sequence[str | int]) -> list[tuple[int, int]]:
    """Pairs of local and remote ports of `8888` or `18888:8888`; Invalid names the wrong word."""
    if not words:
        raise Invalid("port_forward_missing")
    pairs = []
    for word in map(str, words):
        local, colon, remote = word.rpartition(":")
        if not colon:
            local = remote
        numbers = [int(each) if _is_number(each) else -1 for each in (local, remote)]
        if not (0 <= numbers[0] <= _MOST_PORT and 0 < numbers[1] <= _MOST_PORT):
            raise Invalid("port_forward_ports", word=word[:50] or '""')
        pairs.append((numbers[0], numbers[1]))
    return pairs


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _listen(address: str, port: int, remote: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows lets two programs share a port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        other = port + 10_000 if port <= _MOST_PORT - 10_000 else port - 10_000
        values: dict[str, Any] = {"port": port, "other": other, "remote": remote}
        if error.errno == EADDRINUSE:
            raise Conflict("port_forward_in_use", **values) from error
        if error.errno == EACCES:
            raise Conflict("port_forward_forbidden", **values) from error
        reason = error.strerror or str(error)
        raise Conflict("port_forward_address", address=address, port=port, reason=reason) from error
    return listener
