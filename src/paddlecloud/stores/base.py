"""The store protocol and its optional abilities.

A store maps paths to bytes. It has no directories: a path exists when a file was written to it.
Paths are relative with forward slashes and are checked (`model.files.snapshot.check_path`), so none
leads outside. What only some stores can do is a protocol of its own (`Can...`), tested with
isinstance()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from paddlecloud.model.errors import Invalid

if TYPE_CHECKING:
    from concurrent.futures import Future

CHUNK = 256 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Stat:
    """One stored file."""

    path: str
    size: int
    modified: datetime
    """Aware, UTC."""
    tag: str = field(default="", compare=False)
    """The ETag, if the store has one: it changes with the content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a file that is uploaded in parts; the first has number 1."""

    number: int
    size: int
    tag: str
    """The ETag of these bytes."""


class Sink(Protocol):
    """A file being written; nothing of it is visible before `commit`.

    Synchronous, so that a streaming route can feed it chunk by chunk.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        """Append bytes. StorageFull if there is no space; then `abort` it."""

    def commit(self) -> Stat:
        """Move the file to its path, replacing what was there. After an error none of the new bytes
        are left."""

    def abort(self) -> None:
        """Discard the bytes. Does nothing after `commit` or a second time."""


@runtime_checkable
class CommitsLater(Protocol):
    """A sink of a remote store: many files can be committed concurrently."""

    def commit_later(self) -> Future[Stat]:
        """`commit` in another thread; the sink cannot be used afterwards."""


class Reader:
    """The bytes of one file as an iterator of chunks; closes itself at the end.

    It is opened before the first chunk is read, so a missing file is detected early. The opened
    file stays readable after it is replaced or deleted.
    """

    def __init__(
        self, stat: Stat, length: int, read: Callable[[int], bytes], close: Callable[[], None]
    ) -> None:
        self.stat = stat
        self.length = length
        """Number of bytes it yields."""
        self._read = read
        self._close: Callable[[], None] | None = close

    def __iter__(self) -> Iterator[bytes]:
        left = self.length
        while left and self._close is not None:
            data = self._read(min(CHUNK, left))
            if not data:
                break
            left -= len(data)
            yield data
        self.close()

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Store(Protocol):
    """Every call may be made from any thread."""

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Every file whose path starts with these letters, sorted by path.

        End the prefix with a slash to mean a directory.
        """

    def stat(self, path: str) -> Stat | None:
        """The file at this path, or None."""

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        """The sizes of those of these files that exist; for many far cheaper than `stat`."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        """The bytes from `offset` on, at most `length`. NotFound when there is no such file."""

    def write(
        self, path: str, chunks: Iterable[bytes], *, modified: datetime | None = None
    ) -> Stat:
        """Store a whole file: all of it under this path, or nothing."""

    def open_write(self, path: str, *, modified: datetime | None = None) -> Sink:
        """Start a file that is written in chunks."""

    def delete(self, path: str) -> None:
        """Delete one file. Idempotent."""

    def delete_tree(self, path: str) -> int:
        """Delete the file at this path and everything below it; returns the bytes freed."""

    def flush(self) -> None:
        """Return when every file committed before this call would survive a power cut.

        Call it once before acknowledging what refers to those files, not once per file.
        """


@runtime_checkable
class CanTag(Protocol):
    """Has ETags, also in listings (whose times may be those of the upload)."""

    def stats(self, paths: Iterable[str]) -> dict[str, Stat]:
        """The existing ones of these files, with their ETags; cheaper than many `stat`."""


@runtime_checkable
class CanLocalPath(Protocol):
    """Keeps its files on this machine, where other processes may open them."""

    def local_path(self, path: str) -> Path | None:
        """The local path of the file or directory; None if it does not exist."""


@runtime_checkable
class CanReportFreeSpace(Protocol):
    """Is on a disk that may be full."""

    def free_bytes(self) -> int:
        """How many more bytes fit."""


@runtime_checkable
class CanAdopt(Protocol):
    """Adopts files that another process of the same user left in a handoff directory."""

    def make_place(self) -> tuple[str, Path]:
        """A new handoff directory, accessible to our user only: its name and path."""

    def adopt(self, place: str, name: str, path: str, *, size: int) -> bool:
        """Move a regular file of our user and this size to `path`; False if there is none.

        Its content is not read.
        """


@runtime_checkable
class CanMove(Protocol):
    """Renames a file without reading it, even one that cannot be read any more."""

    def move(self, path: str, target: str) -> None:
        """Replaces what is at `target`. NotFound if there is no such file."""


@runtime_checkable
class CanSweep(Protocol):
    """Has leftovers when a process dies during a write."""

    def sweep(self, before: datetime) -> int:
        """Delete leftovers of writes without progress since `before`; returns how many."""


@runtime_checkable
class CanMultipart(Protocol):
    """Takes a file in parts, in any order and from several senders; an upload survives restarts.

    Every part but the last has the same size; object stores take none below 5 MiB. Uploads that are
    never finished are swept.
    """

    def begin_parts(self, path: str, *, part_size: int, modified: datetime | None = None) -> str:
        """The id of a new upload; nothing is visible at `path` yet."""

    def put_part(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        """Store one part. Idempotent.

        NotFound("upload_missing") when there is no such upload for this path.
        """

    def parts(self, path: str, upload: str) -> Sequence[Part]:
        """The stored parts, by number. NotFound when there is no such upload."""

    def finish_parts(self, path: str, upload: str, *, size: int) -> Stat:
        """Join the parts at `path`. Invalid("upload_incomplete") if parts are missing."""

    def drop_parts(self, path: str, upload: str) -> None:
        """Abort the upload. Idempotent."""


class MultipartStore(Store, CanMultipart, Protocol):
    """A store that takes files in parts."""


@runtime_checkable
class CanReadParts(Protocol):
    """Reads parts before they are joined: the whole can be verified first."""

    def read_part(self, path: str, upload: str, offset: int, length: int) -> bytes:
        """Bytes of the file, from stored parts."""


@runtime_checkable
class CanPresign(Protocol):
    """Makes presigned URLs, by which others reach one file without keys and without the server.

    The store does not verify what is put to one: the server compares the digest.
    """

    def presign_read(self, path: str, *, good_for: timedelta, now: datetime) -> str:
        """A presigned URL to GET this file from, with ranges."""

    def presign_part(
        self, path: str, upload: str, number: int, *, good_for: timedelta, now: datetime
    ) -> str:
        """A presigned URL to PUT one part of an upload to."""


def check_whole(parts: Sequence[Part], size: int) -> None:
    """Invalid when the parts are not, one after another, a file of this size."""
    numbers = [part.number for part in parts]
    missing = next(n for n in range(1, len(numbers) + 2) if n not in numbers)
    got = sum(part.size for part in parts)
    if missing != len(parts) + 1 or got != size:
        raise Invalid("upload_incomplete", got=got, want=size, missing=missing)


def pour(sink: Sink, chunks: Iterable[bytes]) -> Stat:
    """Write all chunks and commit; after an error nothing is left."""
    try:
        for chunk in chunks:
            sink.write(chunk)
        return sink.commit()
    finally:
        sink.abort()
