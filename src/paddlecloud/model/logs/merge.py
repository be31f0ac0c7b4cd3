"""Merges the logs of several workers by time.

The time index has the size of each log at some moments, so lines are in order to about a second;
within one log they are always in order. A line belongs to the moment at which its end arrived and
is never split by another's. Memory use is one chunk in all and a few index entries per log, however
long the logs are.
"""

from __future__ import annotations

import heapq

from paddlecloud.model.logs.time_index import all_notes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from paddlecloud.model.logs.time_index import Read

    #: Some bytes of a log: from an offset on, at most so many; fewer at its end.
    ReadLog = Callable[[int, int], bytes]

_BLOCK = 64 * 1024


class Source:
    """One worker's log from `offset` up to `end`."""

    #: A carriage return redraws a line, which is shown as one that has ended.
    line_ends: tuple[bytes, ...] = (b"\n", b"\r")

    def __init__(
        self, read: ReadLog, notes: Read, *, offset: int, end: int, modified: float
    ) -> None:
        """`modified`: when the log was last written, for a log without a time index."""
        #: Everything before was returned.
        self.offset = offset
        self.end = end
        self._read = read
        self._searched = offset
        self._moments = _moments(notes, offset, end, modified)

    def next_moment(self) -> tuple[float, int] | None:
        """Time of the next bytes, and the offset where the bytes of that time end."""
        return next(self._moments, None)

    def whole_lines(self, until: int) -> int:
        """The end of the last complete (or redrawn) line before `until`."""
        low, high = max(self.offset, self._searched), until
        self._searched = until
        while high > low:
            begin = max(low, high - _BLOCK)
            data = self._read(begin, high - begin)
            found = max(data.rfind(line_end) for line_end in self.line_ends)
            if found >= 0:
                return begin + found + 1
            high = begin
        return self.offset

    def chunks(self, until: int, size: int) -> Iterator[bytes]:
        """The bytes from `offset` to `until`; advances `offset`."""
        while self.offset < until:
            data = self._read(self.offset, min(size, until - self.offset))
            if not data:
                return
            self.offset += len(data)
            yield data


def merged(
    sources: Sequence[Source], *, size: int, whole: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Chunks of at most `size` bytes, each with the number of its log.

    With `whole` only complete lines are returned; otherwise the rest of each log comes last.
    """
    waiting = [
        (moment, number) for number, one in enumerate(sources) if (moment := one.next_moment())
    ]
    heapq.heapify(waiting)
    while waiting:
        (_, until), number = heapq.heappop(waiting)
        source = sources[number]
        for chunk in source.chunks(source.whole_lines(until), size):
            yield number, chunk
        following = source.next_moment()
        if following is not None:
            heapq.heappush(waiting, (following, number))
    if not whole:
        for number, source in enumerate(sources):
            for chunk in source.chunks(source.end, size):
                yield number, chunk


def _moments(notes: Read, offset: int, end: int, modified: float) -> Iterator[tuple[float, int]]:
    at, started = modified, False
    for time, size in all_notes(notes):
        if size >= end:
            break
        if started and size > offset:
            yield at, size
        at, started = time, True
    if end > offset:
        yield at, end
