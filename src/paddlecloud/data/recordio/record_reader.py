"""Reading records: whole files, a range of records, or one of several equal parts.

A reader holds one chunk at a time. What it does about damage is the caller's choice: `raise` stops
with an error that names file, chunk, offset and reason; `stop` ends as the library of 2017 did;
`skip` leaves out what is damaged and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, cast

from paddlecloud.data.recordio._chunk_scan import ChunkDecoder, Link, damage_at, hidden, links
from paddlecloud.data.recordio._codec import MAX_UNPACKED
from paddlecloud.data.recordio._header import LAYOUTS
from paddlecloud.data.recordio.corruption import Broken, Damage, DamagedFile
from paddlecloud.data.recordio.source import Opener, Source, Target, names, opened

ERRORS = ("raise", "stop", "skip")


class Reader:
    """Iterates over records as `bytes`; each `iter` continues where the last one stopped.

    `part=(i, n)` is the i-th of n equal parts by bytes, whole chunks each: n readers read every
    record once. `start` and `stop` count records over all files. `limit`: maximum decompressed size
    of a chunk. `opener` opens URLs that are not http(s).
    """

    def __init__(  # noqa: PLR0913 - all but the first are choices by name
        self,
        target: Target | Iterable[Target],
        *,
        errors: str = "raise",
        start: int = 0,
        stop: int | None = None,
        part: tuple[int, int] | None = None,
        layout: str = "2017",
        limit: int = MAX_UNPACKED,
        opener: Opener | None = None,
        on_damage: Callable[[Damage], object] | None = None,
    ) -> None:
        check_words(errors, layout)
        if start < 0:
            raise ValueError(f"start={start}: records count from 0")
        if part is not None and not 0 <= part[0] < part[1]:
            raise ValueError(f"part={part}: it is (i, n) with 0 <= i < n")
        self._errors = errors
        self._layout = layout
        self._opener = opener
        self._on_damage = on_damage
        self._range = (start, stop)
        self._part = part
        self._names = names(target)
        self._decoder = ChunkDecoder(limit)
        self._source: Source | None = None
        self._closed = False
        self._failure: DamagedFile | None = None
        self.damages: list[Damage] = []
        if len(self._names) == 1:  # a name that cannot be opened raises now, not later
            self._source = self._open(self._names[0])
        self._records = chain.from_iterable(self._chunks())

    def read(self) -> bytes | None:
        """The next record; None at the end. An empty record is `b""`, so ask `is None`."""
        return next(self, None)

    def __iter__(self) -> Iterator[bytes]:
        """The inner iterator, so that a loop runs no Python code between two records."""
        return self._records if self._failure is None and not self._closed else self

    def __next__(self) -> bytes:
        if self._closed:
            raise ValueError("the reader is closed")
        if self._failure is not None:
            raise self._failure
        return next(self._records)

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._records = chain()
        self._release()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _chunks(self) -> Iterator[Iterator[bytes]]:
        """The records of each chunk; damage ends it, or is skipped."""
        first = 0
        for name, (low, high) in zip(self._names, self._bounds(), strict=True):
            source = self._source = self._source or self._open(name)
            try:
                for link in links(source, self._layout, resync=self._errors == "skip"):
                    stop = self._range[1]
                    past = stop is not None and first >= stop
                    if past or (high is not None and link.offset >= high):
                        break
                    if link.offset >= low:
                        yield from self._of_link(source, link, first)
                    if self._errors == "stop" and self.damages:
                        return
                    first += link.count
            finally:
                self._release()

    def _of_link(self, source: Source, link: Link, first: int) -> Iterator[Iterator[bytes]]:
        if link.damage is not None:
            self._damaged(link.damage)
            return
        start, stop = self._range
        below = max(0, start - first)
        if below >= link.count and link.count:
            return
        above = None if stop is None else stop - first
        try:
            found = self._decoder.records(source, link, below, above)
        except Broken as broken:
            self._damaged(damage_at(source, link.chunk, link.offset, link.end, broken))
            if self._errors == "skip" and broken.reason == "checksum":
                yield from self._of_hidden(source, link)
        else:
            yield found

    def _of_hidden(self, source: Source, link: Link) -> Iterator[Iterator[bytes]]:
        for inner in hidden(source, link, self._layout):
            if inner.damage is None:
                try:
                    yield self._decoder.records(source, inner)
                except Broken as broken:
                    self._damaged(damage_at(source, inner.chunk, inner.offset, inner.end, broken))

    def _damaged(self, damage: Damage) -> None:
        self.damages.append(damage)
        if self._on_damage is not None:
            self._on_damage(damage)
        if self._errors == "raise":
            self._failure = DamagedFile(damage)
            raise self._failure

    def _release(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _bounds(self) -> Iterator[tuple[int, int | None]]:
        """The byte range of each file that is this reader's part."""
        if self._part is None:
            return ((0, None) for _ in self._names)
        return iter(byte_parts([self._size(name) for name in self._names], self._part))

    def _size(self, name: str | BinaryIO) -> int:
        source = self._source if self._source is not None else self._open(name)
        try:
            if source.size is None:
                raise ValueError(f"{source.name} cannot seek, so it has no parts")
            return source.size
        finally:
            if source is not self._source:
                source.close()

    def _open(self, name: str | BinaryIO) -> Source:
        source = opened(name, self._opener)
        if self._errors != "skip" or source.seekable:
            return source
        return _spooled(source)


def byte_parts(sizes: list[int], part: tuple[int, int]) -> list[tuple[int, int]]:
    """The bytes `[low, high)` of each file that belong to part i of n."""
    index, count = part
    total = sum(sizes)
    low, high = total * index // count, total * (index + 1) // count
    found, before = [], 0
    for size in sizes:
        found.append((low - before, high - before))
        before += size
    return found


def check_words(errors: str, layout: str) -> None:
    """ValueError for an unknown `errors` or `layout`."""
    if errors not in ERRORS:
        raise ValueError(f"errors={errors!r}: it is one of {', '.join(ERRORS)}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r}: it is one of {', '.join(LAYOUTS)}")


def _spooled(source: Source) -> Source:
    """Copies a stream to a temporary file: resynchronizing needs to seek."""
    import tempfile  # noqa: PLC0415 - slow to import, only for streams with errors="skip"

    spool = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - the reader closes it
    offset = 0
    while data := source.read_at(offset, 2**20):
        spool.write(data)
        offset += len(data)
    source.close()
    spool.seek(0, os.SEEK_SET)
    return Source(spool, source.name, owned=True)
