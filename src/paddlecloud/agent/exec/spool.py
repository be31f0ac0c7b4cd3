"""What a command prints, on the disk of its machine until the server has it: a few pieces at most.

The process beside the command fills one piece after the other, and the agent deletes those that the
server has. Their names are all that the two tell each other: as long as as many pieces lie there as
may, no further one is begun, the pipe fills up, and the command waits. So it may print any amount.
"""

from __future__ import annotations

import os
import time

from paddlecloud.agent.supervisor.log_capture import Capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PIECE = 2 * 1024 * 1024
MOST = 4
"""Pieces of one stream that may lie there."""
_LOOK_SECONDS = 0.01
_RETRY_SECONDS = 0.2


class Spool(Capture):
    """A stream of a command; `finish` does not wait for whoever takes the pieces."""

    def __init__(self, root: Path, stream: str) -> None:
        super().__init__(path_of(root, stream, 0), limit=None)
        self._root, self._stream = root, stream
        self._number = 0
        self._inside = 0

    def _write(self, data: bytes) -> None:
        left = data
        while left and not self._closed:
            # Behind a gap everything would be at a wrong place.
            if self.lost or (self._inside == PIECE and not self._turn_over()):
                self.lost += len(left)
                return
            part = left[: PIECE - self._inside]
            super()._write(part)
            self._inside += len(part)
            left = left[len(part) :]

    def _turn_over(self) -> bool:
        """Begin the next piece; False if there is no place for it, and nobody to wait for one."""
        oldest = path_of(self._root, self._stream, self._number + 1 - MOST)
        # With the command over, what is left in its pipe is less than a piece.
        while self._patient_until is None and self._number + 1 >= MOST and oldest.exists():
            time.sleep(_LOOK_SECONDS)
        path = path_of(self._root, self._stream, self._number + 1)
        while True:
            try:
                log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                if not self._root.exists() or self._out_of_patience():
                    return False
                time.sleep(_RETRY_SECONDS)
                continue
            os.close(self._log)
            self._log, self._number, self._inside = log, self._number + 1, 0
            return True


def path_of(root: Path, stream: str, number: int) -> Path:
    return root / (f"{stream}.{number}" if number else stream)


def read(root: Path, stream: str, offset: int, limit: int, *, in_pieces: bool = True) -> bytes:
    """At most so many bytes from there on; none at the end. ValueError if they were let go.

    Not in pieces: all of it lies in the first file, as an earlier version wrote it."""
    number, inside = divmod(offset, PIECE) if in_pieces else (0, offset)
    fd = _opened(root, stream, number)
    if fd is None and _goes_on(root, stream, number):
        # Both may have been begun since the first look.
        fd = _opened(root, stream, number)
        if fd is None:
            raise ValueError(f"its output from byte {offset} on is lost")
    if fd is None:
        return b""
    try:
        return os.pread(fd, limit, inside)
    finally:
        os.close(fd)


def let_go(root: Path, stream: str, offset: int) -> None:
    """Delete the pieces before this offset: somebody else has them."""
    end = offset // PIECE
    # Oldest first: whoever is killed here leaves no gap, behind which nobody would look.
    for number in range(max(0, end - MOST - 2), end):
        path_of(root, stream, number).unlink(missing_ok=True)


def _opened(root: Path, stream: str, number: int) -> int | None:
    try:
        return os.open(path_of(root, stream, number), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _goes_on(root: Path, stream: str, number: int) -> bool:
    """Whether there is a later piece."""
    return any(path_of(root, stream, number + more).exists() for more in range(1, MOST + 2))
