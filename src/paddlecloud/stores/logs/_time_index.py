"""When a log grew: notes of (time, size), at most one a second, beside the log.

A log holds the job's own bytes and nothing else, so the times are kept in side files that nobody
lists or downloads. What they tell is in `model/lognotes`; a note that is missing (a full disk, a
log older than this) only makes it coarser, so nothing here raises for a write that failed.

A log that is over within a second gets no side file: the time of the log's own file says enough.
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

REMEMBERED = 4096
"""Logs whose last note is known without looking."""


class LogTimes:
    def __init__(self, root: Path) -> None:
        """Side files of the logs of the store at `root`."""
        self._root = root / TIMES
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._last: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        """When the last note of a log was made, and whether it is still only here."""

    def note(self, path: str, at: float, size: int) -> None:
        """Bytes from `size` on come `at` this time. Two calls for one log must not overlap."""
        last, first_is_here = self._last.get(path, (None, False))
        if last is not None and at - last < EVERY:
            return
        if last is None and size == 0:
            self._remember(path, at, True)
            return
        notes = packed(at, size)
        if last is not None and first_is_here:
            notes = packed(last, 0) + notes
        with suppress(OSError):
            self._append(path, notes)
        self._remember(path, at, False)

    def read(self, path: str, first: int, count: int) -> list[Note]:
        """At most `count` notes from number `first` on, oldest first."""
        with suppress(OSError):
            fd = self._opened().open_file(path, os.O_RDONLY)
            try:
                return read_notes(fd, first, count)
            finally:
                os.close(fd)
        last, here = self._last.get(path, (None, False))
        return [(last, 0)] if last is not None and here and first == 0 else []

    def move(self, path: str, target: str) -> None:
        """The log has another place now."""
        known = self._forget(path)
        if known is not None:
            self._remember(target, *known)
        with (
            suppress(OSError),
            self._opened().parent(path) as (source, name),
            self._opened().parent(target, make=True) as (destination, new_name),
        ):
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=destination)

    def delete(self, path: str) -> None:
        """The log, or all logs below this path, are gone."""
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
            raise FileNotFoundError(errno.ENOENT, "no log has notes yet", str(self._root))
        with self._lock:
            if self._tree is None:
                self._tree = Tree(self._root)
            return self._tree

    def _append(self, path: str, notes: bytes) -> None:
        tree = self._opened(make=True)
        fd = tree.open_file(path, os.O_RDWR | os.O_CREAT, make=True)
        try:
            # Behind the last whole note: a full disk may have cut one.
            os.pwrite(fd, notes, os.fstat(fd).st_size // SIZE * SIZE)
        finally:
            os.close(fd)

    def _remember(self, path: str, at: float, only_here: bool) -> None:
        with self._lock:
            self._last[path] = at, only_here
            self._last.move_to_end(path)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)

    def _forget(self, path: str) -> tuple[float, bool] | None:
        with self._lock:
            return self._last.pop(path, None)


def read_notes(fd: int, first: int, count: int) -> list[Note]:
    """Notes of an open side file."""
    return unpacked(os.pread(fd, count * SIZE, first * SIZE))
