"""The time index of a log: (time, size) entries, at most one a second, in a side file.

A log holds only the job's own bytes, so the times are in side files that are neither listed nor
downloaded. `model.logs.time_index` has the format. A missing entry (a full disk, an old log) only
makes the index coarser, so failed writes are ignored. A log that ended within a second gets no side
file: the modification time of the log is enough.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.logs.time_index import EVERY, SIZE, packed, unpacked
from paddlecloud.stores.directory.safe_open import TIMES, Tree

if TYPE_CHECKING:
    from paddlecloud.model.logs.time_index import Note

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
            self._append(path, notes)
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

    def _append(self, path: str, notes: bytes) -> None:
        tree = self._opened(make=True)
        fd = tree.open_file(path, os.O_RDWR | os.O_CREAT, make=True)
        try:
            # After the last complete entry: a full disk may have truncated one.
            os.pwrite(fd, notes, os.fstat(fd).st_size // SIZE * SIZE)
        finally:
            os.close(fd)

    def _cache(self, path: str, at: float, only_here: bool) -> None:
        with self._lock:
            self._last[path] = at, only_here
            self._last.move_to_end(path)
            if len(self._last) > CACHED:
                self._last.popitem(last=False)


def read_notes(fd: int, first: int, count: int) -> list[Note]:
    """Entries of an open side file."""
    return unpacked(os.pread(fd, count * SIZE, first * SIZE))
