"""CRC-32 of arbitrary, overlapping byte ranges of a file, in linear time.

The search for the next valid chunk needs one checksum per possible header, and each range may reach
to the end of the file. So running checksums are kept at grid points of the file, and that of a
range follows from those at its two ends, because CRC-32 is linear. Without overlaps no extra byte
is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from paddlecloud.data.recordio._codec import crc32

#: Bytes between two stored checksums, which take a ten-thousandth of the file in memory.
GRID = 2**15
_STEP = 2**20
_POLYNOMIAL = 0xEDB88320


class RangeCrc:
    """`read_at(offset, size)` returns the bytes, fewer at the end of the file."""

    def __init__(self, read_at: Callable[[int, int], bytes]) -> None:
        self._read_at = read_at
        self._base = 0
        self._kept = [0]

    def of(self, offset: int, size: int) -> int:
        """The CRC-32 of a range within the file."""
        if size <= 2 * GRID:
            return _sum(self._read_at(offset, size))
        if not self._base <= offset <= self._base + GRID * (len(self._kept) - 1):
            self._base, self._kept = offset, [0]
        return self._until(offset + size) ^ _shifted(self._until(offset), size)

    def _until(self, end: int) -> int:
        """The checksum from `_base` to `end`."""
        number, rest = divmod(end - self._base, GRID)
        while len(self._kept) <= number:
            count = min(number + 1 - len(self._kept), _STEP // GRID)
            start = self._base + GRID * (len(self._kept) - 1)
            data = memoryview(self._read_at(start, count * GRID))
            for block in range(0, count * GRID, GRID):
                self._kept.append(_sum(data[block : block + GRID], self._kept[-1]))
        return _sum(self._read_at(end - rest, rest), self._kept[number])


def _sum(data: bytes | memoryview, before: int = 0) -> int:
    found: int = crc32(data, before)
    return found


def _shifted(checksum: int, size: int) -> int:
    """What a checksum contributes to that of the same bytes followed by `size` more."""
    place = 0
    while size >> place:
        if size >> place & 1:
            checksum = _product(_power(place), checksum)
        place += 1
    return checksum


@cache
def _power(place: int) -> int:
    """The shift by 2**place bytes, as a polynomial with the highest bit first."""
    return _product(_power(place - 1), _power(place - 1)) if place else 1 << 23


def _product(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC-32."""
    total = 0
    while a:
        if a & 0x80000000:
            total ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ _POLYNOMIAL if b & 1 else b >> 1
    return total
