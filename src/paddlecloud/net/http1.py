"""The HTTP/1.1 client of everything: command line, SDK, agent and object stores.

One kept-alive connection, with strict parsing: bounded heads and lines, one Content-Length, decoded
chunks. An unexpected response is raised as Unreachable. The standard library's http.client takes
longer to import than most commands take to run, and reports a broken pipe where a server refuses a
large upload halfway. Follows no redirect. A connection belongs to one thread; `pool` shares
connections between threads.
"""

from __future__ import annotations

import io
import os
from errno import EINVAL, ENOSYS, EOPNOTSUPP

from paddlecloud.model.errors import Unreachable
from paddlecloud.net._sockets import BLOCK, MAX_HEAD, SocketStream, authority, connect, shrank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import IO, Any, TypeAlias

    from paddlecloud.net._sockets import Tls
    from paddlecloud.net.proxy import Proxy

    Body: TypeAlias = "bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes] | None"

#: Longest silence of the peer, and longest time for the head of its response, in seconds.
TIMEOUT = 30.0
_CHUNK = 256 * 1024
_SWITCHING = 101


class Connection:
    """A connection to one server, opened when first needed and reopened when it was lost."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: Tls = False,
        timeout: float = TIMEOUT,
        connect_timeout: float | None = None,
        *,
        proxy: Proxy | None = None,
        ips: Sequence[str] = (),
        switches: bool = False,
    ) -> None:
        """`ips`: addresses to connect to, instead of those that `host` resolves to. `switches`: the
        request asks for another protocol, which passes a proxy only by CONNECT."""
        self.host = host
        self.port = port
        self.timeout = timeout
        self.connect_timeout = timeout if connect_timeout is None else connect_timeout
        self._tls = tls
        self._proxy = proxy
        self._ips = ips
        self._switches = switches
        self._stream: SocketStream | None = None
        self._response: Response | None = None
        #: The value of the Host header; a signature covers it.
        self.authority = authority(host, port, default=443 if tls else 80)

    def open(self) -> None:
        """Connect if necessary; when this fails, no request was sent."""
        self._ready(self.timeout)

    def certificate(self) -> bytes:
        """The certificate of the server, as DER; connects if necessary."""
        return self._ready(self.timeout)[0].certificate()

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Response:
        """Send a request and return its response as soon as the head has arrived.

        `target` is the path and query in wire format. A file is sent from its position, as many
        bytes as content-length has or up to its end; an iterable is sent in chunks unless
        content-length is given. The response may come before the whole body was sent.
        An idle connection that the server has closed is replaced. If the server closes it after
        the request was sent and before a byte of the response, an idempotent request is sent once
        more.
        """
        content = _Content(body, headers or {})
        head = self._head(method, target, headers or {}, content)
        silence = self.timeout if timeout is None else timeout
        stream, reused = self._ready(silence)
        try:
            try:
                return self._exchange(stream, method, head, content)
            except Unreachable as error:
                lost = error.code == "server_closed" and stream.silent
                if not (lost and reused and idempotent and content.rewind()):
                    raise
            self.close()
            stream, _ = self._ready(silence)
            return self._exchange(stream, method, head, content)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; the next request opens another."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._response = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _head(
        self, method: str, target: str, headers: Mapping[str, str], content: _Content
    ) -> bytes:
        _check_line(method, target)
        given = {name.lower(): value for name, value in headers.items()}
        if self._proxy is not None and not self._tls and not self._switches:
            target = f"http://{self.authority}{target}"
            if self._proxy.authorization:
                given["proxy-authorization"] = self._proxy.authorization
        lines = [f"{method} {target} HTTP/1.1"]
        for name, value in {"host": self.authority, **given}.items():
            _check_header(name, value)
            if name not in ("content-length", "transfer-encoding"):
                lines.append(f"{name}: {value}")
        lines += content.framing(method)
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    def _ready(self, timeout: float) -> tuple[SocketStream, bool]:
        """A connected stream without an unfinished response, and whether it was used before."""
        unfinished = self._response is not None and not self._response.finished
        if self._stream is not None and (unfinished or self._stream.is_stale()):
            self.close()
        reused = self._stream is not None
        if self._stream is None:
            self._stream = connect(
                self.host,
                self.port,
                self._tls,
                self.connect_timeout,
                proxy=self._proxy,
                ips=self._ips,
                tunnels=self._switches,
            )
        self._stream.timeout = timeout
        self._stream.silent = True
        return self._stream, reused

    def _exchange(
        self, stream: SocketStream, method: str, head: bytes, content: _Content
    ) -> Response:
        complete = content.send(stream, head)
        self._response = Response(stream, method, complete)
        if self._proxy is not None and self._response.status == 407:
            raise Unreachable("proxy_auth", proxy=self._proxy.address)
        return self._response


class Response:
    """A response: `status`, `headers` by lower-case name, and a body that is read on demand.

    The connection can be used again when the body was read to its end. Leaving `with` closes it.
    After status 101 it belongs to another protocol (`take_stream`).
    """

    def __init__(self, stream: SocketStream, method: str, complete: bool) -> None:
        self._stream = stream
        version, self.status, self.headers = _final_head(stream)
        tokens = self.headers.get("connection", "").lower().replace(",", " ").split()
        keep = "close" not in tokens if version > "0" else "keep-alive" in tokens
        self.finished = False
        #: Called once when the body was read to its end, or given up.
        self.on_finish: Callable[[], object] | None = None
        self._chunked = False
        self._first_chunk = True
        #: Bytes left of the body or of the current chunk; None until the peer closes.
        self._left: int | None = None
        self._frame(method)
        self._keep = keep and complete and (self._chunked or self._left is not None)
        if self._left == 0 and not self._chunked:
            self._finish()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._stream.address

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self.finished and self._keep

    def take_stream(self) -> SocketStream:
        """The connection behind a response with status 101, which has left HTTP."""
        self.finished = True
        return self._stream

    def set_timeout(self, seconds: float) -> None:
        """Longest silence while the rest of the body is read."""
        self._stream.timeout = seconds

    def read(self, size: int = -1) -> bytes:
        """The rest of the body; or up to `size` bytes as soon as there are some, b"" at its end."""
        if size < 0:
            return b"".join(self.iter_chunks())
        return self._next(size) if size else b""

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes; fewer, or none, where the body ends before."""
        chunks, left = [], size
        while left and (chunk := self.read(left)):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)

    def iter_chunks(self) -> Iterator[bytes]:
        """The body in chunks, each as soon as it arrives."""
        while chunk := self._next(_CHUNK):
            yield chunk

    def close(self) -> None:
        """Give up the rest of the body, and with it the connection."""
        if not self.finished:
            self._keep = False
            self._finish()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _frame(self, method: str) -> None:
        coding = self.headers.get("transfer-encoding")
        length = self.headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdigit() and len(length) < 20):
            raise self._stream.malformed(f"content-length {length[:40]}")
        if coding is not None and coding.lower() != "chunked":
            raise self._stream.malformed(f"transfer-encoding {coding[:40]}")
        if method == "HEAD" or self.status in (204, 304):
            self._left = 0
        elif coding is not None:
            self._chunked, self._left = True, 0
        elif length is not None:
            self._left = int(length)

    def _next(self, size: int) -> bytes:
        if self.finished:
            return b""
        try:
            if self._chunked and not self._left and not self._next_chunk():
                return b""
            chunk = self._stream.take(size if self._left is None else min(size, self._left))
            self._count(chunk)
        except BaseException:
            self.close()
            raise
        return chunk

    def _count(self, chunk: bytes) -> None:
        if self._left is not None:
            if not chunk:
                raise self._stream.closed()
            self._left -= len(chunk)
        if not chunk or (self._left == 0 and not self._chunked):
            self._finish()

    def _next_chunk(self) -> bool:
        if not self._first_chunk and self._stream.line():
            raise self._stream.malformed("a chunk longer than its size")
        self._first_chunk = False
        digits = self._stream.line().partition(b";")[0].strip()
        if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise self._stream.malformed("a chunk without a size")
        self._left = int(digits, 16)
        if self._left == 0:
            self._skip_trailers()
        return self._left > 0

    def _skip_trailers(self) -> None:
        left = MAX_HEAD
        while line := self._stream.line():
            left -= len(line)
            if left < 0:
                raise self._stream.malformed("trailers without an end")
        self._finish()

    def _finish(self) -> None:
        self.finished = True
        if not self._keep:
            self._stream.close()
        on_finish, self.on_finish = self.on_finish, None
        if on_finish is not None:
            on_finish()


class _Content:
    """The body of one request: its framing, sending it, and sending it again."""

    def __init__(self, body: Body, headers: Mapping[str, str]) -> None:
        given = next((v for name, v in headers.items() if name.lower() == "content-length"), None)
        #: None: sent in chunks.
        self.size: int | None = int(given) if given is not None else None
        self._start = 0
        self._data = memoryview(b"")
        self._file: IO[bytes] | None = None
        self._chunks: Iterable[bytes] | None = None
        if body is None or isinstance(body, bytes | bytearray | memoryview):
            self._data = memoryview(body or b"").cast("B")
            self.size = len(self._data)
        elif hasattr(body, "read"):
            self._take_file(body)
        else:
            self._chunks = body

    def _take_file(self, file: Any) -> None:
        if not (hasattr(file, "seekable") and file.seekable()):
            self._chunks = _blocks(file)
            return
        self._file = file
        self._start = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(self._start)
        if self.size is None:
            self.size = max(0, end - self._start)

    def framing(self, method: str) -> list[str]:
        """The header lines that frame the body."""
        if self.size is None:
            return ["transfer-encoding: chunked"]
        needless = self.size == 0 and method in ("GET", "HEAD", "DELETE")
        return [] if needless else [f"content-length: {self.size}"]

    def rewind(self) -> bool:
        """Whether the body can be sent again from its beginning."""
        if self._file is not None:
            self._file.seek(self._start)
        return self._chunks is None

    def send(self, stream: SocketStream, head: bytes) -> bool:
        """Send head and body; False when the peer responded or closed before the end."""
        if self._chunks is not None:
            return stream.send(head) and self._send_chunks(stream, self._chunks)
        if self._file is not None:
            return stream.send(head) and self._send_file(stream, self._file, self.size or 0)
        if len(self._data) <= MAX_HEAD:
            return stream.send(head + self._data)
        return stream.send(head) and stream.send(self._data)

    def _send_file(self, stream: SocketStream, file: IO[bytes], size: int) -> bool:
        if stream.can_sendfile and _is_regular(file):
            try:
                complete = stream.sendfile(file.fileno(), self._start, size)
                file.seek(self._start + size)
            except OSError as error:
                # Some file systems do not support sendfile; the first call fails then.
                if error.errno not in (EINVAL, ENOSYS, EOPNOTSUPP):
                    raise
            else:
                return complete
        return self._send_counted(stream, _blocks(file), size)

    def _send_chunks(self, stream: SocketStream, chunks: Iterable[bytes]) -> bool:
        if self.size is not None:
            return self._send_counted(stream, chunks, self.size)
        for chunk in chunks:
            if chunk and not stream.send(b"%x\r\n%b\r\n" % (len(chunk), chunk)):
                return False
        return stream.send(b"0\r\n\r\n")

    def _send_counted(self, stream: SocketStream, chunks: Iterable[bytes], size: int) -> bool:
        left = size
        for chunk in chunks:
            if not stream.send(memoryview(chunk)[:left]):
                return False
            left -= min(left, len(chunk))
            if not left:
                break
        if left:
            raise shrank(size - left, size)
        return True


def _final_head(stream: SocketStream) -> tuple[str, int, dict[str, str]]:
    """Minor version, status and headers of the final response; interim ones are skipped."""
    for _ in range(16):
        lines = stream.head()
        version, status = _status_line(stream, lines[0])
        headers = _headers(stream, lines[1:])
        if status >= 200 or status == _SWITCHING:
            return version, status, headers
    raise stream.malformed("interim responses without an end")


def _status_line(stream: SocketStream, line: str) -> tuple[str, int]:
    version, _, rest = line.partition(" ")
    code = rest.partition(" ")[0]
    plausible = len(code) == 3 and code.isascii() and code.isdigit() and code >= "100"
    if version not in ("HTTP/1.1", "HTTP/1.0") or not plausible:
        raise stream.malformed(repr(line[:40]))
    return version[-1], int(code)


def _headers(stream: SocketStream, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not (colon and name) or name.strip(" \t") != name:
            raise stream.malformed(repr(line[:40]))
        if name not in found:
            found[name] = value
        elif name != "content-length":
            found[name] += ", " + value
        elif found[name] != value:
            raise stream.malformed("two values of content-length")
    return found


def _check_line(method: str, target: str) -> None:
    if not (method.isascii() and method.isalpha()):
        raise ValueError(f"not a method: {method!r}")
    if not target.startswith("/") or not target.isascii() or not target.isprintable():
        raise ValueError(f"not a target in the form that goes on the stream: {target!r}")
    if " " in target:
        raise ValueError(f"a blank in {target!r}; quote it first")


def _check_header(name: str, value: str) -> None:
    letters = name.replace("-", "").replace("_", "")
    if not (letters.isascii() and letters.isalnum()):
        raise ValueError(f"not a header name: {name!r}")
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError(f"a line end in header {name}")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _is_regular(file: IO[bytes]) -> bool:
    """Whether the descriptor holds the very bytes that read() gives (a GzipFile has one too)."""
    plain = type(file) in (io.FileIO, io.BufferedReader, io.BufferedRandom)
    return plain and os.fstat(file.fileno()).st_mode & 0o170000 == 0o100000
