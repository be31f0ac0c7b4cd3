"""The logs of several workers as one, in the order in which their lines came.

What is known is the size of each log at some moments (`lognotes`), so lines are in order to about a
second; within one log they are always in order. A line belongs to the moment at which its end came
and is never torn apart by another's. The memory needed is one piece for all and a few notes for
each log, however long the logs are.
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
        """`modified`: when the log was last written, for one without notes."""
        #: Up to here it was told.
        self.offset = offset
        self.end = end
        self._read = read
        self._searched = offset
        self._moments = _moments(notes, offset, end, modified)

    def next_moment(self) -> tuple[float, int] | None:
        """When the bytes after those told so far came, and where those of that moment end."""
        return next(self._moments, None)

    def whole_lines(self, until: int) -> int:
        """Where the last line ends of those that end before `until`; a redrawn one counts."""
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

    def pieces(self, until: int, size: int) -> Iterator[bytes]:
        """The bytes from `offset` up to there; `offset` moves along."""
        while self.offset < until:
            data = self._read(self.offset, min(size, until - self.offset))
            if not data:
                return
            self.offset += len(data)
            yield data


def merged(
    sources: Sequence[Source], *, size: int, whole: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Pieces of at most `size` bytes with the number of the log that each is from.

    With `whole` only lines that have ended are told; otherwise the rest of each log comes last.
    """
    waiting = [
        (moment, number) for number, one in enumerate(sources) if (moment := one.next_moment())
    ]
    heapq.heapify(waiting)
    while waiting:
        (_, until), number = heapq.heappop(waiting)
        source = sources[number]
        for piece in source.pieces(source.whole_lines(until), size):
            yield number, piece
        following = source.next_moment()
        if following is not None:
            heapq.heappush(waiting, (following, number))
    if not whole:
        for number, source in enumerate(sources):
            for piece in source.pieces(source.end, size):
                yield number, piece


def _moments(notes: Read, offset: int, end: int, modified: float) -> Iterator[tuple[float, int]]:
    at, told = modified, False
    for time, size in all_notes(notes):
        if size >= end:
            break
        if told and size > offset:
            yield at, size
        at, told = time, True
    if end > offset:
        yield at, end
