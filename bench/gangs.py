"""A gang of 16 on one machine: how soon all of it runs, how soon its end is known, and how soon the
rest is stopped when one of it fails."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from bench.home import fresh_home
from bench.row import Row
from paddlecloud import Client

RANKS = 16
ROUNDS = 7


def gangs() -> Iterator[Row]:
    with fresh_home() as home, tempfile.TemporaryDirectory(prefix="paddlecloud-bench-gang-") as top:
        directory = Path(top) / "job"
        directory.mkdir()
        (directory / "run.sh").write_text("true\n")
        client = Client()
        client.wait(client.submit_job(files=directory, start_cmd="true").id, timeout=30)
        rounds = [_round(client, home, directory) for _ in range(ROUNDS)]
        stopped = statistics.median(_failing(client, home, directory) for _ in range(ROUNDS))
    begun = statistics.median(begin for begin, _ in rounds)
    told = statistics.median(end for _, end in rounds)
    yield Row(
        what="gang of 16 `true`: submit to all running, median",
        measured=f"{begun * 1000:.0f} ms",
        goal="400 ms",
        reached=begun <= 0.4,
    )
    yield Row(
        what="end of its last replica to `success` visible, median",
        measured=f"{told * 1000:.0f} ms",
        goal="100 ms",
        reached=told <= 0.1,
    )
    yield Row(
        what="one replica fails: all ended, `failed` visible, median",
        measured=f"{stopped * 1000:.0f} ms",
        goal="1 s",
        reached=stopped <= 1,
    )


def _round(client: Client, home: Path, directory: Path) -> tuple[float, float]:
    """Seconds from the submit to the last beginning, and from the last end to the good news."""
    asked = time.time()
    begun, ended, seen = _run(client, home, directory, "true", "success")
    return max(begun) - asked, seen - max(ended)


def _failing(client: Client, home: Path, directory: Path) -> float:
    """Seconds from the failure of one, when all run, to the end of all."""
    words = f"[ $PADDLE_TRAINER_ID = {RANKS - 1} ] || exec sleep 600; sleep 0.5; exit 3"
    _, ended, seen = _run(client, home, directory, words, "failed")
    return seen - min(ended)


def _run(
    client: Client, home: Path, directory: Path, words: str, state: str
) -> tuple[list[float], list[float], float]:
    """When each replica began, when each ended, and when its person saw the job's end."""
    job = client.submit_job(
        files=directory,
        start_cmd=words,
        instance_count=RANKS,
        distribute_job_type="NCCL2",
    )
    done = client.wait(job.id, timeout=60)
    seen = time.time()
    assert done.state == state, done.error_msg
    begun, ended = _told(home, job.id)
    assert len(begun) == len(ended) == RANKS
    return begun, ended, seen


def _told(home: Path, job_id: str) -> tuple[list[float], list[float]]:
    """When each replica began and ended, as its supervisor wrote it down."""
    database = sqlite3.connect(f"file:{home}/server/paddlecloud.db?mode=ro", uri=True)
    with contextlib.closing(database):
        rows = database.execute(
            "select started_at, exit_record from replicas where job_id = ?", (job_id,)
        ).fetchall()
    ends = [datetime.fromisoformat(json.loads(row[1])["finished_at"]) for row in rows]
    return [row[0] / 1e6 for row in rows], [end.timestamp() for end in ends]
