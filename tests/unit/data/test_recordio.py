"""Both faces of RecordIO on sound files: known bytes, chunks, parts, ranges, any kind of file."""

from __future__ import annotations

import io
import os
import random
import threading
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlecloud.data import recordio
from paddlecloud.data.recordio import record_writer as writing
from paddlecloud.data.recordio._codec import SLAB
from tests.unit.data.vectors import HELLO, V0, V1, V2, V3, V4, V5, VECTORS, chunk, fluid_chunk

RECORDS = st.lists(st.binary(max_size=300), max_size=60)


def written(records: list[bytes], **more: object) -> bytes:
    file = io.BytesIO()
    with recordio.Writer(file, **more) as writer:  # type: ignore[arg-type]
        writer.write_all(records)
    return file.getvalue()


def read(data: bytes, **more: object) -> list[bytes]:
    return list(recordio.Reader(io.BytesIO(data), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VECTORS)
def test_a_known_file_is_read(name: str) -> None:
    data, want = VECTORS[name]
    assert read(data) == want


@pytest.mark.parametrize(
    ("records", "want"), [([], V0), (HELLO, V1), ([b""], V2), ([b"1", b"2", b""], V3)]
)
def test_the_same_bytes_are_written(records: list[bytes], want: bytes) -> None:
    assert written(records) == want


@pytest.mark.parametrize(("compressor", "want"), [("none", V4), ("snappy", V5)])
def test_flush_ends_a_chunk(compressor: str, want: bytes) -> None:
    file = io.BytesIO()
    with recordio.Writer(file, compressor=compressor) as writer:
        writer.write_all(HELLO)
        writer.flush()
        writer.flush()
        writer.write(b"x")
    assert file.getvalue() == want
    assert (writer.records, writer.chunks) == (3, 2)


@settings(deadline=None)
@given(
    records=RECORDS,
    limit=st.integers(0, 2000),
    compressor=st.sampled_from(["none", "snappy", "gzip"]),
)
def test_what_is_written_is_read(records: list[bytes], limit: int, compressor: str) -> None:
    data = written(records, max_chunk_bytes=limit, compressor=compressor)
    assert read(data) == records
    index = recordio.Index.of(io.BytesIO(data))
    assert len(index) == len(records)
    assert [chunk.count for chunk in index.chunks] == _counts(records, limit)


def _counts(records: list[bytes], limit: int) -> list[int]:
    """The rule of 2017: a record that does not fit ends the chunk before it."""
    counts, raw, count = [], 0, 0
    for record in records:
        if raw + len(record) > limit and count:
            counts.append(count)
            raw = count = 0
        raw, count = raw + len(record), count + 1
    return [*counts, count] if count else counts


def test_the_chunks_of_2017() -> None:
    """Seen with the original library: 33 records of 1 MiB, an empty one, 40 MB, one byte."""
    file = io.BytesIO()
    with recordio.Writer(file, max_chunk_bytes=32 * 2**20) as writer:
        writer.write_all([bytes(2**20)] * 33 + [b"", bytes(40_000_000), b"x"])
    counts = [chunk.count for chunk in recordio.Index.of(file).chunks]
    assert counts == []  # a file object is read from where it stands: its end
    file.seek(0)
    assert [chunk.count for chunk in recordio.Index.of(file).chunks] == [32, 2, 1, 1]


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
@pytest.mark.parametrize("size", [1, 100, 1024, 65_532, 65_536, 200_000])
def test_chunks_of_many_slabs(compressor: str, size: int) -> None:
    chance = random.Random(size)
    count = 4 * SLAB // size if size > 50 else 5000
    records = [chance.randbytes(size // 2) + bytes(size - size // 2) for _ in range(count)]
    records[1] += b"longer"
    for some in (records, records[2:]):  # with different lengths, and with equal ones
        assert read(written(some, compressor=compressor, max_chunk_bytes=2**24)) == some


def test_snappy_in_slabs_gives_the_bytes_of_one_call() -> None:
    cramjam = pytest.importorskip("cramjam")
    records = [random.Random(1).randbytes(700) + bytes(900) for _ in range(4 * SLAB // 1600)]
    data = written(records, max_chunk_bytes=2**24)
    assert data[20:] == bytes(cramjam.snappy.compress(_framed(records)))


@pytest.mark.parametrize("most", [0, 1, 30, 64, 1000])
def test_chunks_end_where_the_rule_says(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the slabs, and whatever was refused in between."""
    monkeypatch.setattr(writing, "SLAB", 64)
    monkeypatch.setattr(writing, "_MANY", 3)
    chance = random.Random(most)
    records = [bytes(chance.choice([0, 0, 1, 7, 30, 64, 65, 200])) for _ in range(500)]
    file = io.BytesIO()
    with recordio.Writer(file, max_chunk_bytes=most, compressor="none") as writer:
        for number, record in enumerate(records):
            with pytest.raises(TypeError):
                writer.write(3)  # type: ignore[arg-type]
            forms: list[bytes | bytearray | str] = [record, bytearray(record), record.decode()]
            writer.write(chance.choice(forms))
            assert writer.records == number + 1
    file.seek(0)
    counts, has = [0], 0
    for record in records:
        if counts[-1] and has + len(record) > most:
            counts, has = [*counts, 0], 0
        counts[-1] += 1
        has += len(record)
    assert [chunk.count for chunk in recordio.Index.of(file).chunks] == counts
    assert read(file.getvalue()) == records


def _framed(records: list[bytes]) -> bytes:
    return chunk(records)[20:]


def test_the_face_of_2017(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    writer = recordio.writer(path)
    assert Path(path).read_bytes() == b""
    for record in ("中文ab", b"", b"\0\0"):
        writer.write(record)
    writer.close()
    writer.close()
    reader = recordio.reader(path)
    assert reader.read() == "中文ab".encode()
    assert reader.read() == b""
    assert reader.read() == b"\0\0"
    assert [reader.read(), reader.read()] == [None, None]
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"")


def test_what_aborted_the_process_in_2017_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        recordio.writer(str(tmp_path / "missing" / "a"))
    with pytest.raises(FileNotFoundError, match="no file matches"):
        recordio.reader(str(tmp_path / "nothing*"))
    writer = recordio.writer(str(tmp_path / "a"))
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="bytes or str"):
            writer.write(wrong)  # type: ignore[arg-type]
    writer.close()


def test_a_list_of_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b-1", "b-0", "a", "empty"):
        Path(name).write_bytes(b"" if name == "empty" else written([name.encode()]))
    Path("c,d[1]").write_bytes(V1)
    assert list(recordio.reader("b-*,nothing*,empty,a")) == [b"b-0", b"b-1", b"a"]
    assert list(recordio.Reader(Path("c,d[1]"))) == HELLO
    assert list(recordio.Reader(["a", Path("b-0"), io.BytesIO(V1)])) == [b"a", b"b-0", *HELLO]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(RuntimeError, match="half way"), recordio.Writer(path) as writer:
        writer.write(b"x")
        writer.flush()
        raise RuntimeError("half way")
    assert list(tmp_path.iterdir()) == []
    with recordio.Writer(path) as writer:
        writer.write(b"old")
    with recordio.Writer(path) as writer:
        writer.write(b"new")
        assert list(recordio.Reader(path)) == [b"old"]
    assert list(recordio.Reader(path)) == [b"new"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 19, 20, 21, 30])
def test_appending_goes_on_after_the_last_whole_chunk(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(V4 + chunk([b"torn" * 10])[:cut])
    assert recordio.recover(path) == cut
    with recordio.Writer(path, append=True) as writer:
        writer.write(b"more")
    assert list(recordio.Reader(path)) == [*HELLO, b"x", b"more"]


def test_appending_begins_a_file_and_leaves_others_alone(tmp_path: Path) -> None:
    with recordio.Writer(tmp_path / "new", append=True) as writer:
        writer.write(b"x")
    assert list(recordio.Reader(tmp_path / "new")) == [b"x"]
    text = tmp_path / "notes.txt"
    text.write_text("this is no RecordIO file at all\n")
    with pytest.raises(ValueError, match="nothing was cut off"):
        recordio.Writer(text, append=True)
    assert text.read_text().startswith("this is")


@settings(deadline=None)
@given(records=RECORDS, limit=st.integers(0, 600), parts=st.integers(1, 9), data=st.data())
def test_parts_and_ranges_cover_each_record_once(
    records: list[bytes], limit: int, parts: int, data: st.DataObject
) -> None:
    file = written(records, max_chunk_bytes=limit)
    files = [io.BytesIO(file), io.BytesIO(b""), io.BytesIO(file)]

    def fresh() -> list[io.BytesIO]:
        for one in files:
            one.seek(0)
        return files

    whole = records + records
    found = [list(recordio.Reader(fresh(), part=(n, parts))) for n in range(parts)]
    assert list(chain(*found)) == whole
    start = data.draw(st.integers(0, len(whole) + 2))
    stop = data.draw(st.integers(0, len(whole) + 2) | st.none())
    assert list(recordio.Reader(fresh(), start=start, stop=stop)) == whole[start:stop]


def test_an_index_locates_records(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(V4)
    index = recordio.Index.of([path, path])
    assert [index.locate(n) for n in (-1, 0, 1, 2, 3, 5, 6)] == [
        (-1, -1), (0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (-1, -1),
    ]  # fmt: skip
    assert [(c.path, c.offset, c.count, c.size, c.first) for c in index.chunks[:2]] == [
        (str(path), 0, 2, 39, 0),
        (str(path), 39, 1, 25, 2),
    ]
    assert list(index.chunks[3].records()) == [b"x"]
    assert (len(index.only(1)), index.only(1).locate(0)) == (1, (0, 0))
    assert sum(index.parts(3), ()) == index.chunks
    assert [sum(c.count for c in part) for part in index.parts(2)] == [3, 3]


def test_a_chunk_that_changed_under_its_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(V4)
    first, second = recordio.Index.of(path).chunks
    path.write_bytes(V4[:-1] + b"y")
    assert list(first.records()) == HELLO
    with pytest.raises(recordio.DamagedFile, match="checksum"):
        list(second.records())
    path.write_bytes(V8_SHORT)
    with pytest.raises(recordio.DamagedFile, match="cannot hold"):
        list(first.records())


V8_SHORT = chunk([b"other"])


def test_the_order_of_fluid_is_read_when_asked_for() -> None:
    data = fluid_chunk(HELLO) + fluid_chunk([b"x"])
    assert read(data, layout="fluid") == [*HELLO, b"x"]
    with pytest.raises(recordio.DamagedFile, match="Paddle Fluid") as caught:
        read(data)
    assert caught.value.damage.reason == "fluid"
    with pytest.raises(recordio.DamagedFile, match="2017"):
        read(V4, layout="fluid")
    with pytest.raises(ValueError, match="it is one of 2017, fluid"):
        recordio.Index.of(io.BytesIO(data), layout="Fluid")


def test_a_pipe_is_read_forward() -> None:
    records = [bytes([n]) * n for n in range(200)]
    data = written(records, max_chunk_bytes=500)
    for errors in ("raise", "stop", "skip"):
        receiver, sender = os.pipe()
        thread = threading.Thread(target=_send, args=(sender, data))
        thread.start()
        with open(receiver, "rb", buffering=0) as pipe:  # noqa: PTH123 - a descriptor has no path
            assert list(recordio.Reader(pipe, errors=errors)) == records
        thread.join()


def _send(sender: int, data: bytes) -> None:
    with open(sender, "wb") as file:
        file.write(data)


def test_a_stream_has_no_parts() -> None:
    with pytest.raises(ValueError, match="no parts"):
        list(recordio.Reader(_Stream(V1), part=(0, 2)))  # type: ignore[arg-type]


class _Stream:
    """The least that a file can be: it gives a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 7))


def test_the_least_file_is_enough() -> None:
    assert list(recordio.Reader(_Stream(V5))) == [*HELLO, b"x"]  # type: ignore[arg-type]


def test_an_address_goes_to_the_opener() -> None:
    asked: list[str] = []

    def opener(address: str) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(V1)

    assert list(recordio.Reader("s3://b/a?x=1,2,bos://b/c", opener=opener)) == HELLO * 2
    assert asked == ["s3://b/a?x=1,2", "bos://b/c"]
    with pytest.raises(ValueError, match="needs an opener"):
        recordio.Reader("s3://b/a")


@pytest.mark.parametrize(
    "wrong",
    [{"errors": "ignore"}, {"layout": "2018"}, {"start": -1}, {"part": (2, 2)}, {"part": (0, 0)}],
)
def test_a_wrong_choice_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        read(V1, **wrong)


@pytest.mark.parametrize("wrong", [{"compressor": "lz4"}, {"max_chunk_bytes": -1}])
def test_a_wrong_choice_of_a_writer_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        written([], **wrong)
