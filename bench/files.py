"""Submitting files, against a local copy in the same run: many small ones, a big one, nothing new.

The server is a fresh private one on the same machine and disk. Each figure stands beside what the
machine itself takes for the same bytes, so that a busy machine slows both. CPU is of client and
server together.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.home import COMMAND, fresh_home, server_facts
from bench.row import Row
from paddlecloud import Client
from paddlecloud.net import _sockets as sockets

KIB, MIB, GIB = 1024, 1024**2, 1024**3
ROUNDS = 3


def files() -> Iterator[Row]:
    """All of it; the sparse file and the 100,000 take a minute each."""
    yield from small_files()
    yield from nothing_new()
    yield from one_big()
    yield from sparse()
    yield from very_many()


def small_files() -> Iterator[Row]:
    """5,000 files of 4 KiB, submitted for the first time."""
    ratios, took = [], 0.0
    for _ in range(ROUNDS):
        with fresh_home() as home, _directory() as place:
            _fill(place / "in", 5_000, 4 * KIB)
            client = _ready(home)
            copy = _timed(partial(_copy_loop, place / "in", place / "out"))
            took = _timed(partial(_submit, client, place / "in"))
            ratios.append(took / copy)
    ratio = statistics.median(ratios)
    yield Row(
        what="5,000 x 4 KiB, first submit / a copy loop",
        measured=f"{ratio:.1f} x ({took:.2f} s)",
        goal="3 x",
        reached=ratio <= 3,
    )


def nothing_new() -> Iterator[Row]:
    """10,000 files a second time, by the command; then one of them changed."""
    with fresh_home() as home, _directory() as place:
        _fill(place / "many", 10_000, KIB)
        (place / "none").mkdir()
        client = _ready(home)
        _submit(client, place / "many")
        time.sleep(2.5)  # files as fresh as this are hashed again, and rightly so
        _command(place / "many")
        empty = statistics.median(_timed(lambda: _command(place / "none")) for _ in range(9))
        again = statistics.median(_timed(lambda: _command(place / "many")) for _ in range(9))
        yield Row(
            what="10,000 unchanged files, over an empty submit",
            measured=f"{again - empty:.3f} s",
            goal="0.15 s",
            reached=again - empty <= 0.15,
        )
        (place / "many" / "d7" / "f7").write_bytes(os.urandom(KIB))
        with _counted() as sent:
            _submit(client, place / "many")
        yield Row(
            what="one changed file of 10,000: bytes sent",
            measured=f"{sum(sent) / 1e6:.2f} MB",
            goal="1 MB",
            reached=sum(sent) < 1e6,
        )


def one_big() -> Iterator[Row]:
    """A file of 1 GiB against cp, and against one that is on the disk when it ends, as ours is."""
    ratios, safe, used = [], [], 0.0
    for _ in range(ROUNDS):
        with fresh_home() as home, _directory() as place:
            (place / "in").mkdir()
            _random_file(place / "in" / "model", GIB)
            client = _ready(home)
            pid = int(str(server_facts(home)["pid"]))
            _touch_memory(place)
            command = ["cp", place / "in" / "model", place / "copy"]
            copy = _timed(partial(subprocess.run, command, check=True))
            synced = copy + _timed(partial(_sync, place / "copy"))
            _touch_memory(place)
            before = _cpu(pid) + time.process_time()
            took = _timed(partial(_submit, client, place / "in"))
            used = _cpu(pid) + time.process_time() - before
            ratios.append(took / copy)
            safe.append(took / synced)
    ratio, to_disk = statistics.median(ratios), statistics.median(safe)
    yield Row(
        what="1 GiB, first submit / cp (/ cp and fsync; CPU of both)",
        measured=f"{ratio:.1f} x ({to_disk:.1f}; {used:.1f} s)",
        goal="3 x",
        reached=ratio <= 3,
    )


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sparse() -> Iterator[Row]:
    """The memory of both sides while 20 GiB go from one to the other."""
    with fresh_home() as home, _directory() as place:
        (place / "in").mkdir()
        with (place / "in" / "sparse").open("wb") as file:
            file.truncate(20 * GIB)
        _ready(home)
        pid = int(str(server_facts(home)["pid"]))
        script = (
            "import sys, resource; from paddlecloud import Client;"
            "c = Client(); c.kill_job(c.submit_job(files=sys.argv[1], start_cmd='sleep 99').id);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
        )
        command = [sys.executable, "-c", script, str(place / "in")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        peaks = {"client": int(done.stdout), "server": _peak(pid)}
    for side, peak in peaks.items():
        yield Row(
            what=f"peak memory of the {side}, 20 GiB sparse file",
            measured=f"{peak} MB",
            goal="150 MB",
            reached=peak < 150,
        )


def very_many() -> Iterator[Row]:
    """100,000 files of 1 KiB."""
    with fresh_home() as home, _directory() as place:
        _fill(place / "in", 100_000, KIB)
        client = _ready(home)
        took = _timed(lambda: _submit(client, place / "in"))
    yield Row(
        what="100,000 x 1 KiB, first submit",
        measured=f"{took:.1f} s",
        goal="60 s",
        reached=took < 60,
    )


@contextmanager
def _directory() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="paddlecloud-bench-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Bytes that this process sends to a server."""
    sent: list[int] = []
    real = sockets.SocketStream.send

    def send(wire: sockets.SocketStream, data: bytes) -> bool:
        sent.append(len(data))
        return real(wire, data)

    sockets.SocketStream.send = send  # type: ignore[method-assign,assignment]
    try:
        yield sent
    finally:
        sockets.SocketStream.send = real  # type: ignore[method-assign]


def _ready(home: Path) -> Client:
    """A client whose server runs and has done its first job."""
    client = Client()
    with _directory() as nothing:
        client.wait(client.submit_job(files=str(nothing), start_cmd="true").id, timeout=60)
    return client


def _submit(client: Client, directory: Path) -> None:
    job = client.submit_job(files=str(directory), start_cmd="true")
    client.kill_job(job.id)


def _command(directory: Path) -> None:
    command = [COMMAND, "submit_job", f"--files={directory}", "--start_cmd=true"]
    subprocess.run(command, capture_output=True, check=True, timeout=60)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _fill(directory: Path, count: int, size: int) -> None:
    for number in range(100):
        (directory / f"d{number}").mkdir(parents=True)
    for number in range(count):
        (directory / f"d{number % 100}" / f"f{number}").write_bytes(os.urandom(size))


def _random_file(path: Path, size: int) -> None:
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            file.write(number.to_bytes(8, "big") + block[8:])


def _touch_memory(place: Path) -> None:
    """Use the memory that files will lie in once: a virtual machine gives back what is free after
    seconds, the next use of a page is ten times as slow as any later one, and the first user
    would pay for all."""
    _random_file(place / "ballast", 2 * GIB)
    (place / "ballast").unlink()


def _copy_loop(source: Path, target: Path) -> None:
    for above, _, names in os.walk(source):
        place = target / Path(above).relative_to(source)
        place.mkdir(parents=True)
        for name in names:
            (place / name).write_bytes((Path(above) / name).read_bytes())


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0
