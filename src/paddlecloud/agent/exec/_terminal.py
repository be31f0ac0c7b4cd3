"""The pty of an `exec` command: the command has its slave, a tunnel to the client its master."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
from contextlib import suppress

_MOST = 10_000


class Terminal:
    """One pty. The tunnel closes the master, which hangs up what runs in it; the slave stays open
    until the command is over, so that its name means no other pty before that."""

    def __init__(self, rows: int, columns: int) -> None:
        self.master, self._slave = os.openpty()
        os.set_blocking(self.master, False)
        self.path = os.ttyname(self._slave)
        self._lock = threading.Lock()
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the window; programs get SIGWINCH if it has changed."""
        if 0 < rows <= _MOST and 0 < columns <= _MOST:
            with suppress(OSError):
                size = struct.pack("HHHH", rows, columns, 0, 0)
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def finish(self) -> None:
        """The command is over: the master can be read to its end. Idempotent."""
        with self._lock:
            slave, self._slave = self._slave, -1
        if slave >= 0:
            os.close(slave)

    def hang_up(self) -> None:
        """The client is gone: the command gets SIGHUP."""
        os.close(self.master)
