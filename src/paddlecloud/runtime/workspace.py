"""Lays out the directories that a replica sees: its files twice, and places for what it makes.

`work/` is where the command runs, `mount/` a second view of the same files (LOCAL_MOUNT_PATH).
Both are the replica's own: what it changes there changes nothing else. On file systems that can,
the two share their blocks with the store until somebody writes; elsewhere they are copies. Hard
links would be cheaper still, but a job that writes into such a file would change the store.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused
from paddlecloud.model.snapshot import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paddlecloud.model.snapshot import Entry, Snapshot

WORK = "work"
MOUNT = "mount"
OUTPUT = "output"
LOG = "log"
VIEWS = (WORK, MOUNT)
TEMPORARY = "tmp"
HOME = "home"
DISPOSABLE = (*VIEWS, TEMPORARY, HOME)
"""What nobody asks for any more when the replica is over."""
_FICLONE = 0x4004_9409
_SMALL = 256 * 1024
_LEAST = 64 * 1024
_BLOCK = 1024 * 1024
_CANNOT = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Layer:
    """Lays files out; remembers between which file systems blocks can be shared."""

    def __init__(self) -> None:
        self._clones: dict[tuple[int, int], bool] = {}

    def lay_out(self, root: Path, snapshot: Snapshot | None, find: Callable[[str], Path]) -> None:
        """Make the directories below `root`. Doing it again after a failure is doing it once.

        `find` gives a file with the content of a digest. What went wrong leaves as an error in
        words for the owner of the job; the space that was taken is given back first.
        """
        entries = snapshot.entries if snapshot is not None else ()
        try:
            for name in (WORK, MOUNT, OUTPUT, LOG):
                (root / name).mkdir(parents=True, exist_ok=True)
            self._make_directories(root, entries)
            for entry in entries:
                if entry.kind is EntryKind.FILE:
                    self._place(root, entry, find(entry.sha256))
            _make_links(root, entries)
        except OSError as error:
            raise in_words(error, root, snapshot) from error

    def _make_directories(self, root: Path, entries: tuple[Entry, ...]) -> None:
        needed = set()
        for entry in entries:
            if entry.kind is EntryKind.DIRECTORY:
                needed.add(entry.path)
            elif "/" in entry.path:
                needed.add(entry.path.rpartition("/")[0])
        for view in VIEWS:
            for path in sorted(needed):
                (root / view / path).mkdir(parents=True, exist_ok=True)

    def _place(self, root: Path, entry: Entry, source: Path) -> None:
        mode = 0o755 if entry.executable else 0o644
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for view in VIEWS:
                writer = os.open(root / view / entry.path, flags, mode)
                try:
                    copied = self._copy(reader, writer, entry.size)
                finally:
                    os.close(writer)
                if copied != entry.size:
                    raise Invalid(
                        "agent_blob_size", path=entry.path, size=copied, expected=entry.size
                    )
        finally:
            os.close(reader)

    def _copy(self, reader: int, writer: int, size: int) -> int:
        if self._clone(reader, writer):
            return os.fstat(writer).st_size
        os.lseek(reader, 0, os.SEEK_SET)
        if size <= _SMALL:
            return _write_all(writer, os.read(reader, _SMALL + 1))
        with suppress(OSError):
            if size == _copy_in_kernel(reader, writer, size):
                return os.fstat(reader).st_size
        os.lseek(reader, 0, os.SEEK_SET)
        os.ftruncate(writer, 0)
        os.lseek(writer, 0, os.SEEK_SET)
        return _copy_by_hand(reader, writer)

    def _clone(self, reader: int, writer: int) -> bool:
        pair = (os.fstat(reader).st_dev, os.fstat(writer).st_dev)
        if not self._clones.get(pair, True):
            return False
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
        except OSError as error:
            if error.errno in _CANNOT:
                self._clones[pair] = False
                return False
            raise
        return True


def clear(root: Path) -> None:
    """Give back the space of all but outputs, logs and records, as far as it can be done."""
    for name in DISPOSABLE:
        shutil.rmtree(root / name, ignore_errors=True)


def in_words(error: OSError, root: Path, snapshot: Snapshot | None = None) -> PaddleCloudError:
    """What went wrong on this machine's disk, for the owner of the job."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno not in _FULL:
        return Refused("agent_workspace_failed", path=str(error.filename or root), reason=reason)
    clear(root)
    free = shutil.disk_usage(_existing(root)).free
    needed = max(_LEAST, snapshot.size * len(VIEWS) if snapshot is not None else 0)
    return Refused("agent_workspace_full", path=str(root), needed=needed, free=free, reason=reason)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _make_links(root: Path, entries: tuple[Entry, ...]) -> None:
    for view in VIEWS:
        for entry in entries:
            if entry.kind is EntryKind.LINK:
                with suppress(FileExistsError):
                    (root / view / entry.path).symlink_to(entry.target)


def _copy_in_kernel(reader: int, writer: int, size: int) -> int:
    if not hasattr(os, "copy_file_range"):
        return -1
    done = 0
    while done < size:
        moved = os.copy_file_range(reader, writer, size - done)
        if not moved:
            break
        done += moved
    return done


def _copy_by_hand(reader: int, writer: int) -> int:
    done = 0
    while piece := os.read(reader, _BLOCK):
        done += _write_all(writer, piece)
    return done


def _write_all(writer: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]
    return len(data)
