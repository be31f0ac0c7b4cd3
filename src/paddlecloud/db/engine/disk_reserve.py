"""A ballast file beside the database that is released when the disk is full.

Killing the job that filled the disk needs a few pages of the database. Shrinking this file frees
them: SQLite checkpoints its log into the database and restarts the log in blocks it already owns,
or, where that would take too much, the log grows into the freed space. The file is released step by
step, because a job that still writes takes what is free. It is created again when several times its
size is free.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SIZE = 4 << 20
STEPS = 16
MIN_FREE_FACTOR = 4
"""This many times its size must be free before it is created: it must not fill the disk itself."""


class Reserve:
    """Used by the writing thread only. No method raises."""

    def __init__(self, path: Path, size: int = SIZE) -> None:
        self._path = path
        self._size = size
        self._left = 0
        with suppress(OSError):
            self._left = path.stat().st_size

    def keep(self) -> None:
        """Create the file if it is not complete and there is enough space; free while it exists."""
        if self._left == self._size:
            return
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return
        if disk.f_bavail * disk.f_frsize < MIN_FREE_FACTOR * self._size:
            return
        try:
            _make(self._path, self._size)
        except OSError:
            self._path.unlink(missing_ok=True)
            self._left = 0
        else:
            self._left = self._size

    def release(self) -> int:
        """Release one step; returns how many bytes that are, 0 if nothing is left."""
        step = min(self._left, self._size // STEPS)
        self._left -= step
        try:
            if self._left:
                os.truncate(self._path, self._left)
            elif step:
                self._path.unlink()
        except OSError:
            self._left = 0
            return 0
        return step


def _make(path: Path, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            rest = memoryview(bytes(size))
            while rest:
                rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)
