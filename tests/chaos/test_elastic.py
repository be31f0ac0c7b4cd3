"""An elastic job through 200 changes at seeded random moments: trainers, agent and server killed,
and other jobs that take its room and give it back.

Whatever is killed when: every chunk is counted once in every pass, none is lost, the job is never
restarted, and the next chunk is finished within seconds of each change. `PADDLECLOUD_CHAOS_SEED`
chooses other moments.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paddlecloud import Client
from paddlecloud.client.sdk import Job
from paddlecloud.data import recordio
from paddlecloud.errors import PaddleCloudError
from tests.integration.faults.home import Home, until
from tests.integration.gangs.gang_home import GangHome, a_gang_home

pytestmark = [pytest.mark.chaos(seconds=120), pytest.mark.timeout(600)]

SEED = int(os.environ.get("PADDLECLOUD_CHAOS_SEED", "20200517"))
CHANGES = int(os.environ.get("PADDLECLOUD_CHAOS_CHANGES", "200"))
CHUNKS = 40
RECORDS = 5
LONGEST_STALL = 5.0
KINDS = ("trainer", "trainer", "trainer", "room", "room", "agent", "server", "agent and server")

TRAIN = """
import os, sys, time
from paddlecloud.data import task_reader

ledger, hurry, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
worker = os.environ["PADDLECLOUD_WORKER"]


def note(*words):
    line = " ".join(map(str, (*words, worker, time.time()))) + "\\n"
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


reader = task_reader("train.recordio", passes=passes, lease=3, failure_max=100000)
finish = reader._queue.finish


def counted(task):
    good = finish(task)
    note("counted" if good else "late", task.of_pass, task.number)
    return good


reader._queue.finish = counted
for task, records in reader.chunks():
    read = 0
    for record in records:
        read += 1
        if not os.path.exists(hurry):
            time.sleep(0.03)
    note("read", task.of_pass, task.number, read)
"""


class Course:
    """The job, what its trainers wrote down, and what is done to them."""

    def __init__(self, gang_home: GangHome, top: Path, passes: int) -> None:
        self.home: Home = gang_home.home
        self.client: Client = gang_home.client
        self.ledger, self.hurry = top / "ledger", top / "hurry"
        self.passes = passes
        self.rng = random.Random(SEED)
        self.fillers: list[Job] = []
        self.done: Counter[str] = Counter()
        self.stalls: list[tuple[float, str]] = []
        folder = top / "job"
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN)
        with recordio.Writer(str(folder / "train.recordio"), max_chunk_bytes=RECORDS * 100) as out:
            for number in range(CHUNKS * RECORDS):
                out.write(b"%099d" % number)
        assert len(recordio.Index.of(folder / "train.recordio").chunks) == CHUNKS
        self.empty = top / "empty"
        self.empty.mkdir()
        self.job = self.client.submit_job(
            files=str(folder),
            start_cmd=f"{shlex.quote(sys.executable)} train.py {self.ledger} {self.hurry} {passes}",
            job_type="cpu",
            cpu=1,
            min_instance=1,
            max_instance=4,
        )

    def lines(self, word: str) -> list[list[str]]:
        text = self.ledger.read_text() if self.ledger.exists() else ""
        return [line.split() for line in text.splitlines() if line.startswith(word)]

    def change(self) -> None:
        kind = self.rng.choice(KINDS)
        before = len(self.lines("counted"))
        began = time.monotonic()
        getattr(self, "do_" + kind.replace(" ", "_"))()
        self.done[kind] += 1
        while len(self.lines("counted")) <= before:
            assert time.monotonic() - began < 60, f"nothing moves after {kind}: {self.look()}"
            self.wake()
            time.sleep(0.02)
        self.stalls.append((time.monotonic() - began, kind))
        time.sleep(self.rng.uniform(0, 0.3))

    def do_trainer(self) -> None:
        for pid in self.rng.sample(found := sorted(self.trainers()), len(found))[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def do_agent(self) -> None:
        self.home.kill("agent", *(("zygote",) if self.rng.random() < 0.5 else ()))

    def do_server(self) -> None:
        self.home.kill("server")

    def do_agent_and_server(self) -> None:
        self.home.kill("agent", "server")
        self.do_trainer()

    def do_room(self) -> None:
        seconds = self.rng.uniform(0.2, 2.0)
        cpu = self.rng.choice([1, 2, 3])
        with suppress(PaddleCloudError):
            filler = self.client.submit_job(
                files=str(self.empty), start_cmd=f"sleep {seconds:.2f}", cpu=cpu, job_type="cpu"
            )
            self.fillers.append(filler)

    def trainers(self) -> Iterator[int]:
        mark = f"PADDLECLOUD_REPLICA={self.job.id}".encode()
        for pid in self.home.of_kind("job"):
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes():
                    yield pid

    def wake(self) -> None:
        """Whoever asks starts a server that is gone."""
        if not self.home.of_kind("server"):
            with suppress(PaddleCloudError):
                self.client.query_job(self.job.id)

    def look(self) -> object:
        view = self.client.query_job(self.job.id).view
        return view["job_status"], view["error_msg"], [w for w in view["workers"]][-6:]


@pytest.fixture
def course(tmp_path: Path) -> Iterator[Course]:
    settings = "[local_pool]\ncpu = 4\n\n[scheduling]\n"
    with a_gang_home(tmp_path, settings) as gang_home:
        yield Course(gang_home, tmp_path, passes=max(2, CHANGES // 2))


def test_no_chunk_is_lost_or_counted_twice(course: Course) -> None:
    until(lambda: course.lines("counted"), "the first chunk")
    for _ in range(CHANGES):
        if course.client.query_job(course.job.id).state != "running":
            break
        course.change()
    course.hurry.touch()
    job = course.client.wait(course.job.id, timeout=240)
    sys.stdout.write(f"seed {SEED}: {dict(course.done)}\n")
    sys.stdout.write(f"longest stalls: {sorted(course.stalls, reverse=True)[:8]}\n")
    sys.stdout.write(f"{len(job.view['workers'])} trainers in all\n")
    assert job.state == "success", (job.view["error_msg"], job.view["failure"])
    assert job.view["attempts"] == 1
    check_books(course, job)
    check_ledger(course)
    for filler in course.fillers:
        assert course.client.wait(filler.id, timeout=60).state == "success"
    assert sum(course.done.values()) == CHANGES, "the job was over too soon: this was no test"
    assert max(course.stalls)[0] < LONGEST_STALL, sorted(course.stalls, reverse=True)[:5]


def check_books(course: Course, job: Job) -> None:
    """The server has counted each chunk once per pass."""
    (tasks,) = job.view["tasks"]
    assert tasks["finished_in_all"] == CHUNKS * course.passes
    assert tasks["given_up_in_all"] == 0
    path = course.home.path / "server" / "paddlecloud.db"
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = database.execute("select number, finished from tasks order by number").fetchall()
    finally:
        database.close()
    assert rows == [(number, course.passes) for number in range(CHUNKS)]


def check_ledger(course: Course) -> None:
    """What trainers were told agrees, and somebody really read each chunk in each pass."""
    counted = Counter((line[1], line[2]) for line in course.lines("counted"))
    assert not [pair for pair, times in counted.items() if times > 1]
    whole = {(line[1], line[2]) for line in course.lines("read") if line[3] == str(RECORDS)}
    want = {(str(turn), str(chunk)) for turn in range(course.passes) for chunk in range(CHUNKS)}
    assert whole == want
