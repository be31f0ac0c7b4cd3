"""One kept connection of HTTP/1.1, as little of it as an object store needs.

The standard client spends most of a small request on the headers of its answer; with 16 threads
that is more than the request itself. Here an answer is split, not parsed: a length, chunks or the
end of the connection say where its body ends. Anything that is not HTTP is an OSError, and the
connection is of no further use.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""A server that says nothing for so long is taken for gone."""
_HEAD_BYTES = 64 * 1024
_RECEIVE = 256 * 1024
_JOIN = 64 * 1024
"""A body up to this size goes out together with its head."""
_PIECE = 256 * 1024
"""So much of a body is given to the socket at once. A time limit counts for each piece, so that a
slow way is told from a silent server."""


class Ended(ConnectionError):
    """The server closed the connection in the place of an answer."""


class Response:
    def __init__(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        """Names in small letters."""
        self._connection = connection
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        self._left = 0 if self._chunked else int(length) if length.isdigit() else -1
        """Bytes of the body, or of this chunk, that are still to come; -1: until the end."""
        self._keeps = headers.get("connection", "").lower() != "close" and self._left >= 0
        self.ended = self._left == 0 and not self._chunked

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self.ended and self._keeps

    def without_body(self) -> Response:
        self.ended, self._chunked = True, False
        self._keeps = self.headers.get("connection", "").lower() != "close"
        return self

    def read(self, most: int) -> bytes:
        """Some of the next bytes; none at the end of the body. OSError when it ends too early."""
        if self._chunked and not self.ended and self._left == 0:
            self._next_chunk()
        if self.ended:
            return b""
        data = self._connection.receive(most if self._left < 0 else min(most, self._left))
        if self._left >= 0:
            if not data:
                raise ConnectionError(f"the connection ended {self._left} bytes early")
            self._left -= len(data)
            if self._left == 0 and self._chunked:
                self._connection.line()
            self.ended = self._left == 0 and not self._chunked
        elif not data:
            self.ended = True
        return data

    def read_all(self, most: int = 1 << 62) -> bytes:
        """The rest of the body, or as much of it as is allowed."""
        pieces: list[bytes] = []
        while most > 0 and (data := self.read(min(most, _RECEIVE))):
            pieces.append(data)
            most -= len(data)
        return b"".join(pieces)

    def _next_chunk(self) -> None:
        size = self._connection.line().partition(b";")[0]
        try:
            self._left = int(size, 16)
        except ValueError:
            raise ConnectionError(f"no chunk: {size[:40]!r}") from None
        if self._left == 0:
            while self._connection.line():
                pass
            self.ended = True


class Connection:
    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        connect: float = CONNECT_SECONDS,
        silent: float = SILENT_SECONDS,
    ) -> None:
        """`connect`: seconds for the connection; `silent`: for each piece that goes either way."""
        plain = socket.create_connection((host, port), connect)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        self._socket.settimeout(silent)
        self._ahead = b""
        """Received and not yet asked for."""

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | bytearray
    ) -> Response:
        """Send a request and read the head of its answer."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        if body or method in ("PUT", "POST"):
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        whole = self._send(head, body)
        status, answered = self._head()
        while status < 200:
            status, answered = self._head()
        if not whole:
            answered["connection"] = "close"
        response = Response(self, status, answered)
        no_body = method == "HEAD" or status in (204, 304)
        return response.without_body() if no_body else response

    def receive(self, most: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:most], self._ahead[most:]
            return data
        return self._socket.recv(min(most, _RECEIVE))

    def wait_at_most(self, silent: float) -> None:
        """Seconds for each piece that goes either way from now on."""
        self._socket.settimeout(silent)

    def line(self) -> bytes:
        while b"\r\n" not in self._ahead:
            self._more(b"\r\n")
        line, _, self._ahead = self._ahead.partition(b"\r\n")
        return line

    def close(self) -> None:
        self._socket.close()

    def _send(self, head: bytes, body: bytes | bytearray) -> bool:
        """False when the server did not want all of it: then it has said why."""
        with suppress(BrokenPipeError, ConnectionResetError):
            if len(body) <= _JOIN:
                self._socket.sendall(head + body)
            else:
                self._socket.sendall(head)
                with memoryview(body) as view:
                    for at in range(0, len(view), _PIECE):
                        self._socket.sendall(view[at : at + _PIECE])
            return True
        return False

    def _head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._ahead:
            self._more(b"\r\n\r\n")
        head, _, self._ahead = self._ahead.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ConnectionError(f"no HTTP answer: {first[:80]!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(words[1]), headers

    def _more(self, end: bytes) -> None:
        data = self._socket.recv(_RECEIVE)
        if not data:
            raise Ended("the connection ended without an answer")
        self._ahead += data
        if len(self._ahead) > _HEAD_BYTES + _RECEIVE and end not in self._ahead:
            raise ConnectionError("the head of an answer has no end")
