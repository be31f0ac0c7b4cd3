"""Frames of a log stream with several workers, and the prefixes by which they are displayed.

A frame is a head line `<worker> <next> <length>` and that many bytes. `next` is the offset in that
worker's log up to which everything was sent, from which a reader can resume; with `--grep` it may
be beyond the bytes in the frame. A frame without bytes only moves `next`. With `--timestamps` the
head ends with the time of the bytes, in milliseconds since 1970.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: A head line is shorter than this, or the stream is not ours.
MAX_HEAD = 4096
#: Milliseconds since 1970 at the end of year 9999.
LATEST = 253_402_300_799_999
#: Maximum length of one frame.
MAX_DATA = 64 * 1024 * 1024


def framed(worker: str, reached: int, data: bytes, time: float | None = None) -> bytes:
    at = b"" if time is None else b" %d" % max(0, int(time * 1000))
    return b"%b %d %d%b\n%b" % (worker.encode(), reached, len(data), at, data)


class Frames:
    """Parses a stream into frames: (worker, next, bytes, milliseconds or None). ValueError if it is
    not such a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[str, int, int | None] | None = None
        self._length = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[str, int, bytes, int | None]]:
        self._buffer += chunk
        while self._buffer or self._head:
            if self._head is None and not self._take_head():
                return
            assert self._head is not None
            if len(self._buffer) < self._length:
                return
            data = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            (worker, reached, time), self._head = self._head, None
            yield worker, reached, data, time

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\n", 0, MAX_HEAD)
        if end < 0:
            if len(self._buffer) >= MAX_HEAD:
                raise ValueError("a log stream without frames")
            return False
        worker, _, rest = self._buffer[:end].decode().partition(" ")
        del self._buffer[: end + 1]
        numbers = rest.split(" ")
        if len(numbers) not in (2, 3) or not all(
            number.isascii() and number.isdecimal() and len(number) < 20 for number in numbers
        ):
            raise ValueError("not the head of a frame")
        reached, length, *time = map(int, numbers)
        if length > MAX_DATA or (time and time[0] > LATEST):
            raise ValueError("not the head of a frame")
        self._head, self._length = (worker, reached, time[0] if time else None), length
        return True


class Prefixes:
    """`[worker] `, a time or both before every line, and before each state of a progress bar.

    Output of a worker in the middle of another worker's line starts a new line.
    """

    def __init__(self, *, named: bool = True) -> None:
        self._named = named
        self._worker = ""
        self._last = b"\n"

    def add(self, worker: str, data: bytes, time: str = "") -> bytes:
        if not data:
            return b""
        prefix = (b"[%b] " % worker.encode()) if self._named else b""
        prefix += f"{time} ".encode() if time else b""
        if not prefix:
            return data
        start = b""
        if worker != self._worker and self._last != b"\n":
            start, self._last = b"\n", b"\n"
        if self._last == b"\n" or (self._last == b"\r" and data[:1] != b"\n"):
            start += prefix
        self._worker, self._last = worker, data[-1:]
        body, ending = data[:-1], data[-1:]
        body = body.replace(b"\n", b"\n" + prefix)
        if b"\r" in body:
            body = _after_returns(body, prefix, ending)
        return start + body + ending


def _after_returns(body: bytes, prefix: bytes, ending: bytes) -> bytes:
    """Repeats the prefix after each carriage return, except before a line feed and at the very end,
    where the next bytes decide."""
    parts = body.split(b"\r")
    prefixed = [parts[0]]
    for number, part in enumerate(parts[1:], 1):
        bare = part.startswith(b"\n") or (not part and number == len(parts) - 1 and ending == b"\n")
        prefixed.append(part if bare else prefix + part)
    return b"\r".join(prefixed)
