"""Verifies whole files, copies their valid chunks, and truncates incomplete ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from paddlecloud.data.recordio._chunk_scan import (
    ChunkDecoder,
    Link,
    damage_at,
    hidden,
    holds_chunk,
    links,
)
from paddlecloud.data.recordio._header import NAMES
from paddlecloud.data.recordio.atomic_file import SafeFile
from paddlecloud.data.recordio.corruption import Broken, Damage, DamagedFile
from paddlecloud.data.recordio.source import Opener, Source, opened

Progress = Callable[[int], object]


@dataclass(kw_only=True)
class Report:
    """Result for one file. `bytes`: of the file; `raw_bytes`: of the records alone."""

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
    """Read the whole file and report its contents and damage."""
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
    """Copy every valid chunk of `path` to `output`, which may be the same path.

    Chunks in the layout of Fluid are written in that of 2017.
    """
    # The source is closed first: Windows cannot replace an open file.
    with SafeFile(output) as file, closing(opened(os.fspath(path))) as source:
        report = Report(path=source.name, bytes=source.size or 0)
        for link in _sound(source, layout, report, progress):
            assert link.header is not None
            file.write(link.header.packed())
            offset = link.payload
            while offset < link.end:
                data = source.read_at(offset, min(2**20, link.end - offset))
                file.write(data)
                offset += len(data)
    return report


def recover(path: str | os.PathLike[str]) -> int:
    """Truncate what a dead writer left incomplete at the end of a file; returns how many bytes.

    The last chunk is checked, and earlier ones as long as they are incomplete. DamagedFile, and
    nothing is truncated, if a valid chunk follows the damage.
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
    """The valid chunks of a file; adds them and the damage to the report."""
    checker = _Checker(source, report)
    for link in links(source, layout, resync=True):
        if link.damage is not None:
            report.damages.append(link.damage)
        elif checker.is_sound(link):
            yield link
        elif report.damages[-1].reason == "checksum":
            for inner in hidden(source, link, layout):
                if inner.damage is None and checker.is_sound(inner):
                    yield inner
        if progress is not None:
            progress(link.end - link.offset)


class _Checker:
    """Decodes chunks and adds their records to the report."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source = source
        self._report = report
        self._decoder = ChunkDecoder()

    def is_sound(self, link: Link) -> bool:
        header, report = link.header, self._report
        assert header is not None
        try:
            sizes = [len(record) for record in self._decoder.records(self._source, link)]
        except Broken as broken:
            damage = damage_at(self._source, link.chunk, link.offset, link.end, broken)
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


def _torn_at(source: Source) -> int:
    """The end of the complete chunks, if only an incomplete write follows."""
    chain = list(links(source, resync=True))
    tear: Damage | None = None
    while chain:
        report, last = Report(path=source.name), chain[-1]
        if last.damage is None and _Checker(source, report).is_sound(last):
            break
        tear = last.damage or report.damages[0]
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
