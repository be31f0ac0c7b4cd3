"""A lock between servers that share a directory, on one machine or over a network.

It is a file lock (flock), so it is released when its holder dies. After a timeout it raises Retry.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.model.errors import Retry

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class FileLock:
    """For `with`. One holder at a time among all threads and processes; not reentrant."""

    def __init__(self, path: Path, timeout: float) -> None:
        """`timeout`: in seconds."""
        self._path = path
        self._timeout = timeout
        self._thread = threading.Lock()
        self._fd = -1

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        if not self._thread.acquire(timeout=self._timeout):
            raise self._busy()
        try:
            self._fd = self._locked(deadline)
        except BaseException:
            self._thread.release()
            raise

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
        self._thread.release()

    def _locked(self, deadline: float) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        pause = _FIRST_PAUSE
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return fd
                if time.monotonic() >= deadline:
                    raise self._busy()
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            os.close(fd)
            raise

    def _busy(self) -> Retry:
        return Retry("store_lock_busy", path=str(self._path), seconds=int(self._timeout))
