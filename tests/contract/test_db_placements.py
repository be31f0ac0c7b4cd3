"""What the database promises to a planner that asks only for what it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.jobs.job import Job
from tests.unit.db.values import ENGINES, an_attempt, opened, waiting


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def test_versions_of_those_that_there_are(db: Database) -> None:
    job = db.write(waiting)
    assert db.read(lambda tx: jobs.versions(tx, {job.id, "job-gone"})) == {job.id: job.version}
    assert db.read(lambda tx: jobs.versions(tx, ())) == {}


def test_the_first_waiting_jobs_of_each_owner_or_of_some(db: Database) -> None:
    made = {
        owner: [db.write(partial(waiting, owner=owner)).id for _ in range(3)] for owner in "abc"
    }

    def first(count: int, owners: list[str] | None = None) -> list[str]:
        find = partial(jobs.waiting_jobs, per_owner=count, owners=owners)
        return [job.id for job in db.read(find)]

    assert first(2) == made["a"][:2] + made["b"][:2] + made["c"][:2]
    assert first(9, ["c", "nobody", "a"]) == made["c"] + made["a"]
    assert first(9, []) == []


def test_what_is_used_on_some_machines(db: Database) -> None:
    def place(tx: Tx) -> Job:
        job = waiting(tx)
        attempts.insert_attempt(tx, an_attempt(job, nodes=("n1", "n2")))
        return job

    db.write(place)
    used = db.read(attempts.used_on_nodes)
    assert sorted(used) == ["n1", "n2"]
    some = db.read(lambda tx: attempts.used_on_nodes(tx, ("n1", "n3")))
    assert some == {"n1": used["n1"]}
    assert db.read(lambda tx: attempts.used_on_nodes(tx, ())) == {}
