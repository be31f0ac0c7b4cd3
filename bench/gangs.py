"""A gang of 16 on one machine: how soon all of it runs, and how soon its end is known."""

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


def _round(client: Client, home: Path, directory: Path) -> tuple[float, float]:
    """Seconds from the submit to the last beginning, and from the last end to the good news."""
    asked = time.time()
    job = client.submit_job(
        files=directory,
        start_cmd="true",
        instance_count=RANKS,
        distribute_job_type="NCCL2",
    )
    done = client.wait(job.id, timeout=60)
    seen = time.time()
    assert done.state == "success", done.error_msg
    begun, ended = _told(home, job.id)
    assert len(begun) == len(ended) == RANKS
    return max(begun) - asked, seen - max(ended)


def _told(home: Path, job_id: str) -> tuple[list[float], list[float]]:
    """When each replica began and ended, as its monitor wrote it down."""
    database = sqlite3.connect(f"file:{home}/server/paddlecloud.db?mode=ro", uri=True)
    with contextlib.closing(database):
        rows = database.execute(
            "select started_at, exit_record from replicas where job_id = ?", (job_id,)
        ).fetchall()
    ends = [datetime.fromisoformat(json.loads(row[1])["finished_at"]) for row in rows]
    return [row[0] / 1e6 for row in rows], [end.timestamp() for end in ends]
