"""What a replica prints: out of a pipe, into its log file, whole or with the middle left out.

A pipe and not the file itself: a shell script that says `> /dev/stderr` opens its stream anew,
which cuts a file short and does nothing to a pipe; and only who stands in between can hold a
runaway log to a limit. A thread of the monitor does the copying, so nothing but the end of the
monitor ends it, and the log is whole before the end of the replica is recorded.

A full disk loses nothing as long as the replica runs: the bytes are kept and tried again, and the
replica waits at its full pipe until there is space or somebody ends it.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

TAIL_MOST = 1024 * 1024
# A user may have 64 MiB in large pipes; whoever has more gets tiny ones for everything he does.
_PIPE_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RETRY_SECONDS = 0.2
# So many short pieces one right after the other, and the next ones are left to gather: to wake up
# for each line of a chatty replica would take a fifth of a CPU from it.
_CHATTY_PIECES = 16
_SHORT_BYTES = 16 * 1024
_GATHER_SECONDS = 0.001
# An unbuffered Python prints a line and its end by two writes: who hurries with the first one does
# everything twice. Text that waits for an answer, or a bar that grows, is this much late.
_LINE_END_SECONDS = 0.0005
_LINE_ENDS = (b"\n", b"\r")
# For a disk that is full although nothing of the replica is left that could wait for it.
_PATIENCE_SECONDS = 5.0
# How long a pipe without a writer of ours has to be silent before nobody waits for its end.
_SILENT_SECONDS = 0.5
# For a stranger who was given the stream and goes on writing.
_LONGEST_SECONDS = 60.0
_THREAD_TRIES = 50


class Capture:
    """The log of one replica and the thread that fills it.

    `writer` is for the replica's stdout and stderr; `begin` closes it here. `preamble` is what the
    log begins with. Making one may raise OSError; afterwards nothing does.
    """

    def __init__(self, path: Path, *, limit: int | None, preamble: str = "") -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._log = os.open(path, flags, 0o600)
        self._reader, self.writer = os.pipe()
        # Refused to users who have many pipes; then it stays as small as it is.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._trim = Trim(limit=limit, size=0 if limit is None else os.fstat(self._log).st_size)
        self._running = _thread.allocate_lock()
        """Held by the thread for its life."""
        self._copying = _thread.allocate_lock()
        self._patient_until: float | None = None
        self._closed = False
        self._ended = False
        self.lost = 0
        """Bytes that could not be written."""
        self._preamble = preamble.encode()

    def begin(self) -> None:
        """Start to copy. To be called after the fork: a process with threads must not fork."""
        os.close(self.writer)
        self._running.acquire()
        for _ in range(_THREAD_TRIES):
            with suppress(RuntimeError):
                _thread.start_new_thread(self._copy, ())
                return
            # The machine has no thread to give at this moment; the replica's bytes wait.
            time.sleep(_RETRY_SECONDS / 10)
        _thread.start_new_thread(self._copy, ())

    def finish(self) -> None:
        """When no process of the replica is left: come back when the log is whole.

        That is at once, but for a full disk, and for a stranger who was given the stream.
        """
        begun = time.monotonic()
        self._patient_until = begun + _PATIENCE_SECONDS
        while not self._running.acquire(timeout=_SILENT_SECONDS):
            silent = not self._copying.locked() and not self._readable()
            if silent or time.monotonic() - begun > _LONGEST_SECONDS:
                break
        else:
            self._ended = True
        with self._copying:
            self._write(self._trim.rest())
            self._closed = True

    def close(self) -> bool:
        """After `finish`: keep nothing open; False where a stranger still holds the stream."""
        if self._ended:
            os.close(self._log)
            os.close(self._reader)
        return self._ended

    def _copy(self) -> None:
        short, last = 0, 0.0
        try:
            with self._copying:
                self._write(self._trim.take(self._preamble) if self._preamble else b"")
            while piece := os.read(self._reader, _READ_BYTES):
                with self._copying:
                    if len(piece) < _SHORT_BYTES and not piece.endswith(_LINE_ENDS):
                        piece += self._line_end()
                    self._write(self._trim.take(piece))
                at_once = time.monotonic() - last < _GATHER_SECONDS
                short = short + 1 if at_once and len(piece) < _SHORT_BYTES else 0
                if short > _CHATTY_PIECES:
                    time.sleep(_GATHER_SECONDS)
                last = time.monotonic()
        finally:
            self._running.release()

    def _line_end(self) -> bytes:
        """What comes right behind a line without an end."""
        follows = select.select([self._reader], [], [], _LINE_END_SECONDS)[0]
        return os.read(self._reader, _SHORT_BYTES) if follows else b""

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._closed:
            try:
                left = left[os.write(self._log, left) :]
            except OSError as error:
                if error.errno not in _FULL or self._out_of_patience():
                    self.lost += len(left)
                    return
                time.sleep(_RETRY_SECONDS)

    def _out_of_patience(self) -> bool:
        return self._patient_until is not None and time.monotonic() >= self._patient_until

    def _readable(self) -> bool:
        return bool(select.select([self._reader], [], [], 0)[0])


class Trim:
    """Holds a log to a limit by leaving out its middle; says so in the log. No I/O.

    The last quarter of the limit, 1 MiB at most, is kept for the end of the log; the lines that
    tell of it, in both languages, come on top of the limit. `size` is what the log holds already.
    """

    def __init__(self, *, limit: int | None, size: int) -> None:
        self._limit = limit
        self._tail_most = 0 if limit is None else min(TAIL_MOST, limit // 4)
        self._room = 0 if limit is None else max(0, limit - self._tail_most - size)
        self._tail = bytearray()
        self._passed = False
        self._last = b"\n"
        self.left_out = 0

    def take(self, piece: bytes) -> bytes:
        """What of the next piece goes into the log at once."""
        if self._limit is None:
            return piece
        if self._passed:
            self._keep(piece)
            return b""
        head = piece[: self._room]
        self._room -= len(head)
        self._last = head[-1:] or self._last
        if len(head) == len(piece):
            return head
        self._passed = True
        self._keep(piece[len(head) :])
        return head + self._announce()

    def rest(self) -> bytes:
        """What comes at the end of the log."""
        if not self._passed:
            return b""
        self._cut()
        return _lines("log_left_out", count=self.left_out) + bytes(self._tail)

    def _keep(self, piece: bytes) -> None:
        self._tail += piece
        # Twice as much as needed, so that not every piece moves all the others.
        if len(self._tail) > 2 * self._tail_most:
            self._cut()

    def _cut(self) -> None:
        surplus = len(self._tail) - self._tail_most
        if surplus > 0:
            self.left_out += surplus
            del self._tail[:surplus]

    def _announce(self) -> bytes:
        lines = _lines("log_at_limit", limit=self._limit or 0, tail=self._tail_most)
        return (b"" if self._last == b"\n" else b"\n") + lines


def _lines(code: str, **params: int) -> bytes:
    return "".join(f"[paddlecloud: {render(code, params, lang)}]\n" for lang in LANGUAGES).encode()
