"""Damaged files: each kind is named with its place, nothing sound is lost, no lie takes memory."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import tracemalloc
import zlib
from itertools import chain
from pathlib import Path

import pytest

from paddlecloud.data import recordio
from paddlecloud.data.recordio.atomic_file import SafeFile
from paddlecloud.data.recordio.corruption import REASONS, Damage
from tests.unit.data.vectors import HELLO, V4, V5, chunk, fluid_chunk, framed

SNAPPY = b"\xff\x06\x00\x00sNaPpY"
A, B, C = [b"a" * 9, b"b"], [b"cc", b""], [b"d" * 30]
FIRST, LAST = chunk(A), chunk(C)


def read(data: bytes, errors: str) -> tuple[list[bytes], list[Damage]]:
    reader = recordio.Reader(io.BytesIO(data), errors=errors)
    return list(reader), reader.damages


MIDDLES = {
    "nothing at all": (b"", None),
    "a newline": (b"\n", "magic"),
    "zeros": (bytes(20), "magic"),
    "wrong magic": (b"\x05" + chunk(B)[1:], "magic"),
    "big-endian magic": (b"\1\2\3\4" + chunk(B)[4:], "magic_swapped"),
    "wrong checksum": (chunk(B, checksum=1), "checksum"),
    "unknown compressor": (chunk(B, compressor=3), "compressor"),
    "too many records": (chunk(B, count=3), "count"),
    "far too many records": (chunk(B, count=2**32 - 1), "count"),
    "too few records": (chunk(B, count=1), "surplus"),
    "no records, but bytes": (chunk(B, count=0), "surplus"),
    "a length beyond the end": (
        chunk(B, payload=struct.pack("<I", 9) + b"cc" + bytes(8), count=2),
        "length",
    ),
    "a size beyond the end": (chunk(B, size=2**32 - 1), "size"),
    "a size that is too small": (chunk(B, size=3), "checksum"),
    "Fluid's order": (fluid_chunk(B), "fluid"),
    "snappy without its identifier": (chunk(B, compressor=1), "compressed"),
    "a snappy block that is cut": (
        chunk(B, compressor=1, payload=SNAPPY + b"\0\x50\0\0abcd"),
        "compressed",
    ),
    "a snappy block that lies": (
        chunk(B, compressor=1, payload=SNAPPY + b"\0\x0a\0\0abcd\xff\xff\xff\xff\x0f\0"),
        "compressed",
    ),
    "a snappy block that is too long": (
        chunk(B, compressor=1, payload=SNAPPY + b"\1\x05\0\1abcd" + bytes(65537)),
        "compressed",
    ),
    "a snappy block of unknown kind": (
        chunk(B, compressor=1, payload=SNAPPY + b"\2\0\0\0"),
        "compressed",
    ),
    "gzip that is none": (chunk(B, compressor=2), "compressed"),
    "gzip that is cut": (
        chunk(B, compressor=2, payload=gzip.compress(framed(B))[:-5]),
        "compressed",
    ),
}


@pytest.mark.parametrize("name", MIDDLES)
def test_damage_between_two_chunks(name: str) -> None:
    middle, reason = MIDDLES[name]
    data = FIRST + middle + LAST
    assert read(data, "skip")[0] == A + C
    if reason is None:
        return
    records, damages = read(data, "stop")
    assert records == A
    (damage,) = damages
    assert (damage.reason, damage.chunk, damage.offset) == (reason, 1, len(FIRST))
    reader = recordio.Reader(io.BytesIO(data))
    assert [reader.read(), reader.read()] == A
    for _ in range(2):
        with pytest.raises(recordio.DamagedFile) as caught:
            reader.read()
        assert caught.value.damage == damage
    with pytest.raises(recordio.DamagedFile):
        list(reader)


@pytest.mark.parametrize("cut", range(1, len(LAST)))
def test_a_file_that_is_cut(cut: int) -> None:
    data = FIRST + LAST[:cut]
    for errors in ("stop", "skip"):
        records, damages = read(data, errors)
        assert records == A
        assert [damage.offset for damage in damages] == [len(FIRST)]
    with pytest.raises(recordio.DamagedFile):
        read(data, "raise")


def test_files_after_a_damaged_one() -> None:
    def files() -> list[io.BytesIO]:
        return [io.BytesIO(FIRST), io.BytesIO(b"junk"), io.BytesIO(LAST)]

    assert list(recordio.Reader(files(), errors="skip")) == A + C
    assert list(recordio.Reader(files(), errors="stop")) == A


def test_a_chunk_without_records_is_no_damage() -> None:
    assert read(FIRST + chunk([]) + LAST, "raise") == (A + C, [])


def test_a_damage_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(V4[:-1] + b"y")
    with pytest.raises(recordio.DamagedFile) as caught:
        list(recordio.Reader(path))
    assert str(caught.value) == (
        f"{path}: chunk 1 at byte 39: the checksum is d42007a6, the header states a59c27a3".replace(
            "d42007a6", f"{zlib.crc32(V4[59:-1] + b'y'):08x}"
        )
    )
    assert "第 1 块（偏移 39）" in caught.value.damage.text("zh")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.damage, str(again)) == (caught.value.damage, str(caught.value))


def test_every_reason_has_both_languages() -> None:
    for en, zh in REASONS.values():
        assert en.isascii()
        assert any("\u4e00" <= letter <= "\u9fff" for letter in zh)


def test_each_damage_is_reported_once() -> None:
    told: list[Damage] = []
    data = b"junk" + FIRST + b"more junk" + LAST
    reader = recordio.Reader(io.BytesIO(data), errors="skip", on_damage=told.append)
    assert list(reader) == A + C
    assert [(damage.offset, damage.end) for damage in told] == [
        (0, 4),
        (4 + len(FIRST), 4 + len(FIRST) + 9),
    ]
    assert told == reader.damages


def test_a_wrong_size_that_hides_sound_chunks() -> None:
    """The size of the first chunk says that it reaches over the next two."""
    hidden = chunk(B) + LAST
    liar = chunk(A, size=len(framed(A)) + len(hidden))
    assert read(liar + hidden + FIRST, "skip")[0] == B + C + A
    assert [damage.reason for damage in read(liar + hidden + FIRST, "skip")[1]] == ["checksum"]


def test_recordio_inside_a_damaged_record_is_not_taken_for_chunks() -> None:
    nested = chunk([V4, V5, FIRST])
    damaged = nested[:30] + bytes([nested[30] ^ 1]) + nested[31:]
    assert read(damaged + LAST, "skip")[0] == C
    assert read(nested + LAST, "skip")[0] == [V4, V5, FIRST, *C]


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_of_a_damaged_file_miss_nothing_and_share_nothing(parts: int) -> None:
    hidden = chunk(B) + LAST
    liar = chunk(A, size=len(framed(A)) + len(hidden))
    data = b"junk" + FIRST + liar + hidden + chunk(B, checksum=1) + b"!" + chunk(A)
    found = [
        list(recordio.Reader(io.BytesIO(data), part=(n, parts), errors="skip"))
        for n in range(parts)
    ]
    assert list(chain(*found)) == read(data, "skip")[0] == A + B + C + A


def sample(chance: random.Random) -> tuple[list[list[bytes]], list[bytes]]:
    """Records by chunk, and the bytes of each chunk."""
    chunks = [
        [chance.randbytes(chance.randrange(60)) for _ in range(chance.randrange(1, 6))]
        for _ in range(6)
    ]
    files = []
    for records in chunks:
        file = io.BytesIO()
        name = chance.choice(["none", "snappy", "gzip"])
        with recordio.Writer(file, compressor=name, max_chunk_bytes=2**20) as writer:
            writer.write_all(records)
        files.append(file.getvalue())
    return chunks, files


#: A hundred always, a thousand in `make test-all`.
SEEDS = [range(100), pytest.param(range(100, 1000), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_flips(seeds: range) -> None:
    """One bit is another: the damaged chunk is missing, every other record is there."""
    for seed in seeds:
        chance = random.Random(seed)
        chunks, files = sample(chance)
        data = bytearray(b"".join(files))
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        ends = [sum(map(len, files[: n + 1])) for n in range(len(files))]
        hit = next(n for n, end in enumerate(ends) if place < end)
        want = [record for n, records in enumerate(chunks) if n != hit for record in records]
        records, damages = read(bytes(data), "skip")
        assert records == want, seed
        assert damages, seed
        before = list(chain(*chunks[:hit]))
        assert read(bytes(data), "stop")[0] == before, seed


@pytest.mark.parametrize("seeds", SEEDS)
def test_random_cuts(seeds: range) -> None:
    """A stretch is missing: every chunk whose bytes are all left is read."""
    for seed in seeds:
        chance = random.Random(seed)
        chunks, files = sample(chance)
        data = b"".join(files)
        start = chance.randrange(len(data))
        stop = min(len(data), start + chance.randrange(1, 200))
        data = data[:start] + data[stop:]
        want = [
            record for n, records in enumerate(chunks) if files[n] in data for record in records
        ]
        assert read(data, "skip")[0] == want, seed


@pytest.mark.parametrize("source", ["file", "stream"])
@pytest.mark.parametrize(
    "data",
    [
        chunk([], size=2**32 - 1, count=2**32 - 1),
        chunk([], payload=bytes(100), size=2**32 - 1, count=5),
        chunk([], payload=struct.pack("<I", 2**32 - 1) + bytes(100), count=1),
        chunk([], compressor=1, payload=SNAPPY + b"\0\x0a\0\0abcd\xff\xff\xff\xff\x0f\0", count=1),
        chunk([], payload=bytes(50), count=2**32 - 1),
    ],
    ids=["empty", "size", "length", "snappy", "count"],
)
def test_an_absurd_size_takes_no_memory(data: bytes, source: str) -> None:
    file = io.BytesIO(data)
    if source == "stream":
        file.seekable = lambda: False  # type: ignore[method-assign]
    tracemalloc.start()
    try:
        with pytest.raises(recordio.DamagedFile):
            list(recordio.Reader(file))
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compressor", [1, 2])
def test_a_bomb_is_stopped_at_the_limit(compressor: int) -> None:
    file = io.BytesIO()
    name = {1: "snappy", 2: "gzip"}[compressor]
    with recordio.Writer(file, compressor=name, max_chunk_bytes=2**30) as writer:
        writer.write(bytes(20 * 2**20))
    file.seek(0)
    with pytest.raises(recordio.DamagedFile, match="more than the limit of 4194304"):
        list(recordio.Reader(file, limit=4 * 2**20))
    file.seek(0)
    assert [len(record) for record in recordio.Reader(file)] == [20 * 2**20]


def test_verify_and_repair(tmp_path: Path) -> None:
    path, fixed = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"junk" + FIRST + chunk(B, checksum=1) + V5 + LAST[:-1])
    report = recordio.verify(str(path))
    assert (report.chunks, report.records, report.sound) == (3, 5, False)
    assert [damage.reason for damage in report.damages] == ["magic", "checksum", "size"]
    assert (report.smallest, report.largest, report.raw_bytes) == (1, 9, 22)
    assert report.compressors == {"none", "snappy"}
    assert recordio.repair(path, fixed).damages == report.damages
    assert fixed.read_bytes() == FIRST + V5
    assert recordio.verify(str(fixed)).sound
    recordio.repair(path, path)
    assert path.read_bytes() == FIRST + V5


def test_a_file_is_replaced_when_nobody_reads_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows replaces no file that is open."""
    path = tmp_path / "a"
    path.write_bytes(b"junk" + FIRST)
    commit = SafeFile.commit

    def alone(file: SafeFile) -> None:
        assert path.resolve() not in {link.resolve() for link in Path("/proc/self/fd").iterdir()}
        commit(file)

    monkeypatch.setattr(SafeFile, "commit", alone)
    recordio.repair(path, path)
    assert path.read_bytes() == FIRST


def test_repair_turns_fluid_into_ours(tmp_path: Path) -> None:
    path, ours = tmp_path / "a", tmp_path / "b"
    path.write_bytes(fluid_chunk(HELLO) + fluid_chunk([b"x"]))
    assert recordio.repair(path, ours, layout="fluid").sound
    assert ours.read_bytes() == V4
