"""Watches files and directories with inotify.

One inotify instance serves any number of them. Where the system has no inotify, or no instance or
watch is left, `open_watcher` or `add` return None and the caller has to poll.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODIFY = 0x2
MOVED_TO = 0x80
CREATE = 0x100
OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")


class Watcher:
    def __init__(self, libc: ctypes.CDLL, fd: int) -> None:
        self._libc = libc
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def add(self, path: Path | str, mask: int) -> int | None:
        """Watch a file, or the entries of a directory; the number in its events."""
        watch: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        return watch if watch >= 0 else None

    def read(self) -> list[tuple[int, int, str]]:
        """The events since the last call: (watch, mask, name). Never blocks."""
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return []
        return list(parse(data))

    def wait(self, seconds: float) -> bool:
        """Wait for an event; False when none came in this time."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._fd)


def open_watcher() -> Watcher | None:
    """A watcher, or None where inotify is not available."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return Watcher(libc, fd) if fd >= 0 else None


def parse(data: bytes) -> list[tuple[int, int, str]]:
    """The events in a buffer of the kernel."""
    events = []
    offset = 0
    while offset + _EVENT.size <= len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        name = data[offset : offset + length].rstrip(b"\0")
        events.append((watch, mask, os.fsdecode(name)))
        offset += length
    return events
