"""Finds the chunks of a file from their headers, and resynchronizes after corruption.

A link is a byte range of the file: a chunk, or junk. Links follow each other without a gap and
depend on the file alone: several readers that each take the links that begin in their part of the
file read every chunk once, even of a damaged file. After an invalid chunk the scan searches the
next one with a correct checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddlecloud.data.recordio._codec import MAX_UNPACKED, Buffer, records, unpack
from paddlecloud.data.recordio._header import (
    GZIP,
    HEADER_BYTES,
    LAYOUTS,
    MAGIC,
    NAMES,
    SNAPPY,
    Header,
    fields,
    other,
    parse,
)
from paddlecloud.data.recordio.corruption import Broken, Damage
from paddlecloud.data.recordio.source import Source

_FIRST_STEP, _STEP = 2**12, 2**20
#: Reasons that mean that there is no chunk at all.
_JUNK = ("header_cut", "magic", "magic_swapped")
#: First bytes of a payload, by compressor.
_BEGINNINGS = {SNAPPY: b"\xff\x06\x00\x00sNaPpY", GZIP: b"\x1f\x8b"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """`[offset, end)` of a file: chunk number `chunk`, or junk where that chunk should be."""

    chunk: int
    offset: int
    end: int
    header: Header | None
    damage: Damage | None = None

    @property
    def count(self) -> int:
        """Number of records by its header; 0 for junk."""
        return self.header.count if self.header else 0

    @property
    def is_junk(self) -> bool:
        return self.damage is not None and self.damage.reason in _JUNK

    @property
    def payload(self) -> int:
        return self.offset + HEADER_BYTES


class ChunkDecoder:
    """Decodes chunks into reused buffers: consume the records of one chunk before the next call.
    `limit`: maximum decompressed size of a chunk."""

    def __init__(self, limit: int = MAX_UNPACKED) -> None:
        self._limit = limit
        self._stored, self._unpacked = Buffer(), Buffer()

    def records(
        self, source: Source, link: Link, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """Records `[start, stop)` of a chunk; Broken if it is invalid."""
        header = link.header
        assert header is not None
        if header.size > self._limit:
            raise Broken("too_large", size=header.size, limit=self._limit)
        stored = source.take(link.payload, header.size, self._stored)
        if len(stored) < header.size:
            raise Broken("size", size=header.size, left=len(stored))
        view = unpack(header, stored, self._unpacked, self._limit)
        return records(view, header.count, start, stop)


def links(source: Source, layout: str = "2017", *, resync: bool = False) -> Iterator[Link]:
    """The links of a file. Without `resync` an invalid one is the last."""
    offset, chunk = source.start, 0
    while link := _link(source, offset, chunk, layout, resync):
        yield link
        if link.damage and not resync:
            return
        chunk += not link.is_junk
        offset = link.end


def hidden(source: Source, link: Link, layout: str = "2017") -> Iterator[Link]:
    """Valid chunks inside a chunk whose checksum is wrong because its stated size is wrong.

    They could also be RecordIO data inside a record. They are chunks if the checksum is correct for
    the bytes before the first of them, or if they reach exactly to the end and no length before
    them makes them a record.
    """
    assert link.header is not None
    offset = link.payload
    dead_ends: set[int] = set()
    while (found := _search(source, offset, link.end, layout)) is not None:
        size_alone = source.checksum(link.payload, found - link.payload) == link.header.checksum
        if size_alone or _fills(source, found, link.end, layout, dead_ends):
            while found < link.end:
                inner = _link(source, found, link.chunk, layout, resync=True)
                if inner is None or inner.end > link.end:
                    return
                yield inner
                found = inner.end
            return
        offset = found + 1


def holds_chunk(source: Source, offset: int) -> bool:
    """Whether any chunk at or after `offset` has a correct checksum, in any layout."""
    assert source.size is not None
    head = source.read_at(offset, HEADER_BYTES)
    if _stated_end(source, offset, head) is not None:
        return True
    size = source.size
    return any(_search(source, offset, size, layout) is not None for layout in LAYOUTS)


def _link(source: Source, offset: int, chunk: int, layout: str, resync: bool) -> Link | None:
    head = source.read_at(offset, HEADER_BYTES)
    if not head:
        return None
    try:
        header = _believable(source, offset, head, layout)
    except Broken as broken:
        end = offset
        if resync:
            # The end of a chunk that is valid in another layout; else the next valid chunk.
            stated = _stated_end(source, offset, head)
            end = _next_sound(source, offset, layout) if stated is None else stated
        damage = damage_at(source, chunk, offset, end, broken)
        return Link(chunk=chunk, offset=offset, end=end, header=None, damage=damage)
    end = offset + HEADER_BYTES + header.size
    if resync and end != source.size and source.read_at(end, len(MAGIC)) != MAGIC:
        found = source.checksum(offset + HEADER_BYTES, header.size)
        if found != header.checksum:
            end = _next_sound(source, offset, layout)
            wrong = Broken("checksum", found=found, stated=header.checksum)
            damage = damage_at(source, chunk, offset, end, wrong)
            return Link(chunk=chunk, offset=offset, end=end, header=None, damage=damage)
    return Link(chunk=chunk, offset=offset, end=end, header=header)


def damage_at(source: Source, chunk: int, offset: int, end: int, broken: Broken) -> Damage:
    return Damage(
        path=source.name,
        chunk=chunk,
        offset=offset,
        end=end,
        reason=broken.reason,
        params=broken.params,
    )


def _believable(source: Source, offset: int, head: bytes, layout: str) -> Header:
    """The header, if it is plausible: known compressor, payload within the file."""
    header = parse(head, layout)
    left = source.left(offset + HEADER_BYTES)
    fits = left is None or header.size <= left
    if header.compressor in NAMES and fits:
        return header
    swapped = fields(head, other(layout))
    if swapped.compressor in NAMES and _checksum_is_right(source, offset, swapped):
        raise Broken("fluid" if layout == "2017" else "not_fluid")
    if header.compressor not in NAMES:
        raise Broken("compressor", code=header.compressor)
    raise Broken("size", size=header.size, left=left)


def _stated_end(source: Source, offset: int, head: bytes) -> int | None:
    """The end of a chunk by its header, in either layout, if its checksum is correct."""
    if len(head) == HEADER_BYTES and head[:4] == MAGIC:
        for header in (fields(head, layout) for layout in LAYOUTS):
            if _checksum_is_right(source, offset, header):
                return offset + HEADER_BYTES + header.size
    return None


def _checksum_is_right(source: Source, offset: int, header: Header) -> bool:
    left = source.left(offset + HEADER_BYTES)
    if left is None or not 0 < header.size <= left:
        return False
    return source.checksum(offset + HEADER_BYTES, header.size) == header.checksum


def _next_sound(source: Source, offset: int, layout: str) -> int:
    assert source.size is not None
    found = _search(source, offset + 1, source.size, layout)
    return source.size if found is None else found


def _fills(source: Source, offset: int, end: int, layout: str, dead_ends: set[int]) -> bool:
    """Whether valid chunks reach from `offset` to `end`, and are not the last record. Chunks that
    lead elsewhere are added to `dead_ends`, so that none is followed twice."""
    if source.read_at(offset - 4, 4) == (end - offset).to_bytes(4, "little"):
        return False
    passed: list[int] = []
    while offset < end and offset not in dead_ends and _is_sound(source, offset, layout):
        passed.append(offset)
        head = source.read_at(offset, HEADER_BYTES)
        offset += HEADER_BYTES + fields(head, layout).size
    if offset != end:
        dead_ends.update(passed)
    return offset == end


def _search(source: Source, begin: int, end: int, layout: str) -> int | None:
    """The offset of the next valid chunk in `[begin, end)`. It is mostly near, so the first window
    is small."""
    step = _FIRST_STEP
    while begin < end:
        window = source.read_at(begin, min(step, end - begin + len(MAGIC) - 1))
        step = min(2 * step, _STEP)
        found = window.find(MAGIC)
        while found >= 0 and begin + found < end:
            if _is_sound(source, begin + found, layout):
                return begin + found
            found = window.find(MAGIC, found + 1)
        if len(window) < len(MAGIC):
            return None
        begin += len(window) - len(MAGIC) + 1
    return None


def _is_sound(source: Source, offset: int, layout: str) -> bool:
    """Whether a chunk with records and a correct checksum begins here; cheap checks first."""
    head = source.read_at(offset, HEADER_BYTES + 10)
    if len(head) < HEADER_BYTES or head[:4] != MAGIC:
        return False
    header = fields(head, layout)
    if header.compressor not in NAMES or not header.count:
        return False
    if not head[HEADER_BYTES:].startswith(_BEGINNINGS.get(header.compressor, b"")):
        return False
    return _checksum_is_right(source, offset, header)
