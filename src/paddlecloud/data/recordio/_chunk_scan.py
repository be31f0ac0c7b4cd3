"""The chain of chunks in a file, from headers alone, and the way on where the chain is broken.

A link is a stretch of the file: a chunk, or junk that is none. Links follow each other without a
gap, and which ones there are depends on the file alone: several readers that each take the links
that begin in their part of the file miss nothing and share nothing, damaged file or not. Where a
chunk cannot be believed the search goes on for the next one whose checksum is right.
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
#: Reasons that say: here is no chunk at all.
_JUNK = ("header_cut", "magic", "magic_swapped")
#: How a payload begins, by compressor.
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
        """How many records it says it has; junk has none."""
        return self.header.count if self.header else 0

    @property
    def is_junk(self) -> bool:
        return self.damage is not None and self.damage.reason in _JUNK

    @property
    def payload(self) -> int:
        return self.offset + HEADER_BYTES


class Unfolder:
    """Records of chunks, one chunk after the other in the same memory: those of one are to be taken
    before the next is asked for. `limit` is the most memory that a chunk may unfold to."""

    def __init__(self, limit: int = MAX_UNPACKED) -> None:
        self._limit = limit
        self._stored, self._unpacked = Buffer(), Buffer()

    def records(
        self, source: Source, link: Link, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """Records `[start, stop)` of a sound link; Broken if it turns out to be none."""
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
    """The links of a file. Without `resync` a broken one is the last."""
    offset, chunk = source.start, 0
    while link := _link(source, offset, chunk, layout, resync):
        yield link
        if link.damage and not resync:
            return
        chunk += not link.is_junk
        offset = link.end


def hidden(source: Source, link: Link, layout: str = "2017") -> Iterator[Link]:
    """Sound chunks inside a chunk whose checksum is wrong because its end is not where it says.

    They may as well be RecordIO data inside a record of a chunk that is damaged otherwise. Two
    things tell: the checksum is right for the bytes up to the first of them; or they reach exactly
    to the end and no length in front of them makes them a record.
    """
    assert link.header is not None
    offset = link.payload
    dead_ends: set[int] = set()
    while (found := _search(source, offset, link.end, layout)) is not None:
        size_alone = source.checksum(link.payload, found - link.payload) == link.header.checksum
        if size_alone or _fills(source, found, link.end, layout, dead_ends):
            yield from _between(source, found, link, layout)
            return
        offset = found + 1


def holds_chunk(source: Source, offset: int) -> bool:
    """Whether the checksum of any chunk at `offset` or behind it is right: of one that only cannot
    be read, too, such as one of the other layout."""
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
        end = _after_break(source, offset, head, layout) if resync else offset
        damage = placed(source, chunk, offset, end, broken)
        return Link(chunk=chunk, offset=offset, end=end, header=None, damage=damage)
    end = offset + HEADER_BYTES + header.size
    if resync and not _chain_goes_on(source, end):
        found = source.checksum(offset + HEADER_BYTES, header.size)
        if found != header.checksum:
            end = _next_sound(source, offset, layout)
            wrong = Broken("checksum", found=found, stated=header.checksum)
            damage = placed(source, chunk, offset, end, wrong)
            return Link(chunk=chunk, offset=offset, end=end, header=None, damage=damage)
    return Link(chunk=chunk, offset=offset, end=end, header=header)


def placed(source: Source, chunk: int, offset: int, end: int, broken: Broken) -> Damage:
    return Damage(
        path=source.name,
        chunk=chunk,
        offset=offset,
        end=end,
        reason=broken.reason,
        params=broken.params,
    )


def _believable(source: Source, offset: int, head: bytes, layout: str) -> Header:
    """The header, if it can be true; the memory it asks for exists in the file."""
    header = parse(head, layout)
    left = source.left(offset + HEADER_BYTES)
    fits = left is None or header.size <= left
    if header.compressor in NAMES and fits:
        return header
    if _is_other_layout(source, offset, head, layout):
        raise Broken("fluid" if layout == "2017" else "not_fluid")
    if header.compressor not in NAMES:
        raise Broken("compressor", code=header.compressor)
    raise Broken("size", size=header.size, left=left)


def _is_other_layout(source: Source, offset: int, head: bytes, layout: str) -> bool:
    header = fields(head, other(layout))
    return header.compressor in NAMES and _checksum_is_right(source, offset, header)


def _after_break(source: Source, offset: int, head: bytes, layout: str) -> int:
    """Behind a chunk that only cannot be read, such as one of another layout; else wherever the
    next sound one is."""
    end = _stated_end(source, offset, head)
    return _next_sound(source, offset, layout) if end is None else end


def _stated_end(source: Source, offset: int, head: bytes) -> int | None:
    """Where a chunk ends as its header says, in either order, if its checksum is right."""
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


def _chain_goes_on(source: Source, end: int) -> bool:
    return end == source.size or source.read_at(end, len(MAGIC)) == MAGIC


def _next_sound(source: Source, offset: int, layout: str) -> int:
    assert source.size is not None
    found = _search(source, offset + 1, source.size, layout)
    return source.size if found is None else found


def _fills(source: Source, offset: int, end: int, layout: str, dead_ends: set[int]) -> bool:
    """Whether sound chunks reach from `offset` to `end`, and are not the last record. A chunk that
    leads elsewhere is remembered, so that none is followed twice."""
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


def _between(source: Source, offset: int, around: Link, layout: str) -> Iterator[Link]:
    while offset < around.end:
        link = _link(source, offset, around.chunk, layout, resync=True)
        if link is None or link.end > around.end:
            return
        yield link
        offset = link.end


def _search(source: Source, begin: int, end: int, layout: str) -> int | None:
    """Where the next sound chunk begins in `[begin, end)`. It is mostly near, so the look is short
    at first."""
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
    """A chunk with records whose checksum is right; cheap questions come first."""
    head = source.read_at(offset, HEADER_BYTES + 10)
    if len(head) < HEADER_BYTES or head[:4] != MAGIC:
        return False
    header = fields(head, layout)
    if header.compressor not in NAMES or not header.count:
        return False
    if not head[HEADER_BYTES:].startswith(_BEGINNINGS.get(header.compressor, b"")):
        return False
    return _checksum_is_right(source, offset, header)
