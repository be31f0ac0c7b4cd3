"""A directory store in front of a bucket: logs in the directory, everything else in the bucket.

An object store cannot append, and logs grow. They stay in the directory where `logs` writes them,
and are listed, read and deleted together with the files of the bucket. New files are written to the
bucket. Of a path in both, the file in the directory is used.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from paddlecloud.stores.base import Part, Reader, Sink, Stat
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.s3.store import S3Store


class LayeredStore:
    def __init__(self, front: DirectoryStore, behind: S3Store) -> None:
        self.front, self.behind = front, behind

    def list(self, prefix: str = "") -> Iterator[Stat]:
        both = heapq.merge(
            self.front.list(prefix), self.behind.list(prefix), key=lambda stat: stat.path
        )
        last = None
        for stat in both:
            # `merge` yields equal paths in the order of its sources.
            if stat.path != last:
                yield stat
            last = stat.path

    def stat(self, path: str) -> Stat | None:
        return self.front.stat(path) or self.behind.stat(path)

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        wanted = tuple(paths)
        here = self.front.sizes(wanted)
        return {**self.behind.sizes(path for path in wanted if path not in here), **here}

    def stats(self, paths: Iterable[str]) -> dict[str, Stat]:
        wanted = tuple(paths)
        here = {path: self.front.stat(path) for path in self.front.sizes(wanted)}
        behind = self.behind.stats(path for path in wanted if path not in here)
        return {**behind, **{path: stat for path, stat in here.items() if stat is not None}}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        holder = self.front if self.front.stat(path) is not None else self.behind
        return holder.read(path, offset, length)

    def write(
        self, path: str, chunks: Iterable[bytes], *, modified: datetime | None = None
    ) -> Stat:
        return self.behind.write(path, chunks, modified=modified)

    def open_write(self, path: str, *, modified: datetime | None = None) -> Sink:
        return self.behind.open_write(path, modified=modified)

    def delete(self, path: str) -> None:
        self.front.delete(path)
        self.behind.delete(path)

    def delete_tree(self, path: str) -> int:
        return self.front.delete_tree(path) + self.behind.delete_tree(path)

    def flush(self) -> None:
        self.front.flush()
        self.behind.flush()

    def sweep(self, before: datetime) -> int:
        return self.front.sweep(before) + self.behind.sweep(before)

    def begin_parts(self, path: str, *, part_size: int, modified: datetime | None = None) -> str:
        return self.behind.begin_parts(path, part_size=part_size, modified=modified)

    def put_part(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        return self.behind.put_part(path, upload, number, data)

    def parts(self, path: str, upload: str) -> Sequence[Part]:
        return self.behind.parts(path, upload)

    def finish_parts(self, path: str, upload: str, *, size: int) -> Stat:
        return self.behind.finish_parts(path, upload, size=size)

    def drop_parts(self, path: str, upload: str) -> None:
        self.behind.drop_parts(path, upload)

    def presign_read(self, path: str, *, good_for: timedelta, now: datetime) -> str:
        """Only for files in the bucket: see `front.stat`."""
        return self.behind.presign_read(path, good_for=good_for, now=now)

    def presign_part(
        self, path: str, upload: str, number: int, *, good_for: timedelta, now: datetime
    ) -> str:
        return self.behind.presign_part(path, upload, number, good_for=good_for, now=now)

    def close(self) -> None:
        self.front.close()
        self.behind.close()
