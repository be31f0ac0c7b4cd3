"""Appends to logs at offsets (idempotent), and reads them by offset, tail or time.

A sender may repeat and reorder chunks; a stored log is always a prefix of the real one, and its
size is how much is stored. Each log is one plain file at its final path in a directory store, so it
is listed and downloaded like any other. The threads of a process are serialized per log; another
process appends the same bytes at the same offsets. If another process may also move logs, files
must not stay open here: then `max_open` is 0. A full disk keeps the prefix that fits, and the same
append continues from there when space is available. `flush` makes logs survive a power cut.

The time index of a log has (time, size) entries, at most one a second. A log holds only the job's
own bytes, so the times are in side files that are neither listed nor downloaded;
`model.logs.time_index` has the format. A missing entry (a full disk, an old log) only makes the
index coarser, so failed writes are ignored. A log that ended within a second gets no side file: the
modification time of the log is enough.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.errors import NotFound
from paddlecloud.model.logs.time_index import EVERY, SIZE, packed, size_at, unpacked
from paddlecloud.stores.directory.safe_open import (
    ABSENT,
    TIMES,
    Tree,
    check_free_space,
    explained,
    free_bytes,
    shown,
    suppress_absent,
)

if TYPE_CHECKING:
    from paddlecloud.model.logs.time_index import Note

MAX_OPEN = 64
"""Idle files that stay open."""
_FIRST_BLOCK = 64 * 1024
_LARGEST_BLOCK = 1024 * 1024
_FAR = 1024 * 1024
"""Bytes in which the beginning of a line is searched; a longer line is cut."""


class LogStore:
    def __init__(self, root: Path, *, max_open: int = MAX_OPEN) -> None:
        """Logs below `root`, the root of the directory store; `max_open` idle files stay open."""
        self._tree = Tree(root)
        self._times = LogTimes(root)
        self._max_open = max_open
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        self._lock = threading.Lock()

    def append(
        self, path: str, offset: int, data: bytes | memoryview, at: float | None = None
    ) -> int:
        """Store `data` as the bytes from `offset` on; returns the size of the log afterwards.

        `at` is the time (seconds of the epoch) for the index. Bytes that are stored already are
        skipped. A chunk that would leave a gap is not stored: the sender continues at the returned
        size. StorageFull if it does not fit; then the log contains the part that did.
        """
        with explained(path), self._log(path) as log, log.lock:
            file = log.open(self._tree, make=offset == 0)
            size = file.size() if file else 0
            if file is None or offset > size:
                return size
            rest = memoryview(data)[size - offset :]
            if rest and at is not None:
                self._times.record(path, at, size)
            left = max(0, free_bytes(file.fd)) if rest else 0
            fits = rest[:left]
            while fits:
                written = os.pwrite(file.fd, fits, size)
                size += written
                fits = fits[written:]
            if rest[left:]:
                check_free_space(file.fd, len(rest) - left)
            return size

    def size(self, path: str) -> int:
        """How many bytes are kept; 0 for a log that does not exist."""
        file = self._file(path)
        return file.size() if file else 0

    def read(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset` on; empty at the end or when there is no log."""
        file = self._file(path)
        return os.pread(file.fd, limit, offset) if file else b""

    def tail_offset(self, path: str, lines: int) -> int:
        """Where the last `lines` lines begin. Only "\\n" ends a line; the last need not have one.

        Reads backwards from the end, so the cost is that of the tail and not of the log.
        """
        file = self._file(path)
        if file is None or lines <= 0:
            return file.size() if file else 0
        return _tail_offset(file.fd, file.size(), lines)

    def offset_at(self, path: str, time: float) -> int:
        """Where the first line begins that may have come at `time` or later, to a second.

        A log without a time index counts as a whole, by the modification time of its file.
        """
        file = self._file(path)
        if file is None:
            return 0
        size = file.size()
        offset = size_at(lambda first, count: self.notes(path, first, count), time)
        if offset is None:
            return size if file.modified() < time else 0
        if offset < 0:
            return size
        offset = min(offset, size)
        begin = max(0, offset - _FAR)
        found = file.read(begin, offset - begin).rfind(b"\n")
        return begin + found + 1 if found >= 0 or begin == 0 else offset

    def notes(self, path: str, first: int, count: int) -> list[Note]:
        """At most `count` entries of the time index from number `first` on."""
        return self._times.read(path, first, count)

    def open(self, path: str) -> LogFile | None:
        """The file of a log, for many reads; None when there is no log."""
        return self._file(path)

    def flush(self, paths: Collection[str]) -> None:
        """Return when what was appended to these logs so far would survive a power cut."""
        self._tree.sync(paths)

    def move(self, path: str, target: str) -> None:
        """Move a log, replacing what was at `target`. NotFound if there is no log."""
        with self._log(path) as log, log.lock:
            log.drop()
            try:
                with (
                    explained(target),
                    self._tree.parent(path) as (source, name),
                    self._tree.parent(target, make=True) as (destination, new_name),
                ):
                    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=destination)
            except FileNotFoundError:
                raise NotFound("file_missing", path=shown(path)) from None
            self._times.move(path, target)

    def delete(self, path: str) -> None:
        """Delete a log. Idempotent; open readers can continue."""
        with self._log(path) as log, log.lock:
            log.drop()
            with suppress_absent(), self._tree.parent(path) as (directory, name):
                os.unlink(name, dir_fd=directory)
            self._times.delete(path)

    def close_deleted(self, path: str) -> None:
        """Close this log, or all logs below this path, after they were deleted."""
        self._times.delete(path)
        below = f"{path}/"
        with self._lock:
            for known in [p for p in self._logs if p == path or p.startswith(below)]:
                self._logs[known].drop()

    def close(self) -> None:
        """Close every log; the store cannot be used afterwards."""
        with self._lock:
            self._logs.clear()
        self._times.close()
        self._tree.close()

    def _file(self, path: str) -> LogFile | None:
        with self._log(path) as log, log.lock:
            return log.open(self._tree, make=False)

    @contextmanager
    def _log(self, path: str) -> Iterator[_Log]:
        with self._lock:
            log = self._logs.get(path)
            if log is None:
                log = self._logs[path] = _Log(path)
            self._logs.move_to_end(path)
            log.users += 1
        try:
            yield log
        finally:
            with self._lock:
                log.users -= 1
                excess = len(self._logs) - self._max_open
                if excess > 0:
                    for idle in [p for p, log in self._logs.items() if log.users == 0][:excess]:
                        del self._logs[idle]


class _Log:
    """An open log; it stays while it has `users`, so that all share its lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.users = 0
        self._file: LogFile | None = None

    def open(self, tree: Tree, *, make: bool) -> LogFile | None:
        """The file, opened again when it was deleted; None when it is missing and not made."""
        file = self._file
        if file is not None and os.fstat(file.fd).st_nlink > 0:
            return file
        self._file = None
        try:
            flags = os.O_RDWR | (os.O_CREAT if make else 0)
            self._file = LogFile(tree.open_file(self.path, flags, make=make))
        except OSError as error:
            if make or error.errno not in ABSENT:
                raise
        return self._file

    def drop(self) -> None:
        self._file = None


class LogFile:
    """A descriptor that is closed with its last reference, never under a reader."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, offset: int, limit: int) -> bytes:
        return os.pread(self.fd, limit, offset)

    def modified(self) -> float:
        return os.fstat(self.fd).st_mtime

    def __del__(self) -> None:
        os.close(self.fd)


def _tail_offset(fd: int, size: int, lines: int) -> int:
    # A newline at the very end belongs to the last line, it does not begin another one.
    end, block = size - 1, _FIRST_BLOCK
    while end > 0:
        begin = max(0, end - block)
        data = os.pread(fd, end - begin, begin)
        found = data.count(b"\n")
        if found >= lines:
            position = len(data)
            for _ in range(lines):
                position = data.rfind(b"\n", 0, position)
            return begin + position + 1
        lines -= found
        end, block = begin, min(block * 2, _LARGEST_BLOCK)
    return 0


CACHED = 4096
"""Logs whose last entry is cached."""


class LogTimes:
    def __init__(self, root: Path) -> None:
        """Side files of the logs of the store at `root`."""
        self._root = root / TIMES
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._last: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        """The time of the last entry of a log, and whether it is only in memory."""

    def record(self, path: str, at: float, size: int) -> None:
        """Bytes from `size` on arrived `at` this time. Two calls for one log must not overlap."""
        last, first_is_here = self._last.get(path, (None, False))
        if last is not None and at - last < EVERY:
            return
        if last is None and size == 0:
            self._cache(path, at, True)
            return
        notes = packed(at, size)
        if last is not None and first_is_here:
            notes = packed(last, 0) + notes
        with suppress(OSError):
            tree = self._opened(make=True)
            fd = tree.open_file(path, os.O_RDWR | os.O_CREAT, make=True)
            try:
                # After the last complete entry: a full disk may have truncated one.
                os.pwrite(fd, notes, os.fstat(fd).st_size // SIZE * SIZE)
            finally:
                os.close(fd)
        self._cache(path, at, False)

    def read(self, path: str, first: int, count: int) -> list[Note]:
        """At most `count` entries from number `first` on, oldest first."""
        with suppress(OSError):
            fd = self._opened().open_file(path, os.O_RDONLY)
            try:
                return read_notes(fd, first, count)
            finally:
                os.close(fd)
        last, here = self._last.get(path, (None, False))
        return [(last, 0)] if last is not None and here and first == 0 else []

    def move(self, path: str, target: str) -> None:
        """The log was moved."""
        with self._lock:
            known = self._last.pop(path, None)
        if known is not None:
            self._cache(target, *known)
        with (
            suppress(OSError),
            self._opened().parent(path) as (source, name),
            self._opened().parent(target, make=True) as (destination, new_name),
        ):
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=destination)

    def delete(self, path: str) -> None:
        """The log, or all logs below this path, were deleted."""
        below = f"{path}/"
        with self._lock:
            for known in [p for p in self._last if p == path or p.startswith(below)]:
                del self._last[known]
        with suppress(OSError), self._opened().parent(path) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory)
            except (IsADirectoryError, PermissionError):
                shutil.rmtree(name, dir_fd=directory)

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()

    def _opened(self, *, make: bool = False) -> Tree:
        if self._tree is None and not make and not self._root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no log has a time index yet", str(self._root))
        with self._lock:
            if self._tree is None:
                self._tree = Tree(self._root)
            return self._tree

    def _cache(self, path: str, at: float, only_here: bool) -> None:
        with self._lock:
            self._last[path] = at, only_here
            self._last.move_to_end(path)
            if len(self._last) > CACHED:
                self._last.popitem(last=False)


def read_notes(fd: int, first: int, count: int) -> list[Note]:
    """Entries of an open side file."""
    return unpacked(os.pread(fd, count * SIZE, first * SIZE))
