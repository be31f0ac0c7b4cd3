"""RecordIO against the machine and against its peers, by CPU time, best of several rounds.

Every row is taken in the same run as the machine's raw read. Peers that are not installed are named
in one line each: RECORDIO_LIBRARY is the path of `librecordio.so` of the wheel recordio 0.1.7;
`tfrecord` and `webdataset` are packages that may be in another environment, whose Python is
RECORDIO_PEERS. Half of each record is random and half is zero.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.row import Row
from paddlecloud.data import recordio as ours
from paddlecloud.data.recordio._header import HEADER_BYTES

MIB = 2**20
TOTAL = 128 * MIB
ROUNDS = 9
_SIZES = {"1 KiB": 1024, "100 KiB": 100 * 1024}
_GOALS = {("1 KiB", "write"): 0.7, ("1 KiB", "read"): 1.0, ("100 KiB", "read"): 1.6}


def recordio() -> Iterator[Row]:
    """Reading and writing, the peers, and the time to a first record."""
    with tempfile.TemporaryDirectory(prefix="paddlecloud-bench-data-") as name:
        directory = Path(name)
        speeds: dict[tuple[str, str], float] = {}
        for label, size in _SIZES.items():
            yield from _own(directory, label, size, speeds)
        yield from _original(directory)
        yield from _other_peers(directory, speeds)
        yield from _first_record(directory)
        yield _memory(directory)


def _own(
    directory: Path, label: str, size: int, speeds: dict[tuple[str, str], float]
) -> Iterator[Row]:
    records = _records(size)
    path = directory / f"{size}"
    for chunk in (MIB, 32 * MIB):
        write = _speed(lambda: _write(path, records, chunk), new=path)  # noqa: B023 - called at once
        raw = _speed(lambda: _read_raw(path), path.stat().st_size)
        read = _speed(lambda: _count(ours.Reader(path)))
        note = f"{label} records, snappy, chunks of {chunk // MIB} MiB"
        yield _raw_row(note, raw)
        for what, speed in (("write", write), ("read", read)):
            goal = _GOALS.get((label, what)) if chunk == MIB else None
            yield _speed_row(f"{what} {note}", speed, goal)
            speeds.setdefault((label, what), speed)


def _original(directory: Path) -> Iterator[Row]:
    library = os.environ.get("RECORDIO_LIBRARY")
    if not library:
        yield _missing("the library of 2017", "RECORDIO_LIBRARY is not set")
        return
    peer = ctypes.CDLL(library)
    records = _records(1024)
    path = directory / "original"
    ours_path = directory / "ours"
    write = _ratio(
        lambda: _write(ours_path, records, MIB),
        lambda: _write_original(peer, path, records),
        new=(ours_path, path),
    )
    read = _ratio(lambda: _count(ours.Reader(ours_path)), lambda: _read_original(peer, path))
    yield _ratio_row("write", "the library of 2017", *write, 6)
    yield _ratio_row("read", "the library of 2017", *read, 12)


def _other_peers(directory: Path, speeds: dict[tuple[str, str], float]) -> Iterator[Row]:
    python = os.environ.get("RECORDIO_PEERS", sys.executable)
    for name, goal in (("tfrecord", 7), ("webdataset", 20)):
        done = subprocess.run(
            [python, "-c", _PEERS[name], str(directory / name)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            yield _missing(name, (done.stderr.strip().splitlines() or ["it failed"])[-1][:60])
        else:
            speed = float(done.stdout.split()[-1])
            yield _ratio_row("read", f"{name} (pip)", speeds["1 KiB", "read"], speed, goal)


def _first_record(directory: Path) -> Iterator[Row]:
    """A sparse file of 10 GiB with true chunks at its beginning, and headers all along."""
    path = directory / "large"
    with ours.Writer(path) as writer:
        writer.write_all(_records(1024)[:4096])
    first = ours.Index.of(path).chunks[0]
    head = path.read_bytes()[: first.size]
    count = 10 * 2**30 // first.size
    with path.open("r+b") as file:
        for number in range(count):
            file.seek(number * first.size)
            file.write(head if number < 4 else head[:HEADER_BYTES])
        file.truncate(count * first.size)
    os.sync()
    size = f"{path.stat().st_size / 2**30:.0f} GiB"
    took = min(_first_in_new_process(path) for _ in range(ROUNDS))
    yield Row(
        what=f"open {size} to the first record, new process, by the clock",
        measured=f"{took * 1000:.2f} ms",
        goal="5 ms",
        reached=took <= 0.005,
    )
    took = min(_cpu(lambda: _first_of(path)) for _ in range(ROUNDS))
    yield Row(
        what=f"open {size} to the first record again, CPU",
        measured=f"{took * 1000:.2f} ms",
        goal="5 ms",
        reached=took <= 0.005,
    )
    took = min(_cpu(lambda: ours.Index.of(path)) for _ in range(3))
    yield Row(
        what=f"index of its {count:,} chunks, on demand, CPU",
        measured=f"{took * 1000:.0f} ms",
        goal="-",
        reached=True,
    )


def _first_in_new_process(path: Path) -> float:
    """What a script waits for between its imports and its first record: nothing is warm but the
    page cache, and the package of snappy is loaded in that time."""
    program = (
        "import sys, time\n"
        "from paddlecloud.data import recordio\n"
        "began = time.perf_counter()\n"
        "recordio.Reader(sys.argv[1]).read()\n"
        "print(time.perf_counter() - began)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


def _memory(directory: Path) -> Row:
    """Peak memory above that of the imports, while 128 MiB in chunks of 1 MiB are read."""
    path = directory / "memory"
    _write(path, _records(1024), MIB)
    program = (
        "import sys\n"
        "from paddlecloud.data import recordio\n"
        "import cramjam\n"
        "def peak():\n"
        "    return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "before = peak()\n"
        "for record in recordio.Reader(sys.argv[1]): pass\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    grown = int(done.stdout) / 1024
    return Row(
        what="memory of a reader, chunks of 1 MiB",
        measured=f"{grown:.1f} MiB",
        goal="4 MiB",
        reached=grown <= 4,
    )


def _records(size: int) -> list[bytes]:
    chance = random.Random(size)
    some = [chance.randbytes(size // 2) + bytes(size // 2) for _ in range(max(64, 4 * MIB // size))]
    return [some[n % len(some)] for n in range(TOTAL // size)]


def _write(path: Path, records: list[bytes], chunk: int) -> None:
    with ours.Writer(path, max_chunk_bytes=chunk, in_place=True) as writer:
        write = writer.write
        for record in records:
            write(record)


def _count(reader: ours.Reader) -> int:
    count = 0
    with reader:
        for _ in reader:
            count += 1
    return count


def _read_raw(path: Path) -> None:
    buffer = bytearray(MIB)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _write_original(peer: ctypes.CDLL, path: Path, records: list[bytes]) -> None:
    """The calls that the Python module of the wheel makes for each record, here and below."""
    writer = peer.create_recordio_writer(str(path).encode())

    def write(record: bytes | str) -> None:
        data = record.encode() if isinstance(record, str) else record
        peer.recordio_write(writer, ctypes.c_char_p(data), len(record))

    for record in records:
        write(record)
    peer.release_recordio_writer(writer)


def _read_original(peer: ctypes.CDLL, path: Path) -> None:
    reader = peer.create_recordio_reader(str(path).encode())

    def read() -> bytes | None:
        pointer = ctypes.c_char_p()
        place = ctypes.pointer(pointer)
        size = peer.recordio_read(reader, place)
        if size < 0:
            return None
        record = bytes(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_char))[:size])
        peer.mem_free(place.contents)
        return record

    while read() is not None:
        pass
    peer.release_recordio_reader(reader)


def _speed(
    work: Callable[[], object],
    total: int = TOTAL,
    rounds: int = ROUNDS,
    new: Path | None = None,
) -> float:
    """GB a second of CPU, of the best round: other work on the machine only adds to a time."""
    best = min(_cpu(work, new) for _ in range(rounds))
    return total / best / 1e9


def _ratio(
    own: Callable[[], object],
    theirs: Callable[[], object],
    new: tuple[Path | None, Path | None] = (None, None),
) -> tuple[float, float]:
    """Speeds of both, in turn, so that other work on the machine meets both alike."""
    pairs = [(_cpu(own, new[0]), _cpu(theirs, new[1])) for _ in range(ROUNDS)]
    first, second = (min(times) for times in zip(*pairs, strict=True))
    return TOTAL / first / 1e9, TOTAL / second / 1e9


def _cpu(work: Callable[[], object], new: Path | None = None) -> float:
    """What is written is a new file: freeing the blocks of the last one is not counted."""
    if new is not None:
        new.unlink(missing_ok=True)
    began = time.process_time()
    work()
    return time.process_time() - began


def _first_of(path: Path) -> bytes | None:
    with ours.Reader(path) as reader:
        return reader.read()


def _speed_row(what: str, speed: float, goal: float | None) -> Row:
    shown = f"{goal:.1f} GB/s" if goal else "-"
    reached = goal is None or speed >= goal
    return Row(what=what, measured=f"{speed:.2f} GB/s", goal=shown, reached=reached)


def _raw_row(note: str, speed: float) -> Row:
    return Row(what=f"raw read, {note}", measured=f"{speed:.2f} GB/s", goal="-", reached=True)


def _ratio_row(what: str, peer: str, own: float, theirs: float, goal: int) -> Row:
    ratio = own / theirs
    measured = f"{theirs:.3f} = 1 / {ratio:.1f}"
    name = f"{what} 1 KiB: {peer}, GB/s and of ours"
    return Row(what=name, measured=measured, goal=f"1 / {goal}", reached=ratio >= goal)


def _missing(peer: str, why: str) -> Row:
    return Row(what=f"{peer}: not here, {why}", measured="-", goal="-", reached=True)


_COMMON = """
import os, sys, time
path = sys.argv[1]
size, count = 1024, 8192
def best(work):
    times = []
    for _ in range(3):
        began = time.process_time()
        assert work() == count
        times.append(time.process_time() - began)
    print(size * count / min(times) / 1e9)
"""
#: Each writes 8 MiB of records of 1 KiB as its documents show, and reads them three times.
_PEERS = {
    "tfrecord": _COMMON
    + """
import tfrecord
from tfrecord.reader import tfrecord_loader
writer = tfrecord.TFRecordWriter(path)
for n in range(count):
    writer.write({"r": (os.urandom(size // 2) + bytes(size // 2), "byte")})
writer.close()
best(lambda: sum(1 for _ in tfrecord_loader(path, None, {"r": "byte"})))
""",
    "webdataset": _COMMON
    + """
import webdataset
with webdataset.TarWriter(path + ".tar") as sink:
    for n in range(count):
        sink.write({"__key__": "%06d" % n, "bin": os.urandom(size // 2) + bytes(size // 2)})
best(lambda: sum(1 for _ in webdataset.WebDataset(path + ".tar", shardshuffle=False)))
""",
}
