"""The format of a time index of a log: (time, size) entries, and how far they are apart.

An entry states that the bytes from `size` on were written at `time`. This module is small because
every supervisor has it in memory.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    Note = tuple[float, int]

#: Longest time between two entries of a log that grows, in seconds.
EVERY = 1.0
#: Shortest time between two entries.
FINE = 0.01
#: Bytes of an index of any log; above that it has at most a byte for `_SHARE` bytes of its log.
SMALL = 64 * 1024
_SHARE = 64

_NOTE = struct.Struct("<dQ")

#: Bytes of one entry.
SIZE = _NOTE.size


def packed(at: float, size: int) -> bytes:
    return _NOTE.pack(at, size)


def unpacked(data: bytes) -> list[Note]:
    """The complete entries in these bytes."""
    return list(_NOTE.iter_unpack(data[: len(data) // SIZE * SIZE]))


def is_due(gap: float, entries: int, size: int) -> bool:
    """Whether an index with so many entries gets another one, `gap` seconds after its last, for a
    log of this size."""
    if gap < FINE:
        return False
    return gap >= EVERY or entries * SIZE <= SMALL + size // _SHARE
