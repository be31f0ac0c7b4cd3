"""One HTTP/1.1 connection, kept alive, for the command line, the SDK and the agent.

It exists because importing http.client takes half the time that a whole `query_job` may take, and
because a server that refuses a large upload half way must be heard: http.client reports a broken
pipe there. Knows nothing of signatures, JSON or proxies, and follows no redirect. A connection
belongs to one thread.
"""

from __future__ import annotations

import io
import os
from errno import EINVAL, ENOSYS, EOPNOTSUPP

from paddlecloud.model.errors import Unreachable
from paddlecloud.net.sockets import BLOCK, MAX_HEAD, Wire, authority, connect, shrank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import IO, Any, TypeAlias

    from paddlecloud.net.sockets import Tls

    Body: TypeAlias = "bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes] | None"

#: Longest silence of the peer, and longest time for the head of its answer, in seconds.
TIMEOUT = 30.0
_PIECE = 256 * 1024


class Connection:
    """A connection to one server, opened when first needed and again when it was lost."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: Tls = False,
        timeout: float = TIMEOUT,
        connecting: float | None = None,
    ) -> None:
        """`connecting`: seconds until somebody is there at all, if fewer than for an answer."""
        self.host = host
        self.port = port
        self.timeout = timeout
        self._connecting = timeout if connecting is None else connecting
        self._tls = tls
        self._wire: Wire | None = None
        self._response: Response | None = None
        #: What the Host header says; a signature covers it.
        self.authority = authority(host, port, default=443 if tls else 80)

    def open(self) -> None:
        """Connect, if need be: whatever fails here, no request went out."""
        self._ready(self.timeout)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        *,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> Response:
        """Send a request and return its answer as soon as the head of it is here.

        `target` is the path and query as they go on the wire. A file is sent from where it stands,
        as many bytes as content-length says, or up to its end; an iterable goes out in chunks
        unless content-length is given. The answer may come before the body is sent whole.
        An idle connection that the server closed meanwhile is replaced. If it goes away after the
        request went out, the request is sent once more, provided that `repeatable` says that doing
        it twice is doing it once and that nothing of an answer had come.
        """
        content = _Content(body, headers or {})
        head = self._head(method, target, headers or {}, content)
        silence = self.timeout if timeout is None else timeout
        wire, reused = self._ready(silence)
        try:
            try:
                return self._exchange(wire, method, head, content)
            except Unreachable as error:
                lost = error.code == "server_closed" and wire.silent
                if not (lost and reused and repeatable and content.rewind()):
                    raise
            self.close()
            wire, _ = self._ready(silence)
            return self._exchange(wire, method, head, content)
        except BaseException:
            self.close()
            raise

    def converse(
        self, method: str, target: str, headers: Mapping[str, str], *, timeout: float
    ) -> Conversation:
        """Send the head of a request whose body comes piece by piece, in turn with its answer.
        `timeout` is for each turn of the peer."""
        head = self._head(method, target, headers, _Content((), headers))
        self.close()
        wire, _ = self._ready(timeout)
        if not wire.send(head):
            self.close()
            raise wire.closed()
        return Conversation(self, wire, method)

    def close(self) -> None:
        """Close the socket; the next request opens another."""
        if self._wire is not None:
            self._wire.close()
        self._wire = self._response = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _head(
        self, method: str, target: str, headers: Mapping[str, str], content: _Content
    ) -> bytes:
        _check_line(method, target)
        given = {name.lower(): value for name, value in headers.items()}
        lines = [f"{method} {target} HTTP/1.1"]
        for name, value in {"host": self.authority, **given}.items():
            _check_header(name, value)
            if name not in ("content-length", "transfer-encoding"):
                lines.append(f"{name}: {value}")
        lines += content.framing(method)
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    def _ready(self, timeout: float) -> tuple[Wire, bool]:
        """A wire with nothing under way, and whether it served before."""
        unfinished = self._response is not None and not self._response.finished
        if self._wire is not None and (unfinished or self._wire.is_stale()):
            self.close()
        reused = self._wire is not None
        if self._wire is None:
            self._wire = connect(self.host, self.port, self._tls, self._connecting)
        self._wire.timeout = timeout
        self._wire.silent = True
        return self._wire, reused

    def _exchange(self, wire: Wire, method: str, head: bytes, content: _Content) -> Response:
        complete = content.send(wire, head)
        self._response = Response(wire, method, complete)
        return self._response


class Conversation:
    """A request that is answered while it is sent: one side speaks at a time, in short pieces."""

    def __init__(self, connection: Connection, wire: Wire, method: str) -> None:
        self._connection = connection
        self._wire = wire
        self._method = method
        self._response: Response | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the peer has begun to answer, or went away; waits for nothing."""
        try:
            return self._response is not None or self._wire.answered()
        except Unreachable:
            return True

    @property
    def response(self) -> Response:
        """The head of the answer; waits for it."""
        if self._response is None:
            self._response = Response(self._wire, self._method, complete=False)
        return self._response

    def say(self, piece: bytes) -> None:
        """To be called when all that the peer said was heard; waits for what it says to this."""
        if not self._wire.send(b"%x\r\n%b\r\n" % (len(piece), piece), in_turn=True):
            raise self._wire.closed()
        self._wire.await_answer()

    def hear(self, size: int) -> bytes:
        """So many bytes of the answer."""
        heard = b""
        while len(heard) < size:
            piece = self.response.read(size - len(heard))
            if not piece:
                raise self._wire.closed()
            heard += piece
        return heard

    def close(self) -> None:
        self._connection.close()


class Response:
    """An answer: `status`, `headers` by lower-case name, and a body read on demand.

    The connection can be used again when the body was read to its end.
    """

    def __init__(self, wire: Wire, method: str, complete: bool) -> None:
        self._wire = wire
        version, self.status, self.headers = _final_head(wire)
        tokens = self.headers.get("connection", "").lower().replace(",", " ").split()
        keep = "close" not in tokens if version > "0" else "keep-alive" in tokens
        self.finished = False
        self._chunked = False
        self._first_chunk = True
        #: Bytes left of the body or of the current chunk; None until the peer closes.
        self._left: int | None = None
        self._frame(method)
        self._keep = keep and complete and (self._chunked or self._left is not None)
        if self._left == 0 and not self._chunked:
            self._finish()

    def read(self, size: int = -1) -> bytes:
        """The rest of the body; or up to `size` bytes as soon as there are some, b"" at its end."""
        if size < 0:
            return b"".join(self.iter_chunks())
        return self._next(size) if size else b""

    def iter_chunks(self) -> Iterator[bytes]:
        """The body in pieces, each as soon as it arrives."""
        while piece := self._next(_PIECE):
            yield piece

    def close(self) -> None:
        """Give up the rest of the body, and with it the connection."""
        if not self.finished:
            self._keep = False
            self._finish()

    def _frame(self, method: str) -> None:
        coding = self.headers.get("transfer-encoding")
        length = self.headers.get("content-length")
        if method == "HEAD" or self.status in (204, 304):
            self._left = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise self._wire.malformed(f"transfer-encoding {coding[:40]}")
            self._chunked, self._left = True, 0
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 20):
                raise self._wire.malformed(f"content-length {length[:40]}")
            self._left = int(length)

    def _next(self, size: int) -> bytes:
        if self.finished:
            return b""
        try:
            if self._chunked and not self._left and not self._next_chunk():
                return b""
            piece = self._wire.take(size if self._left is None else min(size, self._left))
            self._count(piece)
        except BaseException:
            self.close()
            raise
        return piece

    def _count(self, piece: bytes) -> None:
        if self._left is not None:
            if not piece:
                raise self._wire.closed()
            self._left -= len(piece)
        if not piece or (self._left == 0 and not self._chunked):
            self._finish()

    def _next_chunk(self) -> bool:
        if not self._first_chunk and self._wire.line():
            raise self._wire.malformed("a chunk longer than its size")
        self._first_chunk = False
        digits = self._wire.line().partition(b";")[0].strip()
        if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise self._wire.malformed("a chunk without a size")
        self._left = int(digits, 16)
        if self._left == 0:
            self._skip_trailers()
        return self._left > 0

    def _skip_trailers(self) -> None:
        room = MAX_HEAD
        while line := self._wire.line():
            room -= len(line)
            if room < 0:
                raise self._wire.malformed("trailers without an end")
        self._finish()

    def _finish(self) -> None:
        self.finished = True
        if not self._keep:
            self._wire.close()


class _Content:
    """The body of one request: how it is announced, how it is sent, how it is sent again."""

    def __init__(self, body: Body, headers: Mapping[str, str]) -> None:
        given = next((v for name, v in headers.items() if name.lower() == "content-length"), None)
        #: None: sent in chunks.
        self.size: int | None = int(given) if given is not None else None
        self._start = 0
        self._data = memoryview(b"")
        self._file: IO[bytes] | None = None
        self._pieces: Iterable[bytes] | None = None
        if body is None or isinstance(body, bytes | bytearray | memoryview):
            self._data = memoryview(body or b"").cast("B")
            self.size = len(self._data)
        elif hasattr(body, "read"):
            self._take_file(body)
        else:
            self._pieces = body

    def _take_file(self, file: Any) -> None:
        if not (hasattr(file, "seekable") and file.seekable()):
            self._pieces = _blocks(file)
            return
        self._file = file
        self._start = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(self._start)
        if self.size is None:
            self.size = max(0, end - self._start)

    def framing(self, method: str) -> list[str]:
        """The header lines that say where the body ends."""
        if self.size is None:
            return ["transfer-encoding: chunked"]
        needless = self.size == 0 and method in ("GET", "HEAD", "DELETE")
        return [] if needless else [f"content-length: {self.size}"]

    def rewind(self) -> bool:
        """Whether the body can be sent again from its beginning."""
        if self._file is not None:
            self._file.seek(self._start)
        return self._pieces is None

    def send(self, wire: Wire, head: bytes) -> bool:
        """Send head and body; False when the peer answered or went away before the end."""
        if self._pieces is not None:
            return wire.send(head) and self._send_pieces(wire, self._pieces)
        if self._file is not None:
            return wire.send(head) and self._send_file(wire, self._file, self.size or 0)
        if len(self._data) <= MAX_HEAD:
            return wire.send(head + self._data)
        return wire.send(head) and wire.send(self._data)

    def _send_file(self, wire: Wire, file: IO[bytes], size: int) -> bool:
        if wire.can_sendfile and _is_regular(file):
            try:
                complete = wire.sendfile(file.fileno(), self._start, size)
                file.seek(self._start + size)
            except OSError as error:
                # Some file systems cannot do it, and say so at the first call.
                if error.errno not in (EINVAL, ENOSYS, EOPNOTSUPP):
                    raise
            else:
                return complete
        return self._send_counted(wire, _blocks(file), size)

    def _send_pieces(self, wire: Wire, pieces: Iterable[bytes]) -> bool:
        if self.size is not None:
            return self._send_counted(wire, pieces, self.size)
        for piece in pieces:
            if piece and not wire.send(b"%x\r\n%b\r\n" % (len(piece), piece)):
                return False
        return wire.send(b"0\r\n\r\n")

    def _send_counted(self, wire: Wire, pieces: Iterable[bytes], size: int) -> bool:
        left = size
        for piece in pieces:
            if not wire.send(memoryview(piece)[:left]):
                return False
            left -= min(left, len(piece))
            if not left:
                break
        if left:
            raise shrank(size - left, size)
        return True


def _final_head(wire: Wire) -> tuple[str, int, dict[str, str]]:
    """Minor version, status and headers of the answer, interim answers passed over."""
    for _ in range(16):
        lines = wire.head()
        version, status = _status_line(wire, lines[0])
        headers = _headers(wire, lines[1:])
        if status >= 200:
            return version, status, headers
    raise wire.malformed("interim answers without an end")


def _status_line(wire: Wire, line: str) -> tuple[str, int]:
    version, _, rest = line.partition(" ")
    code = rest.partition(" ")[0]
    plausible = len(code) == 3 and code.isascii() and code.isdigit() and code >= "100"
    if version not in ("HTTP/1.1", "HTTP/1.0") or not plausible:
        raise wire.malformed(repr(line[:40]))
    return version[-1], int(code)


def _headers(wire: Wire, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not (colon and name) or name.strip(" \t") != name:
            raise wire.malformed(repr(line[:40]))
        if name not in found:
            found[name] = value
        elif name != "content-length":
            found[name] += ", " + value
        elif found[name] != value:
            raise wire.malformed("two values of content-length")
    return found


def _check_line(method: str, target: str) -> None:
    if not (method.isascii() and method.isalpha()):
        raise ValueError(f"not a method: {method!r}")
    if not target.startswith("/") or not target.isascii() or not target.isprintable():
        raise ValueError(f"not a target in the form that goes on the wire: {target!r}")
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
