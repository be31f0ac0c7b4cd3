"""Logs: the cost and the delay of followers, and reading a log of a gigabyte.

Latency is from the moment at which the job printed a line to the moment at which a follower has it:
through the job's pipe, the supervisor, the agent and the server. CPU is that of the server's
process, by the system's own count, because the machine is shared. The followers are sockets in a
process of their own, `python -m bench.logs`, which reads one JSON object (where, how many) and
prints one (the latencies in seconds). People follow from machines of their own: so where there are
two cores, the followers have one for themselves and everything else is on the others; the same is
measured with all of them on all cores, for comparison. What is limited by a disk or a core is the
best of a few tries.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.home import fresh_home, server_facts
from bench.row import Row
from paddlecloud import Client
from paddlecloud.testing import SignedCaller

SECONDS = 6.0
LINES_A_SECOND = 10
SPEAKS = (
    "import time, sys\n"
    "end = time.time() + float(sys.argv[1])\n"
    "while time.time() < end:\n"
    "    print(time.time(), flush=True)\n"
    "    time.sleep(float(sys.argv[2]))\n"
)
GIGABYTE = 10**9


def logs() -> Iterator[Row]:
    with _a_core_less() as theirs, _a_server() as (home, client, directory):
        yield from _followers(home, client, directory, theirs)
    with _a_server() as (home, client, directory):
        late, _, _, deaf = _followed(home, client, directory, os.sched_getaffinity(0))
        what = "the same, everything on all cores: median"
        yield Row(what=what, measured=deaf or f"{late:.2f} ms", goal="", reached=not deaf)
        yield from _submits_beside_followers(home, client, directory)
        yield from _gigabyte(home, client, directory)


@contextmanager
def _a_server() -> Iterator[tuple[Path, Client, str]]:
    with fresh_home() as home, Client() as client, tempfile.TemporaryDirectory() as directory:
        Path(directory, "speaks.py").write_text(SPEAKS)
        client.list_jobs(limit=1)
        yield home, client, directory


@contextmanager
def _a_core_less() -> Iterator[set[int]]:
    """Keep what is started here from one of the cores, if there are two: that core."""
    cores = os.sched_getaffinity(0)
    theirs = {max(cores)}
    os.sched_setaffinity(0, cores - theirs or cores)
    try:
        yield theirs
    finally:
        os.sched_setaffinity(0, cores)


def _followers(home: Path, client: Client, directory: str, theirs: set[int]) -> Iterator[Row]:
    late, used, alone, deaf = _followed(home, client, directory, theirs)
    yield Row(
        what=f"100 followers, {LINES_A_SECOND} lines/s each: median",
        measured=deaf or f"{late:.2f} ms",
        goal="10 ms",
        reached=late <= 10 and not deaf,
    )
    yield Row(
        what="the same: CPU of the server (without followers)",
        measured=f"{used:.1f} % ({alone:.1f} %)",
        goal="5 %",
        reached=used <= 5 and not deaf,
    )


def _followed(
    home: Path, client: Client, directory: str, theirs: set[int]
) -> tuple[float, float, float, str]:
    """How late lines come to 100 followers on these cores, in milliseconds; what of a core the
    server takes then, in percent, and before; a sentence when too few lines came at all."""
    job = _speaking(client, directory, SECONDS + 6, 1 / LINES_A_SECOND)
    alone = _server_cpu(home, SECONDS / 2)
    with _listening(home, job, 100, theirs) as seen:
        used = _server_cpu(home, SECONDS)
    client.kill_job(job)
    client.wait(job, timeout=60)
    came, due = len(seen["late"]), int(100 * SECONDS * LINES_A_SECOND)
    deaf = "" if came >= due * 0.8 else f"only {came} of {due} lines came"
    return statistics.median(seen["late"] or [0.0]) * 1000, used, alone, deaf


def _submits_beside_followers(home: Path, client: Client, directory: str) -> Iterator[Row]:
    job = _speaking(client, directory, 40.0, 1.0)
    snapshot = client.query_job(job).snapshot
    # A longer queue makes a submit slower too: before and after, and the mean of both.
    first = _submits(client, snapshot)
    with _listening(home, job, 500):
        beside = _submits(client, snapshot)
    alone = (first + _submits(client, snapshot)) / 2
    client.kill_job(job)
    yield Row(
        what="a submit beside 500 followers, median (alone)",
        measured=f"{beside * 1000:.1f} ms ({alone * 1000:.1f} ms)",
        goal="1.25 x",
        reached=beside <= 1.25 * alone + 0.001,
    )


def _gigabyte(home: Path, client: Client, directory: str) -> Iterator[Row]:
    job = client.submit_job(files=directory, start_cmd="echo begins", job_type="cpu")
    ended = client.wait(job.id, timeout=60)
    assert ended.state == "success", ended.error_msg
    (log,) = (home / "store").glob(f"users/*/output/{job.id}/log/trainer-0.log")
    _fill(log)
    before = _peak_memory(home)
    tail = min(_timed(lambda: b"".join(client.logs(job.id, tail=100))) for _ in range(5))
    measured, reached = f"{tail * 1000:.0f} ms", tail <= 0.05
    yield Row(what="1 GB log: 100 last lines", measured=measured, goal="50 ms", reached=reached)
    for pattern in ("step 7777777 ", r"loss 0\.0{6} acc", "error|Traceback"):
        took = min(_timed(partial(_searched, client, job.id, pattern)) for _ in range(2))
        rate = log.stat().st_size / took / 1e9
        yield Row(
            what=f"1 GB log: grep {pattern!r}",
            measured=f"{rate:.2f} GB/s",
            goal="0.5 GB/s",
            reached=rate >= 0.5,
        )
    took = _timed(lambda: sum(len(piece) for piece in client.logs(job.id)))
    grown = _peak_memory(home) - before
    yield Row(
        what="1 GB log: all of it; growth of the server's peak memory",
        measured=f"{took:.1f} s, {grown:.0f} MB",
        goal="16 MB",
        reached=grown <= 16,
    )


def _searched(client: Client, job_id: str, pattern: str) -> int:
    return sum(len(piece) for piece in client.logs(job_id, grep=pattern))


def _speaking(client: Client, directory: str, seconds: float, pause: float) -> str:
    words = f"{sys.executable} speaks.py {seconds} {pause}"
    job = client.submit_job(files=directory, start_cmd=words, job_type="cpu")
    for seen in client.changes(job.id, timeout=30):
        if seen.state == "running":
            break
    return job.id


@contextmanager
def _listening(
    home: Path, job_id: str, count: int, cores: set[int] | None = None
) -> Iterator[dict[str, Any]]:
    """So many followers until the end of the block; what they saw is in the dictionary then."""
    facts = server_facts(home)
    credentials = json.loads((home / "server" / "credentials.json").read_text())
    task = {"url": facts["url"], "job_id": job_id, "count": count}
    task["cores"] = sorted(cores or os.sched_getaffinity(0))
    task |= {"ak": credentials["ak"], "sk": credentials["sk"]}
    seen: dict[str, Any] = {}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.logs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(task).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    try:
        yield seen
    finally:
        out, _ = process.communicate(b"end\n", timeout=30)
        seen |= json.loads(out)


def _submits(client: Client, snapshot: str | None) -> float:
    """The median; these jobs wait for the one that is followed, so that none of them runs."""
    took = []
    for _ in range(60):
        submit = partial(client.submit_job, snapshot=snapshot, job_type="cpu", cpu=os.cpu_count())
        took.append(_timed(partial(submit, start_cmd="true")))
        time.sleep(0.02)
    return statistics.median(took)


def _fill(log: Path) -> None:
    line = b"step %07d loss 0.%06d acc 0.9%05d lr 0.001 throughput 1234.5 images/s\n"
    block = b"".join(line % (n, n * 7919 % 1000000, n) for n in range(100_000))
    with log.open("wb") as file:
        while file.tell() < GIGABYTE:
            file.write(block)


def _server_cpu(home: Path, seconds: float) -> float:
    """Percent of a core that the server takes in the next seconds."""
    pid = server_facts(home)["pid"]
    before = _cpu_seconds(pid)
    time.sleep(seconds)
    return (_cpu_seconds(pid) - before) / seconds * 100


def _cpu_seconds(pid: object) -> float:
    """Of all threads, by what they really ran: `stat` counts the ticks that hit them, and a server
    that wakes up ten times a second is hit by all or by none."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def _peak_memory(home: Path) -> float:
    """Megabytes."""
    for line in Path(f"/proc/{server_facts(home)['pid']}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("a process without a peak of its memory")


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def listen() -> None:
    """In a process of its own: follow, until a line comes on stdin; then tell what was seen."""
    task = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, task["cores"])
    # Bare, so that little of what is measured is the time that the followers take themselves.
    waiting = select.epoll()
    followers = [_follower(task) for _ in range(task["count"])]
    for file in (*followers, sys.stdin):
        waiting.register(file.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    end = sys.stdin.fileno()
    heard: list[tuple[float, bytes]] = []
    while True:
        for file, _ in waiting.poll():
            if file == end:
                print(json.dumps({"late": [late for piece in heard for late in _lateness(*piece)]}))
                return
            heard.append((time.time(), os.read(file, 65536)))


def _follower(task: dict[str, Any]) -> socket.socket:
    where = urlsplit(task["url"])
    assert where.hostname is not None and where.port is not None
    caller = SignedCaller(host=where.hostname, port=where.port, ak=task["ak"], sk=task["sk"])
    path, query = f"/api/v1/jobs/{task['job_id']}/logs", "follow=1&tail=0"
    headers = caller.headers("GET", path, query, b"")
    lines = [f"GET {path}?{query} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    connection = socket.create_connection((where.hostname, where.port), timeout=30)
    connection.sendall("\r\n".join(lines).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 200"), head
    return connection


def _lateness(now: float, piece: bytes) -> list[float]:
    """Of each line in a chunk: it holds the time at which it was printed."""
    found = []
    for line in piece.split(b"\n"):
        if line.count(b".") == 1 and line[:2].isdigit():
            found.append(now - float(line))
    return found


if __name__ == "__main__":
    listen()
