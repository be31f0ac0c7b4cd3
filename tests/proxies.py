"""A little HTTP proxy for tests: tunnels (CONNECT), absolute-form requests, a password, refusals.

Every name leads to one server on this machine, so that tests need no names of the outside.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self


class _Relay:
    """Accepts connections and passes them on to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.tunnelled = bytearray()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(peer,)))
                self._threads[-1].start()

    def _serve(self, peer: socket.socket) -> None:
        raise NotImplementedError

    def _copy(self, peer: socket.socket, server: socket.socket, noted: bytearray) -> None:
        def back() -> None:
            with suppress(OSError):
                while data := server.recv(65536):
                    peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=back)
        thread.start()
        with suppress(OSError):
            while data := peer.recv(65536):
                noted += data
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        thread.join(60)


class TlsFront(_Relay):
    """Terminates TLS, as nginx does, and passes on what it gets."""

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        super().__init__(port)

    def _serve(self, peer: socket.socket) -> None:
        with (
            suppress(OSError),
            self._context.wrap_socket(peer, server_side=True) as secured,
            socket.create_connection(("127.0.0.1", self._port)) as server,
        ):
            other: dict[socket.socket, socket.socket] = {secured: server, server: secured}
            while True:
                waiting = [secured] if secured.pending() else select.select([*other], [], [])[0]
                for source in waiting:
                    if not (data := source.recv(65536)):
                        return
                    other[source].sendall(data)


class LittleProxy(_Relay):
    """`seen` has the request lines that came; `port` is where all of them lead."""

    def __init__(self, port: int, authorization: str = "", refusal: int = 0) -> None:
        self.seen: list[str] = []
        self._authorization = authorization
        self._refusal = refusal
        super().__init__(port)
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := peer.recv(65536)):
                    return
                head += data
            head, _, rest = head.partition(b"\r\n\r\n")
            line, *headers = head.decode("latin-1").split("\r\n")
            self.seen.append(line)
            status = self._status(headers)
            if status:
                peer.sendall(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status)
                return
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                if line.startswith("CONNECT "):
                    peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    self._copy(peer, server, self.tunnelled)
                else:
                    while len(rest) < _body_length(headers):  # it may follow its head later
                        rest += peer.recv(65536)
                    server.sendall(_origin_form(line, headers) + rest)
                    first = server.recv(65536).partition(b"\r\n")
                    # One request for each connection is enough.
                    peer.sendall(first[0] + b"\r\nconnection: close\r\n" + first[2])
                    self._copy(peer, server, bytearray())

    def _status(self, headers: list[str]) -> int:
        if self._authorization:
            given = [each for each in headers if each.startswith("proxy-authorization: ")]
            if given != [f"proxy-authorization: {self._authorization}"]:
                return 407
        return self._refusal


def _body_length(headers: list[str]) -> int:
    names = (each.partition(": ") for each in headers)
    return next((int(value) for name, _, value in names if name.lower() == "content-length"), 0)


def _origin_form(line: str, headers: list[str]) -> bytes:
    """The request as a proxy passes it on."""
    method, target, version = line.split(" ")
    path = "/" + target.split("/", 3)[3]
    kept = [each for each in headers if not each.startswith("proxy-")]
    return "\r\n".join([f"{method} {path} {version}", *kept, "", ""]).encode("latin-1")


@contextmanager
def proxying(port: int, authorization: str = "", refusal: int = 0) -> Iterator[LittleProxy]:
    proxy = LittleProxy(port, authorization, refusal)
    try:
        yield proxy
    finally:
        proxy.stop()
