"""Notes of when a log grew: (time, size), at most one a second.

A note says that all bytes from `size` on came at `time` or later. They serve to begin in the middle
(`--since`) and to put the logs of several workers in order; both are right to a second. Where they
are kept is the business of the store.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Note = tuple[float, int]
    #: Some notes: the number of the first, how many; fewer at the end.
    Read = Callable[[int, int], list[Note]]

#: Seconds between two notes of one log.
EVERY = 1.0
#: Notes that are read at once.
BLOCK = 256
_NOTE = struct.Struct("<dQ")
#: Bytes of one note.
SIZE = _NOTE.size


def packed(at: float, size: int) -> bytes:
    return _NOTE.pack(at, size)


def unpacked(data: bytes) -> list[Note]:
    """The whole notes in these bytes."""
    return list(_NOTE.iter_unpack(data[: len(data) // SIZE * SIZE]))


def all_notes(read: Read, block: int = BLOCK) -> Iterator[Note]:
    """Every note, oldest first, a block at a time."""
    first = 0
    while notes := read(first, block):
        yield from notes
        first += len(notes)


def size_at(read: Read, time: float) -> int | None:
    """A size below which all bytes came before `time`; None where no note tells.

    With notes, but none of that time or later, it is -1: everything came before.
    """
    begun = time - EVERY
    found = None
    for at, size in all_notes(read, 16 * BLOCK):
        if at > begun:
            return size
        found = -1
    return found
