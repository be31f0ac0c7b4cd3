"""The index of chunks of one or several files, read from the headers alone.

It is for distributing work: a chunk is identified by path, offset and count. `Reader` needs none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from paddlecloud.data.recordio._chunk_scan import ChunkDecoder, Link, damage_at, links
from paddlecloud.data.recordio._header import HEADER_BYTES, parse
from paddlecloud.data.recordio.corruption import Broken, Damage, DamagedFile
from paddlecloud.data.recordio.record_reader import check_words
from paddlecloud.data.recordio.source import Opener, Source, Target, each, opened


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One chunk: its file, where its header begins, how many records it has, its bytes with header,
    and the number of its first record over all files of the index."""

    path: str
    offset: int
    count: int
    size: int
    first: int

    def records(self, *, layout: str = "2017", opener: Opener | None = None) -> Iterator[bytes]:
        """Its records; DamagedFile if it differs from the index."""
        with closing(opened(self.path, opener)) as source:
            yield from _records(source, self, layout)


class Index:
    """The chunks of one or several files, in order."""

    def __init__(self, chunks: Iterable[Chunk], damages: Iterable[Damage] = ()) -> None:
        self.chunks = tuple(chunks)
        self.damages = tuple(damages)
        self._firsts = [chunk.first for chunk in self.chunks]
        self.records = sum(chunk.count for chunk in self.chunks)

    @classmethod
    def of(
        cls,
        target: Target | Iterable[Target],
        *,
        errors: str = "raise",
        layout: str = "2017",
        opener: Opener | None = None,
    ) -> Index:
        """Read the headers. Damage inside a payload is not detected."""
        check_words(errors, layout)
        chunks: list[Chunk] = []
        damages: list[Damage] = []
        first = 0
        for source in each(target, opener):
            for link in links(source, layout, resync=errors == "skip"):
                if link.damage is None:
                    size = link.end - link.offset
                    chunks.append(
                        Chunk(
                            path=source.name,
                            offset=link.offset,
                            count=link.count,
                            size=size,
                            first=first,
                        )
                    )
                    first += link.count
                elif errors == "raise":
                    raise DamagedFile(link.damage)
                else:
                    damages.append(link.damage)
            if damages and errors == "stop":
                break
        return cls(chunks, damages)

    def __len__(self) -> int:
        """Number of records."""
        return self.records

    def locate(self, record: int) -> tuple[int, int]:
        """Number of the chunk and position in it; (-1, -1) if there is no such record."""
        if not 0 <= record < self.records:
            return -1, -1
        number = bisect_right(self._firsts, record) - 1
        return number, record - self.chunks[number].first

    def only(self, number: int) -> Index:
        """The index of one chunk alone, its records counted from 0."""
        chunk = self.chunks[number]
        alone = Chunk(
            path=chunk.path, offset=chunk.offset, count=chunk.count, size=chunk.size, first=0
        )
        return Index([alone])

    def parts(self, count: int) -> list[tuple[Chunk, ...]]:
        """The chunks in `count` lists, in order, nearly equal in records."""
        found: list[list[Chunk]] = [[] for _ in range(count)]
        for chunk in self.chunks:
            middle = chunk.first + chunk.count / 2
            place = int(middle * count / self.records) if self.records else 0
            found[min(count - 1, place)].append(chunk)
        return [tuple(part) for part in found]


def _records(source: Source, chunk: Chunk, layout: str) -> Iterator[bytes]:
    end = chunk.offset + chunk.size
    try:
        header = parse(source.read_at(chunk.offset, HEADER_BYTES), layout)
        if header.size != chunk.size - HEADER_BYTES or header.count != chunk.count:
            raise Broken("count", count=chunk.count, size=header.size)
        link = Link(chunk=0, offset=chunk.offset, end=end, header=header)
        found = ChunkDecoder().records(source, link)
    except Broken as broken:
        raise DamagedFile(damage_at(source, 0, chunk.offset, end, broken)) from None
    yield from found
