"""Opens files below one root directory and never follows a link, wherever it points.

Each step of a path is opened relative to the directory before it (openat with O_NOFOLLOW), so no
link inside the tree and no rename during the walk can lead out of it. Directories are created with
mode 0700 and files with 0600.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from paddlecloud.model.errors import Conflict, Invalid, StorageFull
from paddlecloud.model.files.snapshot import check_path

SCRATCH = ".tmp"
"""Directory of unfinished files, below the root; no path of a caller may begin with it."""
TIMES = ".times"
"""Directory of the time indexes of logs, below the root; reserved in the same way."""
RESERVED = (SCRATCH, TIMES)

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
"""Errors that mean that there is no such regular file."""

FEW = 8
"""Up to so many files, syncing each is cheaper than syncing the file system."""

RESERVE = 256 * 1024 * 1024
RESERVE_SHARE = 32
"""Files leave so many bytes of the disk free, or this fraction of a small one."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TAKEN = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Flushes an open file to the disk; macOS has only fsync."""


class Tree:
    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with suppress(AttributeError):  # the root could not be opened
            self.close()

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory of `path` and the last name in it; OSError if it does not exist."""
        names = split(path)
        fd = self.directory(names[:-1], make=make)
        try:
            yield fd, names[-1]
        finally:
            os.close(fd)

    def directory(self, names: Sequence[str], *, make: bool = False) -> int:
        """A descriptor of the directory these names lead to; the caller closes it."""
        current = os.dup(self._fd)
        for name in names:
            try:
                below = self._below(current, name, make=make)
            finally:
                os.close(current)
            current = below
        return current

    def _below(self, fd: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
        return os.open(name, DIRECTORY, dir_fd=fd)

    def sync(self, paths: Collection[str]) -> None:
        """Flush these files, and their directories up to the root, to the disk.

        For many files it is cheaper to sync the whole file system once.
        """
        if len(paths) > FEW:
            self.sync_all()
            return
        above: set[str] = {""}
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):  # deleted since: nothing to keep
                _sync_and_close(self.open_file(path, os.O_RDONLY), sync_data)
            names = path.split("/")
            above.update("/".join(names[:depth]) for depth in range(1, len(names)))
        for directory in sorted(above, reverse=True):
            with suppress(FileNotFoundError, NotADirectoryError):
                fd = self.directory(directory.split("/") if directory else [])
                _sync_and_close(fd, os.fsync)

    def sync_all(self) -> None:
        """The same for everything in this file system, or in all where there is no syncfs."""
        import ctypes  # noqa: PLC0415 - 2 MB that most servers never need

        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "syncfs"):
            os.sync()
        elif library.syncfs(self._fd) != 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))

    def open_file(self, path: str, flags: int, *, make: bool = False) -> int:
        """A descriptor of the regular file at `path`; anything else counts as missing."""
        with self.parent(path, make=make) as (directory, name):
            return open_regular(name, flags, directory)


def open_regular(name: str, flags: int, directory: int) -> int:
    """Open `name` in an open directory; FileNotFoundError unless it is a regular file."""
    # Without O_NONBLOCK, opening a pipe waits for the other end.
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=directory)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise FileNotFoundError(errno.ENOENT, "not a regular file", name)


def _sync_and_close(fd: int, sync: Callable[[int], None]) -> None:
    try:
        sync(fd)
    finally:
        os.close(fd)


def split(path: str) -> list[str]:
    """The names in a checked path; Invalid when it could lead out, or is too long."""
    check_path(path)
    names = path.split("/")
    if names[0] in RESERVED:
        raise Invalid("path_unsafe", path=shown(path))
    return names


def shown(path: str) -> str:
    """The path as text that any encoder takes, cut to a readable length."""
    return path[:200].encode("utf-8", "backslashreplace").decode()


@contextmanager
def suppress_absent() -> Iterator[None]:
    """Go on after the block when there is no such file or directory."""
    try:
        yield
    except OSError as error:
        if error.errno not in ABSENT:
            raise


def free_bytes(fd: int) -> int:
    """Free bytes on the disk of this open file, minus a reserve.

    Without the reserve the database could not even store that a job is to be killed.
    """
    disk = os.fstatvfs(fd)
    reserve = min(RESERVE, disk.f_blocks * disk.f_frsize // RESERVE_SHARE)
    return disk.f_bavail * disk.f_frsize - reserve


def check_free_space(fd: int, size: int) -> None:
    """Raise the OSError of a full disk if `size` more bytes would use the reserve."""
    if free_bytes(fd) < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Translate OSErrors of a write into StorageFull and Conflict."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("store_full", path=shown(path)) from error
        if error.errno in _TAKEN:
            raise Conflict("store_path_taken", path=shown(path)) from error
        raise
