"""A search in logs, as a process of its own that `grep` starts.

A pattern comes from anybody, and some take longer than the world will last. Python can neither
share its interpreter lock with one nor be stopped in the middle by another thread; a process of its
own does not slow the server, is limited by the system, and can be ended. It gets its task as JSON
on stdin, the logs as open files, and writes frames (`model/logframes`) to stdout.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import partial

from paddlecloud.model.logs.frames import framed, trouble
from paddlecloud.model.logs.grep import compiled
from paddlecloud.model.logs.merge import Source, merged
from paddlecloud.model.logs.time_index import SIZE, unpacked

TYPE_CHECKING = False  # each of these modules would cost as much as the rest of a short search
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from paddlecloud.model.logs.grep import Pattern
    from paddlecloud.model.logs.time_index import Note

PIECE = 256 * 1024
LONGEST = 32 * 1024 * 1024
"""A longer line is searched in parts."""
MEMORY = 1024 * 1024 * 1024
SAY_AFTER = 64 * 1024 * 1024
"""Bytes without a match after which the reader hears how far the search is."""


class TooSlow(Exception):
    """The pattern is one of those that take for ever."""


def main() -> int:
    task = json.loads(sys.stdin.buffer.read())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with suppress(OSError, ValueError):  # not every system has it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, _too_slow)
    for frame in found(task):
        sys.stdout.buffer.write(frame)
        sys.stdout.buffer.flush()
    return 0


def found(task: Mapping[str, Any]) -> Iterator[bytes]:
    """Frames of matching lines; the last of each log tells how far it was searched."""
    pattern, logs, whole = compiled(task["pattern"]), task["logs"], task["whole"]
    seconds = task["seconds"]
    sources = [_source(log) for log in logs]
    searches = [
        _Search(pattern, log["worker"], source, seconds)
        for log, source in zip(logs, sources, strict=True)
    ]
    worker = ""
    try:
        for number, data in merged(sources, size=PIECE, whole=whole):
            worker = logs[number]["worker"]
            yield from searches[number].feed(data)
        for search in searches:
            worker = search.worker
            yield from search.end(whole=whole)
    except TooSlow:
        yield trouble("grep_slow", json.dumps({"seconds": seconds, "worker": worker}))


class _Search:
    """The lines of one log, put together from its pieces."""

    def __init__(self, pattern: Pattern, worker: str, source: Source, seconds: float) -> None:
        self._pattern = pattern
        self._seconds = seconds
        self.worker = worker
        self._source = source
        self._kept = b""
        self._silent = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Search the whole lines; the beginning of the next is read once more, with its rest.

        That is cheaper than to keep it: every copy of a piece costs as much as the search.
        """
        data = self._kept + data if self._kept else data
        self._kept = b""
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) <= LONGEST:
            self._kept = data
            return
        cut = cut or len(data)
        self._source.offset -= len(data) - cut
        yield from self._told(self._matching(data, cut), cut)

    def end(self, *, whole: bool) -> Iterator[bytes]:
        rest = b"" if whole else self._kept
        matching = self._matching(rest, len(rest)) if rest else b""
        reached = self._source.offset - (len(self._kept) if whole else 0)
        yield framed(self.worker, reached, matching)

    def _matching(self, block: bytes, end: int) -> bytes:
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
        matching = b"".join(self._pattern.lines(block, end))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return matching if not matching or matching.endswith(b"\n") else matching + b"\n"

    def _told(self, matching: bytes, searched: int) -> Iterator[bytes]:
        self._silent += searched
        if matching or self._silent >= SAY_AFTER:
            self._silent = 0
            yield framed(self.worker, self._source.offset, matching)


def _source(log: Mapping[str, Any]) -> Source:
    times = log["times"]
    return Source(
        partial(_read, log["log"]),
        partial(_notes, times) if times is not None else partial(_given, log["notes"]),
        offset=log["offset"],
        end=log["end"],
        modified=log["modified"],
    )


def _read(fd: int, offset: int, limit: int) -> bytes:
    return os.pread(fd, limit, offset)


def _notes(fd: int, first: int, count: int) -> list[Note]:
    return unpacked(os.pread(fd, count * SIZE, first * SIZE))


def _given(notes: Sequence[Note], first: int, count: int) -> list[Note]:
    return [(at, size) for at, size in notes[first : first + count]]


def _too_slow(*_: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    sys.exit(main())
