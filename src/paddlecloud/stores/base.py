"""The plug of a store: what every place that keeps files promises, whatever it is made of.

A store maps paths to bytes. It has no directories: a path exists when a file was written to it.
Paths are relative with forward slashes and are checked (`model.files.snapshot.check_path`), so none
leads out. What only some stores can do is an ability of its own, asked for with isinstance()."""

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
    """What the store calls this content, where it does: another content, another tag."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a file that is uploaded in parts; the first has number 1."""

    number: int
    size: int
    tag: str
    """What the store calls these bytes."""


class Sink(Protocol):
    """A file being written; nothing of it is visible before `commit`.

    Plain calls and no thread behind them, so that a streaming route can feed it piece by piece.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        """Take more bytes. StorageFull when there is no room; then `abort` it."""

    def commit(self) -> Stat:
        """Give the file its name, replacing what had it. After any error nothing of the new bytes
        is left."""

    def abort(self) -> None:
        """Forget the bytes. After `commit` or a second time: does nothing."""


@runtime_checkable
class CommitsLater(Protocol):
    """A sink of a store that is far away: many files can be given their names at once."""

    def commit_later(self) -> Future[Stat]:
        """`commit`, done by other threads; the sink is of no further use."""


class Reader:
    """The bytes of one file as an iterator of chunks; closes itself at the end.

    It is opened before the first chunk is asked for, so a missing file is noticed in time. The file
    it opened stays readable even when it is replaced or deleted meanwhile.
    """

    def __init__(
        self, stat: Stat, length: int, read: Callable[[int], bytes], close: Callable[[], None]
    ) -> None:
        self.stat = stat
        self.length = length
        """How many bytes will come."""
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
        """Begin a file whose bytes come piece by piece."""

    def delete(self, path: str) -> None:
        """Remove one file; gone already is done."""

    def delete_tree(self, path: str) -> int:
        """Remove the file at this path and everything below it; how many bytes that freed."""

    def flush(self) -> None:
        """Return when every file committed before this call would survive a loss of power.

        Call it once before acknowledging what refers to those files, not once a file.
        """


@runtime_checkable
class CanTag(Protocol):
    """Has a name of its own for each content, in lists too, where it may not know our times."""

    def stats(self, paths: Iterable[str]) -> dict[str, Stat]:
        """Those of these files that exist, with their tags; for many cheaper than `stat`."""


@runtime_checkable
class CanLocalPath(Protocol):
    """Keeps its files on this machine, where others may open them without a copy."""

    def local_path(self, path: str) -> Path | None:
        """Where the file, or the directory of such paths, lies; None when it does not exist."""


@runtime_checkable
class CanTellRoom(Protocol):
    """Lies on a disk that may be full."""

    def room(self) -> int:
        """How many bytes files may still take there."""


@runtime_checkable
class CanAdopt(Protocol):
    """Takes over files that another process of our own user put into a place of the store."""

    def make_place(self) -> tuple[str, Path]:
        """A fresh directory that nobody but our user can enter: its name and where it is."""

    def adopt(self, place: str, name: str, path: str, *, size: int) -> bool:
        """Give a regular file of ours that lies there, of this size, the name `path`; else False.

        What it holds is not looked at.
        """


@runtime_checkable
class CanMove(Protocol):
    """Gives a file another name without reading it, also one that can be read no more."""

    def move(self, path: str, target: str) -> None:
        """NotFound when there is no such file; what had the name `target` is replaced."""


@runtime_checkable
class CanSweep(Protocol):
    """Leaves something behind when a process dies in the middle of a write."""

    def sweep(self, before: datetime) -> int:
        """Remove what was left by writes that stand still since `before`; how many."""


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
        """Give the file its name. Invalid("upload_incomplete") when parts are missing."""

    def drop_parts(self, path: str, upload: str) -> None:
        """Abort the upload. Idempotent."""


class MultipartStore(Store, CanMultipart, Protocol):
    """A store that takes files in parts."""


@runtime_checkable
class CanReadParts(Protocol):
    """Reads parts before they are joined: the whole can be verified first."""

    def read_part(self, path: str, upload: str, offset: int, length: int) -> bytes:
        """Bytes of the file, which lie in stored parts."""


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
    """Write all chunks and commit; whatever goes wrong, nothing is left behind."""
    try:
        for chunk in chunks:
            sink.write(chunk)
        return sink.commit()
    finally:
        sink.abort()
