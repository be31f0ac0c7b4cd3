"""Files that grow in place: what appending cuts off and what it leaves alone, and a full disk."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddlecloud.data import recordio
from tests.unit.data.vectors import chunk, fluid_chunk

CHUNKS = [[b"%d-%d" % (number, record) for record in range(10)] for number in range(100)]
PIECES = [chunk(records) for records in CHUNKS]
#: Where a field begins in a header.
CHECKSUM, COMPRESSOR, SIZE = 4, 8, 12


def flipped(number: int, place: int) -> bytes:
    """All chunks; one byte in the header of one of them is another."""
    piece = bytearray(PIECES[number])
    piece[place] ^= 0x15
    return b"".join([*PIECES[:number], bytes(piece), *PIECES[number + 1 :]])


def reaching(number: int, over: int) -> bytes:
    """All chunks; one of them says that it reaches over so many behind it."""
    size = len(b"".join(PIECES[number : number + over + 1])) - 20
    liar = chunk(CHUNKS[number], size=size)
    return b"".join([*PIECES[:number], liar, *PIECES[number + 1 :]])


DAMAGED = {
    "a flipped magic number": (flipped(3, 0), 3, "magic"),
    "an unknown compressor": (flipped(3, COMPRESSOR), 3, "compressor"),
    "a size that is too small or too large": (flipped(3, SIZE), 3, "checksum"),
    "a size beyond the end": (flipped(0, SIZE + 3), 0, "size"),
    "a size up to the end": (reaching(3, 96), 3, "checksum"),
    "a flipped magic number, and a torn end": (flipped(3, 0)[:-5], 3, "magic"),
    "a flipped magic number, and a last chunk that is none": (
        flipped(3, 0)[: -len(PIECES[99])] + flipped(99, CHECKSUM)[-len(PIECES[99]) :],
        3,
        "magic",
    ),
    "an unknown compressor in the last chunk": (flipped(99, COMPRESSOR), 99, "compressor"),
    "a last chunk of Fluid": (b"".join(PIECES[:4]) + fluid_chunk(CHUNKS[4]), 4, "fluid"),
    "nothing but chunks of Fluid": (fluid_chunk(CHUNKS[0]) + fluid_chunk(CHUNKS[1]), 0, "fluid"),
    "a last chunk whose records cannot be": (PIECES[0] + chunk(CHUNKS[1], count=11), 1, "count"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_that_is_no_torn_end_is_not_cut_off(tmp_path: Path, name: str) -> None:
    data, number, reason = DAMAGED[name]
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(recordio.DamagedFile) as caught:
        recordio.Writer(path, append=True)
    assert path.read_bytes() == data
    found = caught.value.damage
    assert (found.path, found.chunk, found.reason) == (str(path), number, reason)
    said = str(caught.value)
    assert said.startswith(f"{path}: chunk {number} at byte {found.offset}: ")
    assert said.endswith(f"nothing was cut off: run `paddlecloud data repair {path}`")
    assert str(pickle.loads(pickle.dumps(caught.value))) == said


def test_what_repair_leaves_can_be_appended_to(tmp_path: Path) -> None:
    path, fixed = tmp_path / "a", tmp_path / "b"
    path.write_bytes(flipped(3, 0))
    recordio.repair(path, fixed)
    with recordio.Writer(fixed, append=True) as writer:
        writer.write(b"more")
    want = [record for records in CHUNKS[:3] + CHUNKS[4:] for record in records]
    assert list(recordio.Reader(fixed)) == [*want, b"more"]


TORN: dict[str, bytes] = {
    "nothing": b"",
    "a part of a chunk": PIECES[50][:-1],
    "a chunk that was never filled": PIECES[50][:20] + bytes(len(PIECES[50]) - 20),
    "two of them": 2 * (PIECES[50][:20] + bytes(len(PIECES[50]) - 20)),
    "zeros": bytes(5000),
}


@pytest.mark.parametrize("name", TORN)
def test_what_a_dead_writer_left_is_cut_off(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a"
    whole = b"".join(PIECES[:5])
    path.write_bytes(whole + TORN[name])
    assert recordio.recover(path) == len(TORN[name])
    assert path.read_bytes() == whole


def test_a_short_text_is_no_torn_chunk(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("short\n")
    with pytest.raises(ValueError, match="no RecordIO file; nothing was cut off"):
        recordio.Writer(path, append=True)
    assert path.read_text() == "short\n"


FILL = """
import json, resource, sys
from paddlecloud.data import recordio
path, how = sys.argv[1:]
writer = recordio.Writer(path, compressor="none", max_chunk_bytes=1000, **{how: True})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
failed = []
for number in range(10):
    # A file may not grow any more while chunks 3 to 5 are written, as on a disk that is full.
    limit = {3: 3500, 6: hard}.get(number)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    writer.write(bytes([number]) * 900)
    try:
        writer.flush()
    except OSError:
        failed.append(number)
told = (failed, writer.records, writer.chunks)
writer.close()
print(json.dumps(told))
"""


@pytest.mark.parametrize("how", ["in_place", "append"])
def test_a_full_disk_leaves_no_part_of_a_chunk(tmp_path: Path, how: str) -> None:
    """The limit is on the size of files: the system writes what fits and refuses the rest."""
    path = tmp_path / "a"
    words = [sys.executable, "-c", FILL, str(path), how]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [[3, 4, 5], 7, 7]
    want = [bytes([number]) * 900 for number in (0, 1, 2, 6, 7, 8, 9)]
    assert list(recordio.Reader(path)) == want


class Fickle(io.BytesIO):
    """Takes half of a chunk once, and then fails."""

    fails = True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        if not self.fails:
            return super().write(view)
        self.fails = False
        super().write(view[: len(view) // 2])
        raise OSError(28, "No space left on device")


def into_object(_: Path) -> recordio.Writer:
    return recordio.Writer(Fickle())


def into_safe_file(path: Path) -> recordio.Writer:
    writer = recordio.Writer(path)
    writer._file = Fickle()
    return writer


def into_device(_: Path) -> recordio.Writer:
    return recordio.Writer("/dev/full", in_place=True)


@pytest.mark.parametrize("begun", [into_object, into_safe_file, into_device])
def test_what_cannot_be_taken_back_is_given_up(
    tmp_path: Path, begun: Callable[[Path], recordio.Writer]
) -> None:
    writer = begun(tmp_path / "a")
    writer.write(b"lost")
    with pytest.raises(OSError, match="No space left"):
        writer.flush()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"behind the tear")
    writer.close()
    assert (writer.records, writer.chunks) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_may_grow_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    receiver = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with recordio.Writer(path, in_place=True) as writer:
        writer.write(b"x")
    with open(receiver, "rb", buffering=0) as pipe:  # noqa: PTH123 - a descriptor has no path
        assert list(recordio.Reader(pipe)) == [b"x"]
