"""agent.log: one line per event, with time, level and replica, in two files of bounded size.

The logging package would cost the agent a megabyte, and logging must never stop the agent, neither
on a full disk nor when its directory is gone. Lines that could not be written are counted, and the
count is written when there is space again.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024


class AgentLog:
    """Thread-safe; no method raises."""

    def __init__(
        self, path: Path, *, limit: int = MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._size = 0
        self._dropped = 0

    def info(self, text: str, replica: str = "") -> None:
        self._line("info", text, replica)

    def warning(self, text: str, replica: str = "") -> None:
        self._line("warning", text, replica)

    def failure(self, text: str, replica: str = "") -> None:
        """An unexpected exception with its traceback; call it in the handler."""
        import traceback  # noqa: PLC0415 - 0.5 MB that only a bug needs

        self._line("error", f"{text}\n{traceback.format_exc().rstrip()}", replica)

    def _line(self, level: str, text: str, replica: str) -> None:
        now = self._clock()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        about = f" {replica}" if replica else ""
        body = text.replace("\n", "\n    ")
        line = f"{stamp}.{int(now * 1000) % 1000:03d}Z {level}{about} {body}\n"
        with self._lock:
            self._write(line.encode("utf-8", "backslashreplace"))

    def _write(self, line: bytes) -> None:
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
                self._size = os.fstat(self._fd).st_size
            if self._dropped:
                line = b"(%d earlier lines could not be written)\n%b" % (self._dropped, line)
            self._size += os.write(self._fd, line)
            self._dropped = 0
            if self._size > self._limit:
                self._close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
        except OSError:
            self._dropped += 1
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
        self._fd = None
