"""An open socket that never blocks and never waits without a limit.

What `http.py` needs of the network, and nothing of HTTP but the sight of an answer that begins
while a request is still being sent. Every failure of the network leaves as Unreachable. `_socket`
is what `socket` is built on; the module itself would load enum and selectors, 9 ms of every command
for names that we do not use.
"""

from __future__ import annotations

import _socket
import os
import select
from errno import EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS
from time import monotonic

from paddlecloud.model.errors import ConfigError, Invalid, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from typing import TypeAlias

    Tls: TypeAlias = "bool | str | ssl.SSLContext"

#: The head of an answer, its trailers, or one line of a chunked body may have this many bytes.
MAX_HEAD = 64 * 1024
#: What one system call moves at most; between two of them an early answer is looked for.
BLOCK = 1024 * 1024


def connect(host: str, port: int, tls: Tls, timeout: float) -> Wire:
    """A wire to the first address of `host` that answers.

    `tls` may be the file with the certificates of the issuers to trust, instead of the system's.
    """
    address = authority(host, port)
    try:
        sock = _dial(host, port, timeout)
        if not tls:
            sock.setblocking(False)
            return Wire(sock, (BlockingIOError,), address, timeout)
        return _secure(sock, host, tls, address, timeout)
    except TimeoutError as error:
        raise Unreachable("server_timeout", address=address, seconds=timeout) from error
    except (OSError, UnicodeError) as error:
        if getattr(error, "library", None) or hasattr(error, "verify_code"):
            raise _insecure(error, address) from error
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable("server_unreachable", address=address, reason=reason) from error


def authority(host: str, port: int, default: int = 0) -> str:
    """`host:port`, without the port if it is the default one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == default else f"{name}:{port}"


def shrank(sent: int, size: int) -> Invalid:
    """The body ended before the size that was announced for it."""
    return Invalid("body_shrank", sent=sent, size=size)


class Wire:
    """The socket, with what was read ahead of what was asked for."""

    def __init__(
        self, sock: _socket.socket, again: tuple[type[OSError], ...], address: str, timeout: float
    ) -> None:
        self._sock = sock
        #: What the socket raises instead of waiting.
        self._again = again
        self._address = address
        self._ahead = bytearray()
        self._ended = False
        self.timeout = timeout
        #: Nothing of the answer has come yet.
        self.silent = True
        self.can_sendfile = len(again) == 1 and hasattr(os, "sendfile")

    def close(self) -> None:
        self._sock.close()

    def closed(self) -> Unreachable:
        return Unreachable("server_closed", address=self._address)

    def malformed(self, detail: str) -> Unreachable:
        return Unreachable("server_malformed", address=self._address, detail=detail)

    def is_stale(self) -> bool:
        """Whether an idle connection was closed, by either side, or the peer spoke unasked."""
        try:
            return self._read_ahead() or self._ended
        except Unreachable:
            return True

    def send(self, data: bytes | bytearray | memoryview, *, in_turn: bool = False) -> bool:
        """Send everything; False as soon as the peer went away, or answered, unless it is known to
        say nothing before its turn."""
        view = memoryview(data)

        def step(done: int) -> int:
            try:
                return self._sock.send(view[done : done + BLOCK])
            except self._again:
                raise
            except OSError as error:
                raise ConnectionError from error

        return self._push(len(view), step, in_turn)

    def sendfile(self, fd: int, start: int, size: int) -> bool:
        """Like `send`, from a file, without the bytes passing through this process."""

        def step(done: int) -> int:
            try:
                sent = os.sendfile(self._sock.fileno(), fd, start + done, min(BLOCK, size - done))
            except OSError as error:
                if error.errno in _NETWORK or isinstance(error, TimeoutError):
                    raise ConnectionError from error
                raise
            if not sent:
                raise shrank(done, size)
            return sent

        return self._push(size, step)

    def answered(self) -> bool:
        """Whether sending is pointless by now; interim answers (1xx) do not count."""
        self._read_ahead()
        while self._ahead.startswith(_INTERIM) and b"\n\r\n" in self._ahead:
            self.head()
        begun = bytes(self._ahead[: len(_INTERIM)])
        return self._ended or not _INTERIM.startswith(begun)

    def await_answer(self) -> None:
        """Wait until there is something to take, where nothing can be there yet but the line end
        of what came before."""
        if len(self._ahead) <= len(b"\r\n"):
            self._wait(_READ, monotonic() + self.timeout)

    def take(self, size: int) -> bytes:
        """Up to `size` bytes as soon as there are some; b"" when the peer closed."""
        if not self._ahead:
            return self._receive(size, monotonic() + self.timeout)
        piece = bytes(self._ahead[:size])
        del self._ahead[:size]
        return piece

    def line(self) -> bytes:
        """The next line without its end."""
        return self._until(b"\n", b"", "a line without an end").rstrip(b"\r\n")

    def head(self) -> list[str]:
        """The lines of the head of an answer."""
        block = self._until(b"\n\r\n", b"HTTP/1.", "headers without an end")
        return block.decode("latin-1").replace("\r\n", "\n").rstrip("\n").split("\n")

    def _push(self, size: int, step: Callable[[int], int], in_turn: bool = False) -> bool:
        done = 0
        deadline = monotonic() + self.timeout
        while done < size:
            try:
                done += step(done)
            except self._again:
                if not in_turn and self.answered():
                    return False
                self._wait(_WRITE if in_turn else _READ | _WRITE, deadline)
                continue
            except ConnectionError:
                return False
            if done < size and not in_turn and self.answered():
                return False
            deadline = monotonic() + self.timeout
        return True

    def _read_ahead(self) -> bool:
        try:
            data = self._recv(MAX_HEAD)
        except self._again:
            return False
        self._ahead += data
        return bool(data)

    def _until(self, end: bytes, start: bytes, complaint: str) -> bytes:
        """Everything up to and with `end`; the whole of it has to come within one timeout."""
        deadline = monotonic() + self.timeout
        while (found := self._ahead.find(end)) < 0:
            if not start.startswith(begun := bytes(self._ahead[: len(start)])):
                raise self.malformed(repr(begun))
            if len(self._ahead) > MAX_HEAD:
                raise self.malformed(complaint)
            data = self._receive(MAX_HEAD, deadline)
            if not data:
                raise self.closed()
            self._ahead += data
        block = bytes(self._ahead[: found + len(end)])
        del self._ahead[: found + len(end)]
        return block

    def _receive(self, size: int, deadline: float) -> bytes:
        while True:
            try:
                return self._recv(size)
            except self._again:
                self._wait(_READ, deadline)

    def _recv(self, size: int) -> bytes:
        if self._ended:
            return b""
        try:
            data = self._sock.recv(size)
        except self._again:
            raise
        except OSError as error:
            raise self.closed() from error
        self._ended = not data
        self.silent = self.silent and not data
        return data

    def _wait(self, what: int, deadline: float) -> None:
        left = deadline - monotonic()
        if left <= 0 or not _poll(self._sock.fileno(), what, left):
            raise Unreachable("server_timeout", address=self._address, seconds=self.timeout)


_READ, _WRITE = 1, 2
_INTERIM = b"HTTP/1.1 1"
_NETWORK = (EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS)


def _poll(fd: int, what: int, seconds: float) -> bool:
    if not hasattr(select, "poll"):  # Windows
        reading = [fd] if what & _READ else []
        writing = [fd] if what & _WRITE else []
        return any(select.select(reading, writing, [], seconds))
    poll = select.poll()
    poll.register(
        fd, (select.POLLIN if what & _READ else 0) | (select.POLLOUT if what & _WRITE else 0)
    )
    return bool(poll.poll(seconds * 1000))


def _dial(host: str, port: int, timeout: float) -> _socket.socket:
    """Try each address of the name in turn."""
    # Text would be encoded by the idna codec, whose tables take milliseconds to load.
    name = host.encode() if host.isascii() else host
    last = OSError(f"{host} has no address")
    for found in _socket.getaddrinfo(name, port, 0, _socket.SOCK_STREAM):
        family, kind, protocol, _, where = found
        sock = _socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(where)
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    raise last


def _secure(sock: _socket.socket, host: str, tls: Tls, address: str, timeout: float) -> Wire:
    import socket  # noqa: PLC0415 - 9 ms that only https needs
    import ssl  # noqa: PLC0415 - 20 ms that only https needs

    plain = socket.socket(fileno=sock.detach())
    try:
        context = tls if isinstance(tls, ssl.SSLContext) else _context(tls)
        plain.settimeout(timeout)
        secured = context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    secured.setblocking(False)
    again = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
    return Wire(secured, again, address, timeout)


def _context(tls: bool | str) -> ssl.SSLContext:
    """Made once for each set of issuers: reading the system's takes milliseconds."""
    import ssl  # noqa: PLC0415 - 20 ms that only https needs

    found = _contexts.get(tls)
    if found is None:
        try:
            found = ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError("ca_file_unusable", path=tls, reason=reason) from error
        _contexts[tls] = found
    return found


_contexts: dict[bool | str, ssl.SSLContext] = {}


def _insecure(error: BaseException, address: str) -> Unreachable:
    """What is wrong with the other side's TLS, told apart by what to do about it."""
    number = getattr(error, "verify_code", None)
    said = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
    if number in _OUT_OF_DATE:
        return Unreachable("server_cert_expired", address=address)
    if number in _OTHER_NAME:
        return Unreachable("server_cert_name", address=address, reason=said)
    if number is not None:
        return Unreachable("server_cert_issuer", address=address, reason=said)
    return Unreachable("server_no_tls", address=address, reason=said)


#: Numbers of OpenSSL: not yet valid, expired; name, address do not match.
_OUT_OF_DATE = (9, 10)
_OTHER_NAME = (62, 64)
