"""Merges the logs of several workers by time.

The time index has the size of each log at some moments, so lines are in order to about a hundredth
of a second, and in a large log to a second; within one log they are always in order. A line belongs
to the moment at which its end was written and is never split by another's. Memory use is one chunk
in all and a block of index entries per log, however long the logs are.
"""

from __future__ import annotations

import heapq

from paddlecloud.model.logs.time_index import BLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from paddlecloud.model.logs.index_format import Note
    from paddlecloud.model.logs.time_index import Read

    #: Some bytes of a log: from an offset on, at most so many; fewer at its end.
    ReadLog = Callable[[int, int], bytes]

_BLOCK = 64 * 1024


class Source:
    """One worker's log from `offset` up to `end`; it may grow between two merges."""

    #: A carriage return redraws a line, which is shown as one that has ended.
    line_ends: tuple[bytes, ...] = (b"\n", b"\r")

    def __init__(
        self, read: ReadLog, notes: Read, *, offset: int, end: int, modified: float
    ) -> None:
        """`modified`: when the log was last written, for a log without a time index."""
        #: Everything before was returned.
        self.offset = offset
        self.end = end
        #: The time of the bytes that `next_moment` returned last.
        self.time = modified
        self._read = read
        self._notes = notes
        self._searched = offset
        #: Up to where `next_moment` went.
        self._dated = offset
        #: Index entries: those that were read and not used, and the number of the next to read.
        self._read_notes: list[Note] = []
        self._next_note = 0
        #: The time of the last used entry: that of the bytes behind it.
        self._at: float | None = None

    def grow(self, end: int, modified: float) -> None:
        """The log has more bytes now."""
        self.end = max(self.end, end)
        if self._at is None:
            self.time = modified

    def next_moment(self) -> tuple[float, int] | None:
        """Time of the next bytes, and the offset where these end; None at the end of the log."""
        while (note := self._peek()) is not None and note[1] < self.end:
            self._read_notes.pop()
            before, self._at = self._at, note[0]
            if before is not None and note[1] > self._dated:
                return self._dated_to(before, note[1])
        if self._dated >= self.end:
            return None
        return self._dated_to(self.time if self._at is None else self._at, self.end)

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

    def _peek(self) -> Note | None:
        if not self._read_notes:
            found = self._notes(self._next_note, BLOCK)
            self._next_note += len(found)
            self._read_notes = found[::-1]
        return self._read_notes[-1] if self._read_notes else None

    def _dated_to(self, time: float, until: int) -> tuple[float, int]:
        self.time, self._dated = time, until
        return time, until


def merged(
    sources: Sequence[Source], *, size: int, whole: bool = False, dated: bool = False
) -> Iterator[tuple[int, float, bytes]]:
    """Chunks of at most `size` bytes, each with the number of its log and its time.

    With `whole` only complete lines are returned; otherwise the rest of each log comes last. With
    `dated` a chunk has bytes of one moment only; otherwise a log that is alone for several moments
    is returned at once.
    """
    waiting = [
        (*moment, number) for number, one in enumerate(sources) if (moment := one.next_moment())
    ]
    heapq.heapify(waiting)
    while waiting:
        time, until, number = heapq.heappop(waiting)
        source = sources[number]
        following = source.next_moment()
        while following and not dated and (not waiting or following[0] <= waiting[0][0]):
            until, following = following[1], source.next_moment()
        for chunk in source.chunks(source.whole_lines(until), size):
            yield number, time, chunk
        if following:
            heapq.heappush(waiting, (*following, number))
    if not whole:
        for number, source in enumerate(sources):
            for chunk in source.chunks(source.end, size):
                yield number, source.time, chunk
