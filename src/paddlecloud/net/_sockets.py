"""A connected socket, plain or TLS, with timeouts and a read buffer.

The socket never blocks without a limit, and notices a response that begins while the request is
still being sent: a server that refuses a large upload halfway is not reported as a broken pipe.
Every failure of the network is raised as Unreachable.
"""

from __future__ import annotations

import os
import select
import socket
from errno import EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS
from time import monotonic

from paddlecloud.model.errors import Invalid, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from paddlecloud.net.proxy import Proxy

    Tls: TypeAlias = "bool | str | ssl.SSLContext"
    """True, or a file with the certificates of the issuers to trust instead of the system's."""

#: Most bytes of the head of a response, of its trailers, and of one line of a chunked body.
MAX_HEAD = 64 * 1024
#: Most bytes of one system call; between two of them the socket checks for an early response.
BLOCK = 1024 * 1024
#: Seconds after which the next address of a host is tried beside a silent one.
STAGGER = 0.25


def connect(
    host: str,
    port: int,
    tls: Tls,
    timeout: float,
    *,
    proxy: Proxy | None = None,
    ips: Sequence[str] = (),
    tunnels: bool = False,
) -> SocketStream:
    """Connect to the first address of `host` that accepts, or of `ips` under the name of the host.

    With a proxy, https goes through a tunnel, and plain HTTP to the proxy itself unless `tunnels`.
    `timeout` is for all of it.
    """
    address = authority(host, port)
    deadline = monotonic() + timeout
    try:
        sock = _dial_proxy(proxy, timeout) if proxy else _dial(ips or (host,), port, timeout)
        try:
            if proxy is not None and (tls or tunnels):
                _open_tunnel(sock, proxy, authority(ips[0] if ips else host, port), deadline)
            if tls:
                return _secure(sock, host, tls, address, deadline)
        except BaseException:
            sock.close()
            raise
        sock.setblocking(False)
        return SocketStream(sock, (BlockingIOError,), address, timeout)
    except TimeoutError as error:
        raise Unreachable("server_timeout", address=address, seconds=timeout) from error
    except (OSError, UnicodeError) as error:
        if getattr(error, "library", None) or hasattr(error, "verify_code"):
            from paddlecloud.net.tls import tls_error  # noqa: PLC0415 - as in `_secure`

            raise tls_error(error, address) from error
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable("server_unreachable", address=address, reason=reason) from error


def authority(host: str, port: int, default: int = 0) -> str:
    """`host:port`, without the port if it is the default one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == default else f"{name}:{port}"


def shrank(sent: int, size: int) -> Invalid:
    """The body ended before the size that was announced for it."""
    return Invalid("body_shrank", sent=sent, size=size)


class SocketStream:
    """A non-blocking socket and the bytes that were received but not yet read."""

    def __init__(
        self, sock: socket.socket, again: tuple[type[OSError], ...], address: str, timeout: float
    ) -> None:
        self._sock = sock
        #: What the socket raises instead of blocking.
        self._again = again
        self._address = address
        self._buffer = bytearray()
        self._ended = False
        #: Seconds without progress, and for a whole head or line.
        self.timeout = timeout
        #: No byte of the response has arrived yet.
        self.silent = True
        self.can_sendfile = len(again) == 1 and hasattr(os, "sendfile")

    def close(self) -> None:
        self._sock.close()

    def certificate(self) -> bytes:
        """The peer's certificate, as DER; empty without TLS."""
        found: bytes = getattr(self._sock, "getpeercert", lambda _: b"")(True)
        return found

    def take_socket(self) -> tuple[socket.socket, tuple[type[OSError], ...], bytes]:
        """The socket for another protocol, what it raises instead of blocking, and the bytes that
        were received but not read."""
        return self._sock, self._again, bytes(self._buffer)

    def closed(self) -> Unreachable:
        return Unreachable("server_closed", address=self._address)

    @property
    def address(self) -> str:
        return self._address

    def malformed(self, detail: str) -> Unreachable:
        return Unreachable("server_malformed", address=self._address, detail=detail)

    def is_stale(self) -> bool:
        """Whether an idle connection was closed, or the peer sent something unasked."""
        try:
            return self._receive_some() or self._ended
        except Unreachable:
            return True

    def send(self, data: bytes | bytearray | memoryview, *, in_turn: bool = False) -> bool:
        """Send everything; False as soon as the peer closed or responded (`in_turn`: the peer is
        known to send nothing before it has got everything)."""
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
        """Like `send`, from a file, without copying the bytes through this process."""

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

    @property
    def is_drained(self) -> bool:
        """Whether all that was received has been read."""
        return not self._buffer

    def answered(self) -> bool:
        """Whether the final response has begun, or the peer closed; never blocks."""
        self._receive_some()
        while self._buffer.startswith(_INTERIM) and b"\n\r\n" in self._buffer:
            self.head()
        begun = bytes(self._buffer[: len(_INTERIM)])
        return self._ended or not _INTERIM.startswith(begun)

    def take(self, size: int) -> bytes:
        """Up to `size` bytes as soon as there are some; b"" when the peer closed."""
        if not self._buffer:
            return self._receive(size, monotonic() + self.timeout)
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        return chunk

    def line(self) -> bytes:
        """The next line without its end."""
        return self._until(b"\n", b"", "a line without an end").rstrip(b"\r\n")

    def head(self) -> list[str]:
        """The lines of the head of a response."""
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
                self._wait(WRITE if in_turn else READ | WRITE, deadline)
                continue
            except ConnectionError:
                return False
            if done < size and not in_turn and self.answered():
                return False
            deadline = monotonic() + self.timeout
        return True

    def _receive_some(self) -> bool:
        try:
            data = self._recv(MAX_HEAD)
        except self._again:
            return False
        self._buffer += data
        return bool(data)

    def _until(self, end: bytes, start: bytes, complaint: str) -> bytes:
        """Everything up to and with `end`; all of it has to arrive within one timeout."""
        deadline = monotonic() + self.timeout
        while (found := self._buffer.find(end)) < 0:
            if not start.startswith(begun := bytes(self._buffer[: len(start)])):
                if begun.startswith(_TLS_ALERT) and len(self._again) == 1:
                    raise Unreachable("server_wants_tls", address=self._address)
                raise self.malformed(repr(begun))
            if len(self._buffer) > MAX_HEAD:
                raise self.malformed(complaint)
            data = self._receive(MAX_HEAD, deadline)
            if not data:
                raise self.closed()
            self._buffer += data
        block = bytes(self._buffer[: found + len(end)])
        del self._buffer[: found + len(end)]
        return block

    def _receive(self, size: int, deadline: float) -> bytes:
        while True:
            try:
                return self._recv(size)
            except self._again:
                self._wait(READ, deadline)

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
        if left <= 0 or not poll(self._sock.fileno(), what, left):
            raise Unreachable("server_timeout", address=self._address, seconds=self.timeout)


READ, WRITE = 1, 2
_INTERIM = b"HTTP/1.1 1"
_TLS_ALERT = b"\x15\x03"
_NETWORK = (EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENOBUFS)
_NO_ROUTE = (*_NETWORK, EADDRNOTAVAIL, EAFNOSUPPORT)


def poll(fd: int, what: int, seconds: float) -> bool:
    """Whether the descriptor can be read or written within so many seconds."""
    return bool(poll_all({fd: what}, seconds))


def poll_all(wanted: dict[int, int], seconds: float) -> dict[int, int]:
    """What can be done with these descriptors, of what is wanted, within so many seconds; where
    one has failed, everything, so that the next call raises the error."""
    if not hasattr(select, "poll"):  # Windows
        reading = [fd for fd, what in wanted.items() if what & READ]
        writing = [fd for fd, what in wanted.items() if what & WRITE]
        readable, writable, _ = select.select(reading, writing, [], seconds)
        able = {fd: READ for fd in readable}
        return able | {fd: able.get(fd, 0) | WRITE for fd in writable}
    poller = select.poll()
    for fd, what in wanted.items():
        if what:
            poller.register(
                fd, (select.POLLIN if what & READ else 0) | (select.POLLOUT if what & WRITE else 0)
            )
    return {
        fd: (READ if found & ~select.POLLOUT else 0) | (WRITE if found & ~select.POLLIN else 0)
        for fd, found in poller.poll(seconds * 1000)
    }


def _dial(hosts: Sequence[str], port: int, timeout: float) -> socket.socket:
    """A socket to the first address that accepts (RFC 8305): while one is silent, the next is tried
    every quarter of a second, so that a dead route costs no more than that."""
    deadline = monotonic() + timeout
    waiting = _addresses(hosts, port)
    trying: dict[int, socket.socket] = {}
    failed: OSError | None = None
    next_at = 0.0
    try:
        while waiting or trying:
            now = monotonic()
            if waiting and (now >= next_at or not trying):
                try:
                    sock = _begin(*waiting.pop(0))
                    trying[sock.fileno()] = sock
                    next_at = now + STAGGER
                except OSError as error:
                    failed = _better(failed, error)
                continue
            until = min(deadline, next_at) if waiting else deadline
            if now >= deadline:
                raise TimeoutError
            for fd in _connected([*trying], max(0.0, until - now)):
                sock = trying.pop(fd)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not number:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return sock
                sock.close()
                reason = getattr(socket, "errorTab", {}).get(number)  # Windows
                failed = _better(failed, OSError(number, reason or os.strerror(number)))
                next_at = 0.0
    finally:
        for sock in trying.values():
            sock.close()
    raise failed or OSError("the name has no address")


def _addresses(hosts: Sequence[str], port: int) -> list[tuple[int, object]]:
    """Family and address of each, the families in turns."""
    found: dict[int, list[tuple[int, object]]] = {}
    for host in hosts:
        # Text would load the idna codec, which costs milliseconds.
        name: str | bytes = host.encode() if host.isascii() else host
        for family, _, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM):
            found.setdefault(family, []).append((family, address))
    longest = max(map(len, found.values()), default=0)
    return [each[n] for n in range(longest) for each in found.values() if n < len(each)]


def _begin(family: int, address: object) -> socket.socket:
    """A socket that is connecting."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(address)  # type: ignore[arg-type] # as getaddrinfo returned it
    except (BlockingIOError, InterruptedError):
        pass
    except BaseException:
        sock.close()
        raise
    return sock


def _connected(fds: list[int], seconds: float) -> list[int]:
    """Which of these have connected or failed, as soon as one has."""
    if not hasattr(select, "poll"):  # Windows reports a failure as an exception
        _, done, failed = select.select([], fds, fds, seconds)
        return [*done, *(fd for fd in failed if fd not in done)]
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLOUT)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def _better(before: OSError | None, error: OSError) -> OSError:
    """The error to report: one of a machine that has no route by this family explains little."""
    return error if before is None or before.errno in _NO_ROUTE else before


def _dial_proxy(proxy: Proxy, timeout: float) -> socket.socket:
    try:
        return _dial((proxy.host,), proxy.port, timeout)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable("proxy_unreachable", proxy=proxy.address, reason=reason) from error


def _open_tunnel(sock: socket.socket, proxy: Proxy, target: str, deadline: float) -> None:
    """Have the proxy connect this socket to the target (CONNECT)."""
    if not target.isascii() or not target.isprintable() or " " in target:
        raise UnicodeError(f"not a host name: {target!r}")
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    sock.setblocking(False)
    stream = SocketStream(sock, (BlockingIOError,), proxy.address, deadline - monotonic())
    if not stream.send("\r\n".join([*lines, "", ""]).encode(), in_turn=True):
        raise stream.closed()
    status = stream.head()[0].partition(" ")[2][:3]
    if status == "407":
        raise Unreachable("proxy_auth", proxy=proxy.address)
    if not status.startswith("2") or not stream.is_drained:
        code = "proxy_failed" if status.startswith("5") else "proxy_refused"
        raise Unreachable(code, proxy=proxy.address, address=target, status=status)


def _secure(
    sock: socket.socket, host: str, tls: Tls, address: str, deadline: float
) -> SocketStream:
    """Make the TLS handshake; it has to be complete by the deadline, however the peer drips it."""
    import ssl  # noqa: PLC0415 - 20 ms that only https needs

    from paddlecloud.net.tls import context_for  # noqa: PLC0415 - the same

    context = tls if isinstance(tls, ssl.SSLContext) else context_for(tls)
    again = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
    sock.setblocking(False)
    secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secured.do_handshake()
                break
            except again as error:
                what = WRITE if isinstance(error, ssl.SSLWantWriteError) else READ
                left = deadline - monotonic()
                if left <= 0 or not poll(secured.fileno(), what, left):
                    raise TimeoutError from None
    except BaseException:
        secured.close()
        raise
    return SocketStream(secured, again, address, max(0.0, deadline - monotonic()))
