"""Copies stdout and stderr of a replica from a pipe into its log file, and limits the log's size.

A pipe and not the file itself: a shell script with `> /dev/stderr` opens its stream again, which
truncates a file and does nothing to a pipe; and only a process in between can limit a runaway log.
A thread of the supervisor copies, so the log is complete before the exit of the replica is
recorded.

A time index beside the log (`model.logs.index_format`) has when the bytes were written, so that the
lines of several workers can be put in order, also after the server was away.

A full disk loses nothing while the replica runs: the bytes are kept and written again later, and
the replica blocks on its full pipe until there is space or it is ended.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import select
import time
from contextlib import suppress

from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.logs.index_format import is_due, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

LONGEST_TAIL = 1024 * 1024
# A user may have 64 MiB in large pipes; above that all new pipes of the user are tiny.
_PIPE_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RETRY_SECONDS = 0.2
# After this many short reads in a row the next ones are collected: waking up for each line of a
# chatty replica would take a fifth of a CPU from it.
_CHATTY_READS = 16
_SHORT_BYTES = 16 * 1024
_COLLECT_SECONDS = 0.001
# An unbuffered Python prints a line and its end by two writes, and both are worth one report.
# A prompt or a progress bar is this much late.
_LINE_END_SECONDS = 0.0005
_LINE_ENDS = (b"\n", b"\r")
# How long a full disk is waited for when no process of the replica is left.
_FULL_DISK_SECONDS = 5.0
# How long a pipe that a process outside of the replica holds open has to be silent to count as
# ended.
_SILENT_SECONDS = 0.5
# The same for a pipe to which such a process keeps writing.
_LONGEST_SECONDS = 60.0
_THREAD_TRIES = 50


class LogCapture:
    """The log of one replica and the thread that fills it.

    `writer` is for the replica's stdout and stderr; `start` closes it here. `preamble` is what the
    log begins with. Creating one may raise OSError; afterwards nothing does.
    """

    def __init__(
        self, path: Path, *, limit: int | None, preamble: str = "", times: Path | None = None
    ) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(path, flags, 0o600)
        self._size = os.fstat(self._log).st_size
        self._times = None if times is None else _Times(times)
        self._reader, self.writer = os.pipe()
        # Refused to users who have many pipes; then it stays small.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._limit = LogLimit(limit=limit, size=self._size)
        self._running = _thread.allocate_lock()
        """Held by the thread for its life."""
        self._copying = _thread.allocate_lock()
        self._give_up_at: float | None = None
        """When bytes that the disk does not take are dropped; None while the replica runs."""
        self._closed = False
        self._ended = False
        self.lost = 0
        """Bytes that could not be written."""
        self._preamble = preamble.encode()

    def start(self) -> None:
        """Start to copy. Call it after the fork: a process with threads must not fork."""
        os.close(self.writer)
        self._running.acquire()
        for _ in range(_THREAD_TRIES):
            with suppress(RuntimeError):
                _thread.start_new_thread(self._copy, ())
                return
            # The machine has no thread left at this moment; the replica's bytes wait.
            time.sleep(_RETRY_SECONDS / 10)
        _thread.start_new_thread(self._copy, ())

    def finish(self) -> None:
        """Return when the log is complete; no process of the replica is left.

        At once, unless the disk is full or a process outside of the replica was given the stream.
        """
        begun = time.monotonic()
        self._give_up_at = begun + _FULL_DISK_SECONDS
        while not self._running.acquire(timeout=_SILENT_SECONDS):
            readable = select.select([self._reader], [], [], 0)[0]
            silent = not self._copying.locked() and not readable
            if silent or time.monotonic() - begun > _LONGEST_SECONDS:
                break
        else:
            self._ended = True
        with self._copying:
            self._write(self._limit.rest())
            self._closed = True

    def close(self) -> bool:
        """After `finish`: close everything; False if another process still holds the stream."""
        if self._ended:
            os.close(self._log)
            os.close(self._reader)
            if self._times is not None:
                self._times.close()
        return self._ended

    def _copy(self) -> None:
        short, last = 0, 0.0
        try:
            with self._copying:
                self._write(self._limit.take(self._preamble) if self._preamble else b"")
            while data := os.read(self._reader, _READ_BYTES):
                with self._copying:
                    if len(data) < _SHORT_BYTES and not data.endswith(_LINE_ENDS):
                        data += self._line_end()
                    self._write(self._limit.take(data))
                at_once = time.monotonic() - last < _COLLECT_SECONDS
                short = short + 1 if at_once and len(data) < _SHORT_BYTES else 0
                if short > _CHATTY_READS:
                    time.sleep(_COLLECT_SECONDS)
                last = time.monotonic()
        finally:
            self._running.release()

    def _line_end(self) -> bytes:
        """What follows at once on a line without an end."""
        follows = select.select([self._reader], [], [], _LINE_END_SECONDS)[0]
        return os.read(self._reader, _SHORT_BYTES) if follows else b""

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        if left and self._times is not None:
            self._times.record(self._size)
        while left and not self._closed:
            try:
                written = os.write(self._log, left)
                self._size += written
                left = left[written:]
            except OSError as error:
                if error.errno not in _FULL or self._gives_up():
                    self.lost += len(left)
                    return
                time.sleep(_RETRY_SECONDS)

    def _gives_up(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at


class _Times:
    """The time index of a log. A log that came at once has none: the time of its file is enough."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._unwritten = b""
        self._last = 0.0
        self._entries = 0

    def record(self, size: int) -> None:
        """Bytes from `size` on are written now. An entry that cannot be written is lost."""
        now = time.time()
        if self._entries and not is_due(now - self._last, self._entries, size):
            return
        self._unwritten += packed(now, size)
        self._last = now
        self._entries += 1
        if self._entries == 1:
            return
        with suppress(OSError):
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            os.write(self._file, self._unwritten)
        self._unwritten = b""

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


class LogLimit:
    """Limits the size of a log by leaving out its middle, and notes that in the log. No I/O.

    The last quarter of the limit, 1 MiB at most, is kept for the end of the log; the lines that
    note it, in both languages, come on top of the limit. `size` is what the log holds already.
    """

    def __init__(self, *, limit: int | None, size: int) -> None:
        self._limit = limit
        self._longest_tail = 0 if limit is None else min(LONGEST_TAIL, limit // 4)
        self._head_left = 0 if limit is None else max(0, limit - self._longest_tail - size)
        self._tail = bytearray()
        self._reached = False
        self._last = b"\n"
        self.left_out = 0

    def take(self, data: bytes) -> bytes:
        """The beginning of the next bytes, which goes into the log now."""
        if self._limit is None:
            return data
        if self._reached:
            self._keep(data)
            return b""
        head = data[: self._head_left]
        self._head_left -= len(head)
        self._last = head[-1:] or self._last
        if len(head) == len(data):
            return head
        self._reached = True
        self._keep(data[len(head) :])
        lines = _lines("log_at_limit", limit=self._limit, tail=self._longest_tail)
        return head + (b"" if self._last == b"\n" else b"\n") + lines

    def rest(self) -> bytes:
        """The end of the log."""
        if not self._reached:
            return b""
        self._cut()
        return _lines("log_left_out", count=self.left_out) + bytes(self._tail)

    def _keep(self, data: bytes) -> None:
        self._tail += data
        # Cut only at twice the size, so that not every call moves all the others.
        if len(self._tail) > 2 * self._longest_tail:
            self._cut()

    def _cut(self) -> None:
        surplus = len(self._tail) - self._longest_tail
        if surplus > 0:
            self.left_out += surplus
            del self._tail[:surplus]


def _lines(code: str, **params: int) -> bytes:
    return "".join(f"[paddlecloud: {render(code, params, lang)}]\n" for lang in LANGUAGES).encode()
