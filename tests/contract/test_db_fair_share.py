"""What the database tells the scheduler about who uses what: now, lately, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, usage
from paddlecloud.db.tables import usage as tables_usage
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.jobs.job import ExitCause, ReplicaState, Resources
from tests.unit.db.values import ENGINES, NOW, a_spec, an_attempt, opened, waiting

HALF = timedelta(hours=24)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def cpus(taken: Resources) -> float:
    return taken.cpu


def ran(tx: Tx, owner: str, length: timedelta, cpu: float, *, ended_ago: timedelta | None) -> None:
    job = waiting(tx, owner=owner)
    attempt = an_attempt(job, nodes=("n1",))
    slot = replace(attempt.replicas[0], resources=Resources(cpu=cpu))
    attempt = replace(attempt, replicas=(slot,))
    end = NOW - (ended_ago or timedelta(0))
    usage.begin(tx, job, attempt, public=True, at=end - length)
    if ended_ago is not None:
        usage.end(tx, attempt, end)


def test_use_counts_half_after_each_half_life(db: Database) -> None:
    def write(tx: Tx) -> None:
        hour = timedelta(hours=1)
        ran(tx, "today", hour, 4, ended_ago=timedelta(0))
        ran(tx, "yesterday", hour, 4, ended_ago=HALF)
        ran(tx, "always", 10 * HALF, 2, ended_ago=timedelta(0))
        ran(tx, "still", 10 * HALF, 3, ended_ago=None)
        ran(tx, "long ago", hour, 100, ended_ago=9 * HALF)

    db.write(write)
    used = db.read(lambda tx: tables_usage.decayed_usage(tx, NOW, HALF, cpus))
    assert used["yesterday"] == pytest.approx(used["today"] / 2, rel=0.05)
    assert used["always"] == pytest.approx(2, rel=0.05)
    assert used["still"] == pytest.approx(3, rel=0.05)
    assert used["today"] == pytest.approx(4 * 0.693 / 24, rel=0.1)
    assert "long ago" not in used


def test_many_short_runs_count_like_one_long_one(db: Database) -> None:
    minute = timedelta(minutes=1)

    def write(tx: Tx) -> None:
        for turn in range(120):
            ran(tx, "short", minute, 1, ended_ago=turn * minute)
        ran(tx, "long", 120 * minute, 1, ended_ago=timedelta(0))

    db.write(write)
    used = db.read(lambda tx: tables_usage.decayed_usage(tx, NOW, HALF, cpus))
    assert used["short"] == pytest.approx(used["long"], rel=0.03)


def test_who_holds_a_place_in_which_pool(db: Database) -> None:
    def write(tx: Tx) -> str:
        job = waiting(tx, owner="ann", spec=a_spec(priority=-100))
        attempt = an_attempt(job, nodes=("n1", "n2"))
        attempts.insert_attempt(tx, attempt)
        other = an_attempt(waiting(tx), nodes=("n1",))
        attempts.insert_attempt(tx, replace(other, pool="elsewhere"))
        return job.id

    job_id = db.write(write)
    (held,) = db.read(lambda tx: attempts.placements(tx, ["local"]))
    assert (held.job_id, held.owner, held.priority, held.stopping) == (job_id, "ann", -100, False)
    assert [node for node, _ in held.slots] == ["n1", "n2"]
    assert db.read(lambda tx: attempts.placements(tx, [])) == []

    def stop(tx: Tx) -> None:
        set_order(tx, job_id, 1, Want.STOP, cause=ExitCause.PREEMPTED)
        attempt = attempts.get_attempt(tx, job_id, 1)
        assert attempt is not None
        attempts.update_replica(tx, replace(attempt.replicas[0], state=ReplicaState.LOST))

    db.write(stop)
    (held,) = db.read(lambda tx: attempts.placements(tx, ["local"]))
    assert held.stopping
    assert len(held.slots) == 1, "what is over holds nothing"
