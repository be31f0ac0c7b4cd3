"""Spools the output of an `exec` command on disk, in a bounded number of chunk files.

The command's supervisor writes one chunk after the other, and the agent deletes those that the
server has. While the maximum number of chunks exists no further one is created, the pipe fills up,
and the command blocks. So a command may print any amount, and the two processes share nothing but
file names.
"""

from __future__ import annotations

import os
import time

from paddlecloud.agent.supervisor.log_capture import LogCapture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 2 * 1024 * 1024
MAX_CHUNKS = 4
"""Of one stream."""
_POLL_SECONDS = 0.01
_RETRY_SECONDS = 0.2


class Spool(LogCapture):
    """One stream of a command. `finish` does not wait until chunks are collected."""

    def __init__(self, root: Path, stream: str) -> None:
        super().__init__(path_of(root, stream, 0), limit=None)
        self._root, self._stream = root, stream
        self._number = 0
        self._inside = 0

    def _write(self, data: bytes) -> None:
        left = data
        while left and not self._closed:
            # Behind a gap everything would be at a wrong offset.
            if self.lost or (self._inside == CHUNK_BYTES and not self._next_chunk()):
                self.lost += len(left)
                return
            part = left[: CHUNK_BYTES - self._inside]
            super()._write(part)
            self._inside += len(part)
            left = left[len(part) :]

    def _next_chunk(self) -> bool:
        """Create the next chunk; False if it cannot be created and the command is over."""
        oldest = path_of(self._root, self._stream, self._number + 1 - MAX_CHUNKS)
        # When the command is over, what is left in its pipe is less than a chunk.
        while self._give_up_at is None and self._number + 1 >= MAX_CHUNKS and oldest.exists():
            time.sleep(_POLL_SECONDS)
        path = path_of(self._root, self._stream, self._number + 1)
        while True:
            try:
                log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                if not self._root.exists() or self._gives_up():
                    return False
                time.sleep(_RETRY_SECONDS)
                continue
            os.close(self._log)
            self._log, self._number, self._inside = log, self._number + 1, 0
            return True


def path_of(root: Path, stream: str, number: int) -> Path:
    return root / (f"{stream}.{number}" if number else stream)


def read(root: Path, stream: str, offset: int, limit: int, *, chunked: bool = True) -> bytes:
    """Up to `limit` bytes from `offset`; none at the end. ValueError if they were deleted.

    Not `chunked`: all of it is in the first file, as an earlier version wrote it."""
    number, inside = divmod(offset, CHUNK_BYTES) if chunked else (0, offset)
    fd = _opened(root, stream, number)
    if fd is None and _has_later_chunk(root, stream, number):
        # Both may have been created since the first try.
        fd = _opened(root, stream, number)
        if fd is None:
            raise ValueError(f"its output from byte {offset} on is lost")
    if fd is None:
        return b""
    try:
        return os.pread(fd, limit, inside)
    finally:
        os.close(fd)


def delete_before(root: Path, stream: str, offset: int) -> None:
    """Delete the chunks before this offset: the server has them."""
    end = offset // CHUNK_BYTES
    # Oldest first, so that being killed in between leaves no gap.
    for number in range(max(0, end - MAX_CHUNKS - 2), end):
        path_of(root, stream, number).unlink(missing_ok=True)


def _opened(root: Path, stream: str, number: int) -> int | None:
    try:
        return os.open(path_of(root, stream, number), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _has_later_chunk(root: Path, stream: str, number: int) -> bool:
    return any(path_of(root, stream, number + n).exists() for n in range(1, MAX_CHUNKS + 2))
