"""What the database promises to a planner that asks only for what it does not know."""

from __future__ import annotations

from collections.abc import Iterator
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


def test_whether_many_users_wait(db: Database) -> None:
    assert not db.read(lambda tx: jobs.many_wait(tx, 0))
    db.write(waiting)
    assert db.read(lambda tx: jobs.many_wait(tx, 0))
    assert not db.read(lambda tx: jobs.many_wait(tx, 1))


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
