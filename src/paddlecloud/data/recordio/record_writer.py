"""Writing records into chunks, with the same bytes as the library of 2017.

The open chunk is in memory, compressed as it grows. By default a file gets its name when it is
closed, so that a reader never finds an incomplete one; a file that is written in place loses at
most the open chunk when its process dies or the disk is full, and `append` continues after the last
complete one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

from paddlecloud.data.recordio._codec import MAX_RECORD, SLAB, Packer
from paddlecloud.data.recordio._header import COMPRESSORS
from paddlecloud.data.recordio.atomic_file import SafeFile
from paddlecloud.data.recordio.repair import recover

#: Chunks that fit into the cache are faster than larger ones, and are distributed more evenly.
CHUNK_BYTES = 2**20
#: The only chunk size of the library of 2017.
CHUNK_BYTES_2017 = 32 * 2**20
#: Maximum number of waiting records; their lengths alone are a slab.
_MANY = SLAB // 4


class Writer:
    """Writes records to a path or to any file object with `write`.

    `max_chunk_bytes` counts the bytes of records alone; a larger record has a chunk of its own, and
    0 gives each record one. `in_place` writes under the final name from the beginning, `append`
    does so after cutting off what a dead writer left incomplete.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        compressor: str = "snappy",
        max_chunk_bytes: int = CHUNK_BYTES,
        in_place: bool = False,
        append: bool = False,
    ) -> None:
        if compressor not in COMPRESSORS:
            raise ValueError(f"compressor={compressor!r}: it is one of {', '.join(COMPRESSORS)}")
        if not 0 <= max_chunk_bytes <= MAX_RECORD:
            raise ValueError(f"max_chunk_bytes={max_chunk_bytes}: it is from 0 to {MAX_RECORD}")
        self._packer = Packer(COMPRESSORS[compressor])
        self._max = max_chunk_bytes
        self._safe: SafeFile | None = None
        self._owned = isinstance(target, str | os.PathLike)
        self._file = self._opened(target, in_place, append)
        self._grows = self._owned and (in_place or append) and self._file.seekable()
        self._closed = False
        self._waiting: list[bytes] = []
        self._limit = 0
        self._left = 0
        self._ended = 0
        self.chunks = 0

    @property
    def records(self) -> int:
        """Number of records written, without those of a chunk that could not be written."""
        return self._ended + self._packer.count + len(self._waiting)

    def write(self, record: bytes | bytearray | memoryview | str) -> None:
        """Append one record. Text is encoded as UTF-8."""
        if type(record) is not bytes or not record:
            record = self._unusual(record)
        self._left -= len(record)
        if self._left < 0:
            self._before_record(len(record))
        self._waiting.append(record)

    def write_all(self, records: Iterable[bytes | str]) -> None:
        for record in records:
            self.write(record)

    def flush(self) -> None:
        """End the chunk and write it to the file."""
        self._end_chunk()
        if hasattr(self._file, "flush"):
            self._file.flush()

    def close(self) -> None:
        """Write the open chunk and rename the file. Idempotent."""
        if self._closed:
            return
        try:
            self.flush()
        except BaseException:
            self.abort()
            raise
        self._closed = True
        self._left = -1
        if self._safe is not None:
            self._safe.commit()
        elif self._owned:
            self._file.close()

    def abort(self) -> None:
        """Discard the file; one that is written in place keeps its complete chunks."""
        if not self._closed:
            self._closed = True
            self._left = -1
            if self._safe is not None:
                self._safe.abort()
            elif self._owned:
                self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _unusual(self, record: bytes | bytearray | memoryview | str) -> bytes:
        """Converts to `bytes`. Empty records need no space, so their number is limited."""
        if len(self._waiting) >= _MANY:
            self._pack_waiting()
        if isinstance(record, str):
            return record.encode()
        if isinstance(record, bytes | bytearray | memoryview):
            return bytes(record)
        raise TypeError(f"a record is bytes or str, not {type(record).__name__}")

    def _before_record(self, size: int) -> None:
        """Called when a record of this size would exceed `_limit`: packs the waiting records, or
        ends the chunk if it would become too large. The chunk has `_limit - _left` bytes of
        records."""
        self._left += size
        if self._closed:
            raise ValueError("the writer is closed")
        if size > MAX_RECORD:
            raise ValueError(f"a record of {size} bytes; the format ends at {MAX_RECORD}")
        if self._limit - self._left + size > self._max:
            self._end_chunk()
        else:
            self._pack_waiting()
        has = self._limit - self._left
        self._limit = min(has + SLAB, self._max)
        self._left = self._limit - has - size

    def _pack_waiting(self) -> None:
        if self._waiting:
            self._packer.add(self._waiting)
            self._waiting.clear()

    def _end_chunk(self) -> None:
        self._limit = self._left = 0
        count = self._packer.count + len(self._waiting)
        if not count:
            return
        chunk = self._packer.finish(self._waiting)
        self._waiting.clear()
        start = self._file.tell() if self._grows else 0
        try:
            # Raw files may write less than given, and some objects do not return how much.
            left = memoryview(chunk)
            while left:
                written = cast("int | None", self._file.write(left))
                left = left[len(left) if written is None else written :]
        except BaseException:
            self._take_back(start)
            raise
        self._ended += count
        self.chunks += 1

    def _take_back(self, start: int) -> None:
        """Truncate a file that is written in place to its last complete chunk; discard any other:
        no chunk may follow an incomplete one."""
        if self._grows:
            with contextlib.suppress(OSError):
                self._file.truncate(start)
                self._file.seek(start)
                return
        self.abort()

    def _opened(
        self, target: str | os.PathLike[str] | BinaryIO, in_place: bool, append: bool
    ) -> BinaryIO:
        if not isinstance(target, str | os.PathLike):
            return target
        if append:
            recover(target)
        if append or in_place:
            # Unbuffered: a written chunk must not be lost with this process.
            return cast(BinaryIO, Path(target).open("ab" if append else "wb", buffering=0))
        self._safe = SafeFile(target)
        return self._safe.file
