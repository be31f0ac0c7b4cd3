"""Space that is kept back for the database while the disk has some, for the day when it has none.

Whoever ends the job that filled the disk needs a few pages of the database for that. They are found
by giving this file up: the database's log is moved to its place and begins again at its start, in
blocks that nobody else gets; or, where that would take too much, the log grows by what is free now.
It is given up step by step: while the job still writes, it takes what is free at that moment. The
file is made again when there is room for several.
"""

from __future__ import annotations

import os
from pathlib import Path

SIZE = 4 << 20
STEPS = 16
ROOM = 4
"""So many times its size has to be free before it is made: it must not be what fills the disk."""


class Reserve:
    """Used by one thread at a time, the one that writes. No method raises."""

    def __init__(self, path: Path, size: int = SIZE) -> None:
        self._path = path
        self._size = size
        self._left = _size_of(path)

    def keep(self) -> None:
        """Make the file if it is not whole and fits easily; costs nothing while it is there."""
        if self._left == self._size or self._free() < ROOM * self._size:
            return
        try:
            _make(self._path, self._size)
        except OSError:
            self._path.unlink(missing_ok=True)
            self._left = 0
        else:
            self._left = self._size

    def release(self) -> int:
        """Give up a step of it, and say how many bytes that are; 0 if nothing is left."""
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

    def _free(self) -> int:
        try:
            room = os.statvfs(self._path.parent)
        except OSError:
            return 0
        return room.f_bavail * room.f_frsize


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


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
