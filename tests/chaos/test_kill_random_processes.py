"""kill -9 of server, agent, zygote and clients at seeded random moments during 300 submissions.

Whatever is killed when: an acknowledged job exists once, ran once, ends as it must and has every
byte of its log and its outputs; a job whose submit was not acknowledged exists at most once; and
nothing is left behind. `PADDLECLOUD_CHAOS_SEED` chooses other moments.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddlecloud import Client
from paddlecloud.client.sdk import Job
from tests.integration.faults.home import Home, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

SEED = int(os.environ.get("PADDLECLOUD_CHAOS_SEED", "20200517"))
SUBMISSIONS = 300
SUBMITTERS = 4
PAUSES = (0.05, 1.2)
"""Seconds between two blows: between the shortest and the longest."""
MOST_BLOWS = 120
"""On a machine so slow that a server hardly starts between two of them, there is an end to it."""
BLOWS = (
    ("server",),
    ("agent",),
    ("client",),
    ("client",),
    ("zygote",),
    ("server", "agent"),
    ("server", "client"),
    ("agent", "zygote"),
    ("server", "agent", "zygote"),
)
SETTLED = 120.0

SCRIPT = """\
case $1 in
  lines) for n in 1 2 3 4 5; do echo "$2 line $n"; done ;;
  fails) echo "$2 fails" >&2; (exit 3) ;;
  loud) yes "$2 is loud" | head -c 200000 ;;
  files) mkdir "$OUTPUT_PATH/sub"; echo "$2" > "$OUTPUT_PATH/名 字.txt"
         yes "$2 in a file" | head -c 300000 > "$OUTPUT_PATH/sub/big.bin"; echo "$2 wrote" ;;
  sleeps) sleep 0.2; echo "$2 slept" ;;
  strays) setsid sleep 600 & echo "$2 strays" ;;
  brings) sha256sum < data.bin ;;
esac
code=$?
echo "$2" >> "$3"
exit $code
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a job of this kind must leave behind, by its marker."""

    log: Callable[[str], bytes]
    exit_code: int = 0
    outputs: Callable[[str], Mapping[str, bytes]] = lambda marker: {}


KINDS = {
    "lines": Kind(log=lambda m: b"".join(b"%b line %d\n" % (m.encode(), n) for n in range(1, 6))),
    "fails": Kind(log=lambda m: f"{m} fails\n".encode(), exit_code=3),
    "loud": Kind(log=lambda m: repeated(f"{m} is loud\n", 200_000)),
    "files": Kind(
        log=lambda m: f"{m} wrote\n".encode(),
        outputs=lambda m: {
            "名 字.txt": f"{m}\n".encode(),
            "sub/big.bin": repeated(f"{m} in a file\n", 300_000),
        },
    ),
    "sleeps": Kind(log=lambda m: f"{m} slept\n".encode()),
    "strays": Kind(log=lambda m: f"{m} strays\n".encode()),
    "brings": Kind(log=lambda m: f"{hashlib.sha256(content_of(m)).hexdigest()}  -\n".encode()),
}


def repeated(line: str, size: int) -> bytes:
    data = line.encode()
    return (data * (size // len(data) + 1))[:size]


def content_of(marker: str) -> bytes:
    """A file that no other job has, so that it must be uploaded."""
    return random.Random(marker).randbytes(150_000)


@dataclass(frozen=True, kw_only=True)
class Submission:
    marker: str
    kind: str
    job_id: str
    """Empty when the client said no id before it ended."""
    code: int
    told: str

    @property
    def command(self) -> str:
        return f"{self.kind} {self.marker}"


class Crowd:
    """Clients that submit, each a process; any of them may be killed."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self.ledger = folder / "ledger"
        self._lock = threading.Lock()
        self._clients: list[subprocess.Popen[str]] = []
        (folder / "shared").mkdir()
        (folder / "shared" / "run.sh").write_text(SCRIPT)

    def submit(self, number: int, kind: str) -> Submission:
        marker = f"m{number:03}"
        source = self._source(marker, kind)
        start = f"sh run.sh {kind} {marker} {self.ledger}"
        client = self._home.start(
            "submit_job", f"--files={source}", f"--start_cmd={start}", "--cpu=0.1"
        )
        with self._lock:
            self._clients.append(client)
        out, told = client.communicate()
        with self._lock:
            self._clients.remove(client)
        said = re.fullmatch(r"job_id: (job-[0-9a-f]{32})\n", out)
        return Submission(
            marker=marker,
            kind=kind,
            job_id=said[1] if said else "",
            code=client.returncode,
            told=told,
        )

    def strike(self, rng: random.Random) -> bool:
        with self._lock:
            if not self._clients:
                return False
            rng.choice(self._clients).kill()
            return True

    def _source(self, marker: str, kind: str) -> Path:
        if kind != "brings":
            return self._folder / "shared"
        source = self._folder / marker
        source.mkdir()
        (source / "run.sh").write_text(SCRIPT)
        (source / "data.bin").write_bytes(content_of(marker))
        return source


class Killer(threading.Thread):
    def __init__(self, home: Home, crowd: Crowd, rng: random.Random) -> None:
        super().__init__(name="killer")
        self._home, self._crowd, self._rng = home, crowd, rng
        self._over = threading.Event()
        self.hits: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(MOST_BLOWS):
            if self._over.wait(self._rng.uniform(*PAUSES)):
                return
            blow = self._rng.choice(BLOWS)
            if "client" in blow and self._crowd.strike(self._rng):
                self.hits["client"] += 1
            for kind in self._home.kill(*(set(blow) - {"client"})).values():
                self.hits[kind] += 1

    def finish(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def crowd(home: Home, tmp_path: Path) -> Crowd:
    return Crowd(home, tmp_path)


def test_nothing_is_lost_and_nothing_runs_twice(home: Home, crowd: Crowd, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    kinds = [rng.choice(sorted(KINDS)) for _ in range(SUBMISSIONS)]
    killer = Killer(home, crowd, rng)
    say(f"PADDLECLOUD_CHAOS_SEED={SEED}")
    began = time.monotonic()
    killer.start()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        tried = list(pool.map(crowd.submit, range(SUBMISSIONS), kinds))
    killer.finish()
    spent = time.monotonic() - began
    with Client() as client:
        jobs = ended_jobs(client, tried)
        acknowledged = [each for each in tried if each.job_id]
        say(f"{len(acknowledged)} acknowledged in {spent:.0f} s, killed: {dict(killer.hits)}")
        check_existence(tried, jobs)
        check_clients(tried)
        for each in tried:
            if each.marker in jobs:
                check_end(client, each, jobs[each.marker], tmp_path)
    ran = Counter(crowd.ledger.read_text().split())
    assert ran == Counter(list(jobs)), "a command ran twice, or not at all"
    assert killer.hits["server"] >= 5, "this was no test"
    assert killer.hits["agent"] >= 5, "this was no test"
    check_nothing_is_left(home)


def say(text: str) -> None:
    """Shown when the test fails, and with -s."""
    sys.stdout.write(f"{text}\n")


def ended_jobs(client: Client, tried: list[Submission]) -> dict[str, Job]:
    """Every job there is, by the marker in its command, when all of them have ended."""
    deadline = time.monotonic() + SETTLED
    found: dict[str, Job] = {}
    for row in client.list_jobs(limit=None):
        job = client.wait(row.id, max(1.0, deadline - time.monotonic()))
        marker = job.start_cmd.split()[3]
        assert marker not in found, f"{marker} made two jobs: {job.id} and {found[marker].id}"
        found[marker] = job
    assert found.keys() <= {each.marker for each in tried}
    return found


def check_existence(tried: list[Submission], jobs: Mapping[str, Job]) -> None:
    for each in tried:
        if each.job_id:
            assert each.marker in jobs, f"{each} was acknowledged and is gone"
            assert jobs[each.marker].id == each.job_id
    known = [job.id for job in jobs.values()]
    assert len(set(known)) == len(known)


def check_clients(tried: list[Submission]) -> None:
    """A client that was left alone either submits or says in one sentence why not."""
    for each in tried:
        if each.code == 0:
            assert each.job_id
        elif each.code != -9:
            assert each.code == 1, each
            assert "Traceback" not in each.told, each
    gave_up = [each for each in tried if each.code == 1]
    assert len(gave_up) <= SUBMISSIONS // 20, [each.told for each in gave_up]


def check_end(client: Client, each: Submission, job: Job, folder: Path) -> None:
    kind = KINDS[each.kind]
    want = "success" if kind.exit_code == 0 else "failed"
    assert (job.state, job.exit_code) == (want, kind.exit_code), (each, job.view)
    assert job.attempts == 1
    assert b"".join(client.logs(job.id)) == kind.log(each.marker), each
    client.get_files(job.id, download_dir=str(folder / f"got-{each.marker}"))
    place = folder / f"got-{each.marker}" / job.id / "rank-0"
    got = {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
    outputs = kind.outputs(each.marker)
    assert got.keys() == outputs.keys(), each
    for path, data in outputs.items():
        assert got[path].read_bytes() == data, (each, path)


def check_nothing_is_left(home: Home) -> None:
    until(lambda: not home.of_kind("supervisor", "job"), "the end of every process of a job")
    replicas = home.path / "agent" / "replicas"
    if home.of_kind("agent"):
        until(lambda: not any(replicas.iterdir()), "the agent to forget what is over")
    assert home.run("server", "stop").returncode == 0
    assert home.of_kind("server") == []
    home.clear()
    assert home.processes() == {}
    database = sqlite3.connect(home.path / "server" / "paddlecloud.db")
    try:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert database.execute("pragma foreign_key_check").fetchall() == []
        keys = database.execute("select count(*), count(distinct job_number) from idempotency")
        count, distinct = keys.fetchone()
        assert count == distinct
    finally:
        database.close()
