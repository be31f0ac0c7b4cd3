"""Appends to logs at offsets (idempotent), and reads them by offset, tail or time.

A sender may repeat and reorder chunks; a stored log is always a prefix of the real one, and its
size is how much is stored. Each log is one plain file at its final path in a directory store, so it
is listed and downloaded like any other. The threads of a process are serialized per log; another
process appends the same bytes at the same offsets. If another process may also move logs, files
must not stay open here: then `max_open` is 0. A full disk keeps the prefix that fits, and the same
append continues from there when space is available. `flush` makes logs survive a power cut.

Each log has an index of (time, size) entries, in side files that are neither listed nor downloaded:
`_log_times`.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.errors import NotFound
from paddlecloud.model.logs.time_index import size_at
from paddlecloud.stores.directory.safe_open import (
    ABSENT,
    Tree,
    check_free_space,
    explained,
    free_bytes,
    shown,
    suppress_absent,
)
from paddlecloud.stores.logs._log_times import LogTimes

if TYPE_CHECKING:
    from paddlecloud.model.logs.index_format import Note

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
        self,
        path: str,
        offset: int,
        data: bytes | memoryview,
        at: float | None = None,
        times: Sequence[Note] = (),
    ) -> int:
        """Store `data` as the bytes from `offset` on; returns the size of the log afterwards.

        `at` is the time (seconds of the epoch) for the index; `times` has earlier ones, each with
        the offset from which on it applies, in order. Bytes that are stored already are
        skipped. A chunk that would leave a gap is not stored: the sender continues at the returned
        size. StorageFull if it does not fit; then the log contains the part that did.
        """
        with explained(path), self._log(path) as log, log.lock:
            file = log.open(self._tree, make=offset == 0)
            size = file.size() if file else 0
            if file is None or offset > size:
                return size
            rest = memoryview(data)[size - offset :]
            left = max(0, free_bytes(file.fd)) if rest else 0
            fits = rest[:left]
            if rest and at is not None:
                self._record(path, size, size + len(fits), at, times)
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
        """Return when what was appended to these logs so far would survive a power cut; their
        times are on disk then too."""
        for path in paths:
            with self._log(path) as log, log.lock:
                self._times.flush(path)
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

    def _record(self, path: str, begin: int, end: int, at: float, times: Sequence[Note]) -> None:
        """Record when the bytes from `begin` to `end` were written: by `times`, else `at`."""
        passed = [number for number, (_, offset) in enumerate(times) if offset <= begin]
        for time, offset in times[passed[-1] if passed else 0 :] or ((at, begin),):
            if offset < end:
                self._times.record(path, min(time, at), max(offset, begin))

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
