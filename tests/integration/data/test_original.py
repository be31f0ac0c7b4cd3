"""The library of 2017 itself as a peer: files of each are read by the other.

It is `librecordio.so` of the wheel recordio 0.1.7, which loads under any Python;
scripts/install-test-tools.sh installs it.
"""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest

from paddlecloud.data import recordio
from scripts import paddle

LIBRARY = paddle.CACHE / "paddlecloud-dev" / "recordio-0.1.7" / "librecordio.so"
pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="recordio 0.1.7 is not installed (scripts/install-test-tools.sh)"
)


class Original:
    """The functions that its Python module calls."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.recordio_read.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
        self._library.mem_free.argtypes = [ctypes.c_void_p]

    def write(self, path: Path, records: list[bytes]) -> None:
        writer = self._library.create_recordio_writer(str(path).encode())
        for record in records:
            self._library.recordio_write(writer, ctypes.c_char_p(record), len(record))
        self._library.release_recordio_writer(writer)

    def read(self, path: Path) -> list[bytes]:
        reader = self._library.create_recordio_reader(str(path).encode())
        found = []
        pointer = ctypes.c_void_p()
        while (size := self._library.recordio_read(reader, ctypes.byref(pointer))) >= 0:
            found.append(ctypes.string_at(pointer, size) if size else b"")
            if size:
                self._library.mem_free(pointer)
        self._library.release_recordio_reader(reader)
        return found


@pytest.fixture(scope="module")
def original() -> Original:
    return Original(str(LIBRARY))


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
def test_it_reads_ours_and_we_read_its(original: Original, tmp_path: Path, compressor: str) -> None:
    chance = random.Random(compressor)
    records = [
        chance.randbytes(chance.randrange(3000)) + bytes(chance.randrange(3000))
        for _ in range(2000)
    ]
    records += [b"", b"x", bytes(200_000), chance.randbytes(200_000)]
    with recordio.Writer(tmp_path / "ours", compressor=compressor, max_chunk_bytes=2**20) as writer:
        writer.write_all(records)
    assert original.read(tmp_path / "ours") == records
    original.write(tmp_path / "its", records)
    assert list(recordio.Reader(tmp_path / "its")) == records


def test_the_same_bytes(original: Original, tmp_path: Path) -> None:
    chance = random.Random(1)
    records = [chance.randbytes(500) + bytes(500) for _ in range(40_000)]
    original.write(tmp_path / "its", records)
    writer = recordio.writer(str(tmp_path / "ours"))
    writer.write_all(records)
    writer.close()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "its").read_bytes()
