"""A lock that a monitor holds for its life: whoever asks learns whether it lives, and its pid.

Record locks and not flock, for three reasons: a question (`holder`) takes no lock, so asking never
disturbs a monitor that is just starting; the answer carries the pid, known to be alive at that
moment; and a forked child does not inherit the lock, so nothing but the monitor can keep it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# struct flock: (type, whence, start, len, pid) on Linux, (start, len, pid, type, whence) on macOS.
_LINUX = sys.platform == "linux"
_FLOCK = struct.Struct("hhqqi" if _LINUX else "qqihh")


def take(path: Path) -> bool:
    """Hold the lock until this process ends; False when somebody else holds it.

    The file descriptor stays open on purpose, and the process must not open the file again:
    closing any descriptor of it would give the lock up.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(fd)
        return False
    return True


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock, or None. Must not be asked by the holder."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        kind, pid = _unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _question()))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


def _question() -> bytes:
    if _LINUX:
        return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)


def _unpack(answer: bytes) -> tuple[int, int]:
    fields = _FLOCK.unpack(answer)
    return (fields[0], fields[4]) if _LINUX else (fields[3], fields[2])
