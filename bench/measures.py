"""The measures themselves. Each is a generator of rows and cleans up after itself.

The machine is shared and noisy: a command is timed many times and the median kept, next to a bare
interpreter timed in the same loop.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.files_out import files_out
from bench.gangs import gangs
from bench.home import COMMAND, cli, fresh_home, processes_of, pss_megabytes, server_facts
from bench.logs import logs
from bench.recordio import recordio
from bench.replicas import replicas
from bench.row import Row
from bench.scheduler import scheduler
from bench.ticks import ticks
from paddlecloud import Client


def cli_start() -> Iterator[Row]:
    """Commands against a running server, as multiples of a bare interpreter."""
    with fresh_home(), _job_directory() as directory:
        job = cli("submit_job", f"--files={directory}", "--start_cmd=true").split()[1]
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "--help": [COMMAND, "--help"],
            "query_job": [COMMAND, "query_job", f"--job_id={job}"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(25):
            for name, command in commands.items():
                times[name].append(_timed(command))
        bare = statistics.median(times["bare"])
        yield Row(what="python -c pass", measured=_ms(bare), goal="-", reached=True)
        for name in ("--help", "query_job"):
            took = statistics.median(times[name])
            measured = f"{_ms(took)} = {took / bare:.1f} x"
            reached = took <= 4 * bare
            yield Row(what=f"paddlecloud {name}", measured=measured, goal="4 x", reached=reached)


def server_start_and_memory() -> Iterator[Row]:
    starts = []
    for _ in range(3):
        with fresh_home() as home:
            began = time.perf_counter()
            cli("server", "start")
            starts.append(time.perf_counter() - began)
            cli("submit_job", "--files=" + tempfile.mkdtemp(), "--start_cmd=true")
            time.sleep(3)
            memory = pss_megabytes(processes_of(home))
    took = statistics.median(starts)
    yield Row(
        what="server start to ready, by the CLI",
        measured=_ms(took),
        goal="600 ms",
        reached=took <= 0.6,
    )
    yield Row(
        what="idle memory, server + agent (Pss)",
        measured=f"{memory:.1f} MB",
        goal="70 MB",
        reached=memory <= 70,
    )


def submit_latency() -> Iterator[Row]:
    with fresh_home(), _job_directory() as directory:
        client = Client()
        client.wait(client.submit_job(files=directory, start_cmd="true").id, timeout=30)
        fifo = Path(directory).with_name("bench-fifo-" + os.urandom(4).hex())
        os.mkfifo(fifo)
        try:
            acts = [_first_act(client, directory, fifo) for _ in range(40)]
        finally:
            fifo.unlink()
        act = statistics.median(acts)
        yield Row(
            what="submit to the job's first act, Client, median",
            measured=_ms(act),
            goal="20 ms",
            reached=act <= 0.020,
        )
        command = [
            COMMAND,
            "submit_job",
            f"--files={directory}",
            "--start_cmd=echo hi",
            "--watch_mode=1",
        ]
        took = statistics.median(_timed(command) for _ in range(15))
        yield Row(
            what="submit to finished, log in hand, CLI, median",
            measured=_ms(took),
            goal="150 ms",
            reached=took <= 0.150,
        )


def trivial_jobs() -> Iterator[Row]:
    with fresh_home(), _job_directory() as directory:
        client = Client()
        warm = client.submit_job(files=directory, start_cmd="true")
        client.wait(warm.id, timeout=30)
        rates = []
        for _ in range(3):
            began = time.perf_counter()
            ids = _submit_many(client, 200, snapshot=warm.snapshot, start_cmd="true")
            _wait_for_all(client)
            rates.append(200 / (time.perf_counter() - began))
            ended = client.list_jobs(limit=200)
            assert {job.id for job in ended} == set(ids)
            assert {job.state for job in ended} == {"success"}
        rate = statistics.median(rates)
        yield Row(
            what="200 jobs of `true`, 8 threads, submit to last finished",
            measured=f"{rate:.0f} a second",
            goal="80 a second",
            reached=rate >= 80,
        )


def job_lists() -> Iterator[Row]:
    """2,000 jobs: one page through the API, all of them through the command line."""
    with fresh_home(), _job_directory() as directory:
        client = Client()
        blocker = client.submit_job(files=directory, start_cmd="sleep 3600", cpu=_cpus())
        _submit_many(client, 1999, snapshot=blocker.snapshot, start_cmd="true")
        page = statistics.median(_call_time(client.list_jobs) for _ in range(30))
        yield Row(
            what="2,000 jobs: a page of 50, Client",
            measured=_ms(page),
            goal="20 ms",
            reached=page <= 0.020,
        )
        rows = cli("list_jobs", "--all").splitlines()
        assert len(rows) == 2000
        took = statistics.median(_timed([COMMAND, "list_jobs", "--all"]) for _ in range(10))
        yield Row(
            what="2,000 jobs: all rows, CLI",
            measured=_ms(took),
            goal="200 ms",
            reached=took <= 0.200,
        )


def queue(count: int = 100_000) -> Iterator[Row]:
    """Submits while so many jobs wait already: whether accepting slows down with the queue."""
    with fresh_home(), _job_directory() as directory:
        client = Client()
        blocker = client.submit_job(files=directory, start_cmd="sleep 3600", cpu=_cpus())
        _submit_many(client, count - 10_000, snapshot=blocker.snapshot, start_cmd="true")
        began = time.perf_counter()
        _submit_many(client, 10_000, snapshot=blocker.snapshot, start_cmd="true")
        rate = 10_000 / (time.perf_counter() - began)
        yield Row(
            what=f"the last 10,000 of {count:,} submits of waiting jobs, 8 threads",
            measured=f"{rate:.0f} a second",
            goal="500 a second",
            reached=rate >= 500,
        )


def waiting_jobs() -> Iterator[Row]:
    with fresh_home() as home, _job_directory() as directory:
        client = Client()
        blocker = client.submit_job(files=directory, start_cmd="sleep 3600", cpu=_cpus())
        while client.query_job(blocker.id).state != "running":
            time.sleep(0.01)
        server = [int(str(server_facts(home)["pid"]))]
        first = _submit_many(client, 500, snapshot=blocker.snapshot, start_cmd="true")
        before = pss_megabytes(server)
        began = time.perf_counter()
        ids = _submit_many(client, 10_000, snapshot=blocker.snapshot, start_cmd="true")
        rate = len(ids) / (time.perf_counter() - began)
        assert len(set(ids + first)) == 10_500
        yield Row(
            what="10,000 submits of waiting jobs, 8 threads",
            measured=f"{rate:.0f} a second",
            goal="500 a second",
            reached=rate >= 500,
        )
        time.sleep(1)
        pages = [_call_time(lambda: client.list_jobs(limit=50)) for _ in range(30)]
        page = statistics.median(pages)
        yield Row(
            what="a page of 50 with 10,500 waiting, Client",
            measured=_ms(page),
            goal="20 ms",
            reached=page <= 0.020,
        )
        grown = pss_megabytes(server) - before
        yield Row(
            what="growth of the server's memory over 10,000 submits",
            measured=f"{grown:+.1f} MB",
            goal="8 MB",
            reached=grown <= 8,
        )


ALL: tuple[Callable[[], Iterator[Row]], ...] = (
    cli_start,
    server_start_and_memory,
    submit_latency,
    trivial_jobs,
    job_lists,
    waiting_jobs,
    scheduler,
    ticks,
    replicas,
    gangs,
    logs,
    files_out,
    recordio,
)


def _first_act(client: Client, directory: str, fifo: Path) -> float:
    seen: list[float] = []

    def read() -> None:
        with fifo.open("rb") as file:
            file.read()
        seen.append(time.perf_counter())

    reader = threading.Thread(target=read)
    reader.start()
    began = time.perf_counter()
    job = client.submit_job(files=directory, start_cmd=f"echo > {fifo}")
    reader.join()
    client.wait(job.id, timeout=30)
    return seen[0] - began


def _wait_for_all(client: Client) -> None:
    """Until no job is left that has not ended; asks for one job at a time, the newest."""
    while left := client.list_jobs(state="submit,schedule,queue,running", limit=1):
        client.wait(left[0].id, timeout=120)


def _submit_many(client: Client, count: int, **parameters: Any) -> list[str]:
    """`count` submits by 8 threads; their ids."""
    ids: list[str] = []
    left = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            ids.append(client.submit_job(**parameters).id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ids


def _job_directory() -> tempfile.TemporaryDirectory[str]:
    directory = tempfile.TemporaryDirectory(prefix="paddlecloud-bench-job-")
    (Path(directory.name) / "run.sh").write_text("echo hi\n")
    return directory


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _timed(command: list[str]) -> float:
    return _call_time(lambda: subprocess.run(command, check=True, capture_output=True, timeout=120))


def _call_time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
