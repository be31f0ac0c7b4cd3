"""Encodes records into the payload of a chunk and back: framing, compression, checksum.

Memory dominates the cost: a fresh page costs as much as decompressing into it. So buffers are
reused, and records are compressed as they arrive, in slabs that fit into the processor's cache.
Snappy blocks are independent of each other, so slabs that end at a block boundary give the same
bytes as one call. Records are processed in lists: a slab is joined, compressed, summed and written
in one call each. The inner checksums of snappy are not verified: that of the chunk covers them.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from types import ModuleType
from typing import Protocol

from paddlecloud.data.recordio._header import GZIP, HEADER_BYTES, NONE, SNAPPY, Header
from paddlecloud.data.recordio.corruption import Broken

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["SLAB", "Buffer", "Packer", "crc32", "records", "unpack"]

#: Default for the maximum decompressed size of a chunk: the format allows records up to 2 GiB.
MAX_UNPACKED = 2**31
MAX_RECORD = 2**31 - 1
_BLOCK = 65536
#: Bytes per call of the compressor: small enough for the cache, large enough for few calls.
SLAB = 16 * _BLOCK
_WINDOW = 65536
_OUTPUT = 4 * _BLOCK
#: Maximum expansion of snappy: three bytes copy at most 64.
_STRETCH = 22
_HUGE = 2**21
_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_LENGTH = struct.Struct("<I")


class Buffer:
    """A growing buffer that is reused."""

    def __init__(self) -> None:
        self._bytes: bytearray | mmap.mmap = bytearray()
        self.used = 0

    @property
    def free(self) -> int:
        return len(self._bytes) - self.used

    def clear(self) -> None:
        self.used = 0

    def reserve(self, size: int) -> memoryview:
        """The next `size` bytes to write into; the caller adds what it wrote to `used`."""
        missing = self.used + size - len(self._bytes)
        if missing > 0:
            grown = _memory(max(self.used + size, min(2 * len(self._bytes), self.used + 2**24)))
            memoryview(grown)[: self.used] = memoryview(self._bytes)[: self.used]
            self._bytes = grown
        return memoryview(self._bytes)[self.used : self.used + size]

    def add(self, data: bytes | memoryview) -> None:
        self.reserve(len(data))[:] = data
        self.used += len(data)

    def view(self) -> memoryview:
        return memoryview(self._bytes)[: self.used]


class Packer:
    """Encodes records, best about `SLAB` bytes at a time, into a chunk."""

    def __init__(self, compressor: int) -> None:
        self._compressor = compressor
        self._stored = Buffer()
        self._rest: bytes
        self._start()

    def add(self, records: list[bytes]) -> None:
        self.count += len(records)
        framed = _framed(self._rest, records)
        cut = len(framed) - len(framed) % _BLOCK
        self._compress(self._stored, memoryview(framed)[:cut], False)
        self._rest = framed[cut:]

    def finish(self, records: list[bytes]) -> memoryview:
        """The complete chunk of all records, with header; valid until the next call."""
        self.count += len(records)
        self._compress(self._stored, memoryview(_framed(self._rest, records)), True)
        chunk = self._stored.view()
        payload = chunk[HEADER_BYTES:]
        header = Header(
            checksum=crc32(payload),
            compressor=self._compressor,
            size=len(payload),
            count=self.count,
        )
        chunk[:HEADER_BYTES] = header.packed()
        self._start()
        return chunk

    def _start(self) -> None:
        self.count = 0
        self._rest = b""
        self._stored.clear()
        self._stored.reserve(HEADER_BYTES)
        self._stored.used = HEADER_BYTES
        self._compress: _Compressor = _compressor_of(self._compressor)


def unpack(header: Header, stored: memoryview, into: Buffer, limit: int) -> memoryview:
    """The framed records of a chunk; Broken if its checksum or compression is invalid."""
    found = crc32(stored)
    if found != header.checksum:
        raise Broken("checksum", found=found, stated=header.checksum)
    into.clear()
    if header.compressor == NONE:
        return stored
    if header.compressor == SNAPPY:
        _unsnap(stored, into, limit)
    elif header.compressor == GZIP:
        _gunzip(stored, into, limit)
    else:
        raise Broken("compressor", code=header.compressor)
    return into.view()


def records(
    view: memoryview, count: int, start: int = 0, stop: int | None = None
) -> Iterator[bytes]:
    """Records `[start, stop)` of a chunk. All lengths are checked before the first is returned.

    Records of equal length, which many data sets have, are split without Python code per record.
    """
    stop = count if stop is None else min(stop, count)
    if 4 * count > len(view):
        raise Broken("count", count=count, size=len(view))
    step = _equal_step(view, count)
    if step:
        part = view[start * step : max(start, stop) * step]
        return chain.from_iterable(struct.iter_unpack(f"4x{step - 4}s", part))
    ends = _ends(view, count)
    if len(view) != (ends[-1] if ends else 0):
        raise Broken("surplus", count=count, size=len(view) - (ends[-1] if ends else 0))
    begin = ends[start - 1] if start and ends else 0
    return chain.from_iterable(_windows(view, ends[start:stop], begin))


def _framed(before: bytes, records: list[bytes]) -> bytes:
    """`before`, then each record after its length, in one `join`; a common length is packed
    once."""
    if not records:
        return before
    lengths = list(map(len, records))
    if lengths.count(lengths[0]) == len(lengths):
        prefix = _LENGTH.pack(lengths[0])
        return prefix.join((b"".join((before, prefix, records[0])), *records[1:]))
    parts = [before] * (2 * len(records) + 1)
    parts[1::2] = map(_LENGTH.pack, lengths)
    parts[2::2] = records
    return b"".join(parts)


def _memory(size: int) -> bytearray | mmap.mmap:
    """New memory, in huge pages if available, which is eight times cheaper."""
    if size < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    pages = mmap.mmap(-1, -size // _HUGE * -_HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


class _Compressor(Protocol):
    def __call__(self, stored: Buffer, data: memoryview, last: bool) -> None: ...


def _compressor_of(compressor: int) -> _Compressor:
    if compressor == SNAPPY:
        return _Snappy()
    return _Gzip() if compressor == GZIP else _plain


def _plain(stored: Buffer, data: memoryview, last: bool) -> None:
    stored.add(data)


class _Snappy:
    def __init__(self) -> None:
        self._compress_into = _cramjam().snappy.compress_into
        self._covered = 0

    def __call__(self, stored: Buffer, data: memoryview, last: bool) -> None:
        """Each call writes a stream with an identifier: that of a later one overwrites ten bytes of
        the earlier one, which are then restored."""
        if not data:
            return
        covered = bytes(stored.view()[stored.used - self._covered :])
        stored.used -= len(covered)
        blocks = len(data) // _BLOCK + 1
        output = stored.reserve(len(_IDENTIFIER) + len(data) + 8 * blocks)
        written = self._compress_into(data, output)
        output[: len(covered)] = covered
        stored.used += written
        self._covered = len(_IDENTIFIER)


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(wbits=31)

    def __call__(self, stored: Buffer, data: memoryview, last: bool) -> None:
        stored.add(self._stream.compress(data))
        if last:
            stored.add(self._stream.flush())


def _cramjam() -> ModuleType:
    """The package cramjam; ImportError with the command that installs it."""
    try:
        import cramjam  # noqa: PLC0415 - chunks without snappy need no package at all
    except ImportError as error:
        raise ImportError("snappy needs the package cramjam: pip install cramjam") from error
    return cramjam


def _unsnap(stored: memoryview, into: Buffer, limit: int) -> None:
    """Each block is decompressed into a buffer of its maximum size, whatever it claims."""
    cramjam = _cramjam()
    decompress, wrong = cramjam.snappy.decompress_raw_into, cramjam.DecompressionError
    position, end = 0, len(stored)
    while position < end:
        _reserve_blocks(stored, position, into, limit)
        kind, size = stored[position], int.from_bytes(stored[position + 1 : position + 4], "little")
        position += 4
        body = stored[position : position + size]
        if len(body) != size or position > end:
            raise Broken("compressed", why="a block of snappy is cut short")
        if not position - 4 and (kind != 0xFF or bytes(body) != _IDENTIFIER[4:]):
            raise Broken("compressed", why="the identifier of snappy is missing")
        position += size
        if kind == 0:
            try:
                into.used += decompress(body[4:], into.reserve(_BLOCK))
            except wrong as error:
                raise Broken("compressed", why=str(error)) from error
        elif kind == 1:
            if not 4 <= size <= _BLOCK + 4:
                raise Broken("compressed", why=f"a stored block of {size} bytes")
            into.add(body[4:])
        elif kind < 0x80:
            raise Broken("compressed", why=f"a block of the unknown kind {kind:#x}")
        if into.used > limit:
            raise Broken("too_large", size=into.used, limit=limit)


def _reserve_blocks(stored: memoryview, position: int, into: Buffer, limit: int) -> None:
    """Memory for this block and all that follow: growing with each would touch twice as much."""
    if into.free < _BLOCK:
        into.reserve(_BLOCK + min(limit, _claimed(stored, position)))


def _claimed(stored: memoryview, position: int) -> int:
    """The decompressed size that the following blocks claim, limited by what is possible."""
    total, end = 0, len(stored)
    while position + 4 <= end:
        kind, size = stored[position], int.from_bytes(stored[position + 1 : position + 4], "little")
        if kind == 0:
            total += min(_length(stored[position + 8 : position + 11]), _STRETCH * size, _BLOCK)
        elif kind == 1:
            total += min(size, _BLOCK)
        position += 4 + size
    return total


def _length(head: memoryview) -> int:
    """The varint at the beginning of a block."""
    total = 0
    for place, byte in enumerate(head):
        total |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return total


def _gunzip(stored: memoryview, into: Buffer, limit: int) -> None:
    """Input and output are limited per call, so no input expands beyond `limit` unnoticed."""
    stream = zlib.decompressobj(wbits=31)
    for position in range(0, len(stored), _BLOCK):
        fed = bytes(stored[position : position + _BLOCK])
        while fed:
            stream = zlib.decompressobj(wbits=31) if stream.eof else stream
            _inflate(stream, fed, into, limit)
            fed = stream.unused_data if stream.eof else stream.unconsumed_tail
    while not stream.eof:
        if not _inflate(stream, b"", into, limit):
            raise Broken("compressed", why="the gzip stream is cut short")


def _inflate(stream: zlib._Decompress, fed: bytes, into: Buffer, limit: int) -> int:
    try:
        data = stream.decompress(fed, _OUTPUT)
    except zlib.error as error:
        raise Broken("compressed", why=str(error)) from error
    into.add(data)
    if into.used > limit:
        raise Broken("too_large", size=into.used, limit=limit)
    return len(data)


def _equal_step(view: memoryview, count: int) -> int:
    """The bytes from one record to the next if all have the same length, else 0."""
    if not count or len(view) % count:
        return 0
    step = len(view) // count
    if _LENGTH.unpack_from(view)[0] != step - 4:
        return 0
    first = bytes(view[:4])
    alike = all(bytes(view[n::step]) == first[n : n + 1] * count for n in range(4))
    return step if alike else 0


def _ends(view: memoryview, count: int) -> list[int]:
    """The end of each record; Broken if a length leads beyond the view."""
    unpack_from, position = _LENGTH.unpack_from, 0
    ends: list[int] = []
    try:
        for _ in range(count):
            position += 4 + unpack_from(view, position)[0]
            ends.append(position)
    except struct.error as error:
        if position == len(view):
            raise Broken("count", count=count, size=len(view)) from error
        raise Broken("length", record=len(ends) - (position > len(view))) from error
    if position > len(view):
        raise Broken("length", record=count - 1)
    return ends


def _windows(view: memoryview, ends: list[int], begin: int) -> Iterator[list[bytes]]:
    """Lists of records, sliced from copies of about 64 KiB: slicing a small `bytes` is cheapest."""
    index = 0
    while index < len(ends):
        after = bisect_right(ends, begin + _WINDOW, lo=index)
        if after <= index + 1:
            yield [bytes(view[begin + 4 : ends[index]])]
            index, begin = index + 1, ends[index]
            continue
        window = bytes(view[begin : ends[after - 1]])
        found, start = [], 4
        for end in ends[index:after]:
            found.append(window[start : end - begin])
            start = end - begin + 4
        yield found
        index, begin = after, ends[after - 1]
