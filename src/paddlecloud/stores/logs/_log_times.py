"""The time indexes of logs: when each log had which size, in side files beside the logs' tree.

A log holds only the job's own bytes, so the times are in files of their own;
`model.logs.index_format` has the format. Entries are collected in memory and written about once a
second and by `flush`. A missing entry (a crash, a full disk, an old log) only makes the index
coarser, so failed writes are ignored. A log that came at once gets no side file: the modification
time of the log is enough.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.model.logs.index_format import EVERY, SIZE, is_due, packed, unpacked
from paddlecloud.stores.directory.safe_open import TIMES, Tree

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.model.logs.index_format import Note

CACHED = 4096
"""Logs whose last entries are cached."""


class _Recent:
    """The last entries of one index."""

    __slots__ = ("count", "last", "pending", "written_at")

    def __init__(self, at: float) -> None:
        self.last = at
        self.count = 0
        """Entries on disk."""
        self.pending: list[Note] = []
        """Entries that are only here."""
        self.written_at = at


class LogTimes:
    def __init__(self, root: Path) -> None:
        """Side files of the logs of the store at `root`."""
        self._root = root / TIMES
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._recent: OrderedDict[str, _Recent] = OrderedDict()

    def record(self, path: str, at: float, size: int) -> None:
        """Bytes from `size` on were written `at` this time. Calls of this and of `flush` for one
        log must not overlap."""
        recent = self._recent.get(path)
        if recent is None:
            recent = _Recent(at)
            recent.pending.append((at, size))
            if size:  # an earlier process may have written an index
                self._write(path, recent)
            self._cache(path, recent)
            return
        if not is_due(at - recent.last, recent.count + len(recent.pending), size):
            return
        with self._lock:
            recent.pending.append((at, size))
        recent.last = at
        if at - recent.written_at >= EVERY:
            self._write(path, recent)

    def flush(self, path: str) -> None:
        """Write the entries of a log that has ended, unless the time of its file is enough."""
        recent = self._recent.get(path)
        if recent is not None and recent.pending and recent.count + len(recent.pending) > 1:
            self._write(path, recent)

    def read(self, path: str, first: int, count: int) -> list[Note]:
        """At most `count` entries from number `first` on, oldest first."""
        with self._lock:
            recent = self._recent.get(path)
            on_disk = None if recent is None else recent.count
            here = [] if recent is None else recent.pending[:]
        found: list[Note] = []
        if on_disk is None or first < on_disk:
            with suppress(OSError):
                fd = self._opened().open_file(path, os.O_RDONLY)
                try:
                    wanted = count if on_disk is None else min(count, on_disk - first)
                    found = unpacked(os.pread(fd, wanted * SIZE, first * SIZE))
                finally:
                    os.close(fd)
        if on_disk is None or first + len(found) < on_disk:
            return found
        begin = first + len(found) - on_disk
        return found + here[begin : begin + count - len(found)]

    def move(self, path: str, target: str) -> None:
        """The log was moved."""
        with self._lock:
            known = self._recent.pop(path, None)
        if known is not None:
            self._cache(target, known)
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
            for known in [p for p in self._recent if p == path or p.startswith(below)]:
                del self._recent[known]
        with suppress(OSError), self._opened().parent(path) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory)
            except (IsADirectoryError, PermissionError):
                shutil.rmtree(name, dir_fd=directory)

    def close(self) -> None:
        """Write what is only here; nothing is recorded any more."""
        for path in list(self._recent):
            self.flush(path)
        if self._tree is not None:
            self._tree.close()

    def _write(self, path: str, recent: _Recent) -> None:
        """Append the pending entries to the side file; if that fails, they are dropped."""
        data = b"".join(packed(*note) for note in recent.pending)
        count = 0
        with suppress(OSError):
            fd = self._opened(make=True).open_file(path, os.O_RDWR | os.O_CREAT, make=True)
            try:
                # After the last complete entry: a full disk may have truncated one.
                begin = os.fstat(fd).st_size // SIZE * SIZE
                count = (begin + os.pwrite(fd, data, begin)) // SIZE
            finally:
                os.close(fd)
        with self._lock:
            recent.pending.clear()
            recent.count = max(count, recent.count)
        recent.written_at = recent.last

    def _opened(self, *, make: bool = False) -> Tree:
        if self._tree is None and not make and not self._root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no log has a time index yet", str(self._root))
        with self._lock:
            if self._tree is None:
                self._tree = Tree(self._root)
            return self._tree

    def _cache(self, path: str, recent: _Recent) -> None:
        with self._lock:
            self._recent[path] = recent
            self._recent.move_to_end(path)
            if len(self._recent) > CACHED:
                self._recent.popitem(last=False)
