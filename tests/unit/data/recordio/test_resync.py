"""The search for the next sound chunk: how much it reads, whatever stands in the file."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pytest

from paddlecloud.data import recordio
from paddlecloud.data.recordio._range_crc import GRID, RangeCrc
from tests.unit.data.vectors import chunk

GOOD = [b"good", b"", b"x" * 3000]
MAGIC = b"\x04\x03\x02\x01"


class Counting(io.BytesIO):
    """Counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


def lie(size: int) -> bytes:
    """A header that says so many bytes follow it, with a checksum that is wrong."""
    return MAGIC + struct.pack("<4I", 1, 0, size, 1)


def liars(count: int, apart: int) -> bytes:
    """Headers without chunks, each of which claims everything up to the end of the file."""
    total = count * apart
    filler = b"\x07" * (apart - 20)
    return b"".join(lie(total - n * apart - 20 + 7) + filler for n in range(count))


def taken(data: bytes, want: list[bytes]) -> int:
    file = Counting(data)
    assert list(recordio.Reader(file, errors="skip")) == want
    return file.taken


@pytest.mark.parametrize("apart", [2000, 40_000])
@pytest.mark.parametrize("count", [50, 200, 800])
def test_false_headers_cost_the_same_each(apart: int, count: int) -> None:
    """However many there are: the file some times, and a little around both ends of each claim."""
    data = b"junk" + liars(count, apart) + chunk(GOOD)
    assert taken(data, GOOD) < 3 * len(data) + 3 * GRID * count


def test_junk_between_chunks_is_read_a_few_times() -> None:
    junk = random.Random(1).randbytes(200_000).replace(MAGIC, b"")
    for count in (3, 12):
        data = (chunk(GOOD) + junk) * count
        assert taken(data, GOOD * count) < 3 * len(data)


def test_sound_chunks_inside_a_damaged_one_are_followed_once() -> None:
    """They may be a record of it: their chain ends before it does."""

    def nested(count: int) -> bytes:
        inner = chunk(GOOD) * count
        damaged = chunk([inner, b"tail"], checksum=1)
        return damaged + chunk(GOOD)

    small, large = (taken(nested(count), GOOD) for count in (50, 200))
    assert large < 5 * small


def test_a_late_search_does_not_read_what_lies_before() -> None:
    chunks = [chunk([bytes([n % 251]) * 2**17]) for n in range(40)]
    data = b"?" + b"".join(chunks[:35]) + b"junk" + b"".join(chunks[35:])
    file = Counting(data)
    assert len(recordio.Index.of(file, errors="skip")) == 40
    assert file.taken < 12 * 2**17 + 4 * 2**20


def test_sums_of_any_stretch() -> None:
    chance = random.Random(3)
    data = chance.randbytes(20 * GRID + 77)
    sums = RangeCrc(lambda offset, size: data[offset : offset + size])
    for _ in range(300):
        begin, end = sorted(chance.choices(range(len(data) + 1), k=2))
        assert sums.of(begin, end - begin) == zlib.crc32(data[begin:end])
