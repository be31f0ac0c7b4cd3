"""Looking at whole files: what is in them, what is damaged, and a copy of what is sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from paddlecloud.data.recordio._chunk_scan import Link, Unfolder, hidden, holds_chunk, links, placed
from paddlecloud.data.recordio._header import NAMES
from paddlecloud.data.recordio.atomic_file import SafeFile
from paddlecloud.data.recordio.corruption import Broken, Damage, DamagedFile
from paddlecloud.data.recordio.source import Opener, Source, opened

Progress = Callable[[int], object]


@dataclass(kw_only=True)
class Report:
    """What was found in one file. Bytes are of the file, raw bytes of the records alone."""

    path: str
    bytes: int = 0
    chunks: int = 0
    records: int = 0
    raw_bytes: int = 0
    smallest: int | None = None
    largest: int | None = None
    compressors: set[str] = field(default_factory=set)
    damages: list[Damage] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.damages


def verify(
    path: str,
    *,
    layout: str = "2017",
    opener: Opener | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read everything and tell what is there and what is damaged."""
    with closing(opened(path, opener)) as source:
        report = Report(path=source.name, bytes=(source.size or 0) - source.start)
        for _ in _sound(source, layout, report, progress):
            pass
    return report


def repair(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    layout: str = "2017",
    progress: Progress | None = None,
) -> Report:
    """Write every sound chunk of `path` to `output`, byte for byte; the same path is replaced.

    Chunks in the order of Fluid come out in that of 2017.
    """
    # The source is closed first: Windows replaces no file that is open.
    with SafeFile(output) as file, closing(opened(os.fspath(path))) as source:
        report = Report(path=source.name, bytes=source.size or 0)
        for link in _sound(source, layout, report, progress):
            assert link.header is not None
            file.write(link.header.packed())
            _copy(source, link, file)
    return report


def recover(path: str | os.PathLike[str]) -> int:
    """Cut off what a dead writer left incomplete at the end of a file; how many bytes that were.

    The last chunk is checked, and those before it as long as they turn out to be torn. Behind a
    tear is nothing: DamagedFile, and nothing is cut off, where a sound chunk follows the damage.
    """
    if not Path(path).exists():
        return 0
    with closing(opened(os.fspath(path))) as source:
        size = source.size or 0
        end = _torn_at(source)
    if end < size:
        os.truncate(path, end)
    return size - end


def _sound(
    source: Source, layout: str, report: Report, progress: Progress | None
) -> Iterator[Link]:
    """The sound chunks of a file, counted into the report along with the damage between them."""
    looker = _Looker(source, report)
    for link in links(source, layout, resync=True):
        if link.damage is not None:
            report.damages.append(link.damage)
        elif looker.is_sound(link):
            yield link
        elif report.damages[-1].reason == "checksum":
            for inner in hidden(source, link, layout):
                if inner.damage is None and looker.is_sound(inner):
                    yield inner
        if progress is not None:
            progress(link.end - link.offset)


class _Looker:
    """Unfolds chunks one after the other and counts what is in them."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source = source
        self._report = report
        self._unfolder = Unfolder()

    def is_sound(self, link: Link) -> bool:
        header, report = link.header, self._report
        assert header is not None
        try:
            sizes = [len(record) for record in self._unfolder.records(self._source, link)]
        except Broken as broken:
            damage = placed(self._source, link.chunk, link.offset, link.end, broken)
            report.damages.append(damage)
            return False
        report.chunks += 1
        report.records += len(sizes)
        report.raw_bytes += sum(sizes)
        report.compressors.add(NAMES[header.compressor])
        if sizes:
            known = [size for size in (report.smallest, report.largest) if size is not None]
            report.smallest, report.largest = min(sizes + known), max(sizes + known)
        return True


def _copy(source: Source, link: Link, target: BinaryIO) -> None:
    offset = link.payload
    while offset < link.end:
        piece = source.read_at(offset, min(2**20, link.end - offset))
        target.write(piece)
        offset += len(piece)


def _torn_at(source: Source) -> int:
    """Where the whole chunks of a file end, if what follows is what a dead writer left."""
    chain = list(links(source, resync=True))
    tear: Damage | None = None
    while chain and (damage := _damage_of(source, chain[-1])):
        tear = damage
        chain.pop()
    inside = next((link.damage for link in chain if link.damage is not None), None)
    if inside is not None:
        raise DamagedFile(inside, kept=True)
    if tear is None:
        return source.size or 0
    if not chain and tear.reason in ("magic", "magic_swapped"):
        raise ValueError(f"{source.name} is no RecordIO file; nothing was cut off")
    if holds_chunk(source, tear.offset):
        raise DamagedFile(tear, kept=True)
    return tear.offset


def _damage_of(source: Source, link: Link) -> Damage | None:
    report = Report(path=source.name)
    if link.damage is not None or _Looker(source, report).is_sound(link):
        return link.damage
    return report.damages[0]
