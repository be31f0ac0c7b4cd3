"""Gangs that together exceed the machine never block each other: 200 rounds of real processes.

On a machine that has much else to do it is fewer rounds: after a while only the least is begun.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.sdk import Job
from tests.integration.gangs.gang_home import GangHome

pytestmark = [pytest.mark.slow(seconds=60)]
ROUNDS = 200
AT_ONCE = 20
LEAST = 40
BEGIN_WITHIN = 70.0
SECONDS = 350.0
CPUS = len(os.sched_getaffinity(0))


def a_gang(chance: random.Random) -> dict[str, Any]:
    """Some fill the machine by what they ask, some ask for more than it has."""
    count = chance.randint(2, CPUS + 2)
    if chance.random() < 0.5:
        return {"instance_count": count, "distribute_job_type": "NCCL2"}
    return {"instance_count": chance.randint(1, 2), "pservers": chance.randint(1, 2)}


def most_claimed(home: Path) -> float:
    """CPUs that are claimed at this moment."""
    with closing(sqlite3.connect(f"file:{home}/server/paddlecloud.db?mode=ro", uri=True)) as db:
        live = "select coalesce(sum(cpu), 0) from replicas where state in ('ordered', 'running')"
        return float(db.execute(live).fetchone()[0])


@pytest.mark.timeout(400)
def test_two_gangs_that_exceed_the_machine_both_succeed_200_times(gang_home: GangHome) -> None:
    chance = random.Random(4)
    files = gang_home.files / "round"
    files.mkdir()
    (files / "run.sh").write_text("test $TRAINING_ROLE = TRAINER || sleep 600\n")
    began = time.monotonic()
    pending: list[Job] = []
    ended = 0
    for number in range(ROUNDS):
        if number >= LEAST and time.monotonic() - began > BEGIN_WITHIN:
            break
        for _ in range(2):
            asked = a_gang(chance)
            pending.append(
                gang_home.client.submit_job(files=str(files), start_cmd="sh run.sh", **asked)
            )
        while len(pending) > 2 * AT_ONCE:
            finish(gang_home, pending.pop(0), began)
            ended += 1
    for job in pending:
        finish(gang_home, job, began)
    assert ended + len(pending) >= 2 * LEAST


def finish(gang_home: GangHome, job: Job, began: float) -> None:
    assert most_claimed(gang_home.home.path) <= CPUS + 1e-6
    left = SECONDS - (time.monotonic() - began)
    done = gang_home.client.wait(job.id, timeout=max(1.0, left))
    assert done.state == "success", done.error_msg
    assert done.attempts == 1
