"""Opens files, URLs and file objects, and reads them at offsets.

A name is a comma-separated list of patterns, as in 2017, or a URL. A file object is read from its
current position; one that cannot seek is read forward. Nothing here knows about chunks.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from paddlecloud.data.recordio._codec import Buffer
from paddlecloud.data.recordio._range_crc import RangeCrc

Opener = Callable[[str], BinaryIO]
Target = str | os.PathLike[str] | BinaryIO
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_STEP = 2**20


class Source:
    """A file to read chunks from. `size` is None if it is not known before the end."""

    def __init__(self, file: BinaryIO, name: str, *, owned: bool) -> None:
        self.name = name
        self._file = file
        self._owned = owned
        seekable = getattr(file, "seekable", None)
        self.seekable = bool(seekable()) if seekable is not None else hasattr(file, "seek")
        self.start, self.size = 0, None
        if self.seekable:
            self.start = file.tell()
            self.size = file.seek(0, os.SEEK_END)
            file.seek(self.start)
        self._position = self.start
        self._crc = RangeCrc(self.read_at)

    def read_at(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`, fewer at the end of the file."""
        self._go(offset)
        found = self._read(size)
        while len(found) < size and (more := self._read(size - len(found))):
            found += more
        return found

    def take(self, offset: int, size: int, into: Buffer) -> memoryview:
        """`read_at` into a buffer; if the size of the file is unknown, memory grows with what
        arrives, not with what a header claims."""
        self._go(offset)
        into.clear()
        while into.used < size:
            missing = size - into.used
            space = into.reserve(missing if self.size is not None else min(missing, _STEP))
            count = self._fill(space)
            if not count:
                break
            into.used += count
        return into.view()

    def checksum(self, offset: int, size: int) -> int:
        """The CRC-32 of a range of a seekable file."""
        return self._crc.of(offset, size)

    def left(self, offset: int) -> int | None:
        """How many bytes follow `offset`; None if unknown."""
        return None if self.size is None else max(0, self.size - offset)

    def close(self) -> None:
        if self._owned:
            self._file.close()

    def _go(self, offset: int) -> None:
        if offset == self._position:
            return
        if self.seekable:
            self._position = self._file.seek(offset)
            return
        if offset < self._position:
            raise ValueError(f"{self.name} cannot seek: it is read forward, once")
        while self._position < offset and self._read(min(offset - self._position, _STEP)):
            pass

    def _read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._position += len(found)
        return found

    def _fill(self, space: memoryview) -> int:
        readinto = getattr(self._file, "readinto", None)
        if readinto is not None:
            count: int = readinto(space)
            self._position += count
            return count
        found = self._read(len(space))
        space[: len(found)] = found
        return len(found)


def names(target: Target | Iterable[Target]) -> list[str | BinaryIO]:
    """What to open, in order: paths, URLs, file objects. FileNotFoundError if nothing matches.

    A text is a comma-separated list of patterns, the matches of each sorted; a pattern without a
    match is ignored if another has one. A `Path` is that one file.
    """
    if isinstance(target, str):
        return _matches(target)
    if isinstance(target, os.PathLike):
        return [os.fspath(target)]
    if hasattr(target, "read"):
        return [cast(BinaryIO, target)]
    return [name for item in target for name in names(item)]


def opened(name: str | BinaryIO, opener: Opener | None = None) -> Source:
    """Open one of `names`; the caller closes it."""
    if not isinstance(name, str):
        return Source(name, str(getattr(name, "name", "") or "a file object"), owned=False)
    if not is_url(name):
        return Source(Path(name).open("rb"), name, owned=True)
    if opener is not None:
        return Source(opener(name), name, owned=True)
    if not name.startswith(("http://", "https://")):
        raise ValueError(f"{name}: this URL needs an opener: opener=a function that opens it")
    from paddlecloud.data.recordio._http_file import open_http  # noqa: PLC0415 - files need no network

    return Source(open_http(name), name, owned=True)


def each(target: Target | Iterable[Target], opener: Opener | None = None) -> Iterator[Source]:
    """Each source in turn, open while it is used."""
    for name in names(target):
        source = opened(name, opener)
        try:
            yield source
        finally:
            source.close()


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def _matches(text: str) -> list[str | BinaryIO]:
    if is_url(text):
        return list(re.split(r",(?=[A-Za-z][A-Za-z0-9+.-]+://)", text))
    found: list[str | BinaryIO] = []
    for pattern in text.split(","):
        found += [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern))  # noqa: PTH207 - the text as written, not a Path's idea of it
    if not found:
        raise FileNotFoundError(f"no file matches {text!r}")
    return found
