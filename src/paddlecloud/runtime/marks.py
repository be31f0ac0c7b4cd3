"""Whether the mark of a file (size, time, number) will tell of every change to it.

A write through a mapping changes the time only when it meets a page that is not dirty yet: the
later ones leave no trace. So a mark is relied on only if nobody has the file open for writing, by a
descriptor or by a mapping, once the mark is taken: whoever opens it then changes the time before
the first byte. That is one question to the kernel, a lease, and costs microseconds; to write files
back (fdatasync) would cost the job its disk, and to search the mappings of its processes misses
those of others. Nor is every file system up to it: on tmpfs, what is read and then written through
a mapping changes nothing but the content, and an overlay forgets mappings whose descriptor is
closed. Whatever cannot be relied on is read once more when the job is over (`runtime.shipping`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: ext2 to ext4, XFS, Btrfs: the first write to a page by a mapping changes the time, and a mapping
#: counts as open for writing until it ends.
_RELIABLE = (0xEF53, 0x58465342, 0x9123683E)
#: More than any kernel's struct statfs, whose first field is the kind, a word.
_STATFS_BYTES = 512

_libc = ctypes.CDLL(None, use_errno=True)


def is_reliable(fd: int) -> bool:
    """Whether the mark that this file had just before, open here for reading, is another one as
    soon as its content is."""
    return _are_noted(fd) and not _is_open_for_writing(fd)


def are_noted_in(folder: Path) -> bool:
    """The same for files in this directory that nobody has open. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _are_noted(fd)
    finally:
        os.close(fd)


def _are_noted(fd: int) -> bool:
    """Whether this file system notes the time of changes in every case."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(fd, found) != 0:
        return False
    return ctypes.c_ulong.from_buffer(found).value in _RELIABLE


def _is_open_for_writing(fd: int) -> bool:
    """Whether it is, or that cannot be known.

    While the lease is held, for microseconds, who opens it for writing waits. The kernel tells us
    of that with a signal: with the usual one we would end, this one is ignored unless wanted.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
