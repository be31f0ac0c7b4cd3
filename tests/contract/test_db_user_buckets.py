"""Rows of jobs with storage of their own, on every engine: kept once, copied once, gone in time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import jobs, snapshots, user_buckets
from paddlecloud.model.files.snapshot import Entry, snapshot_of
from paddlecloud.model.jobs.job import Job, Reason
from paddlecloud.model.jobs.states import Event
from tests.unit.db.values import ENGINES, NOW, SECOND, opened, waiting

WAITS = Reason(code="private_logs_wait", params={"bos_url": "b.bj.bcebos.com", "reason": "away"})


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_job(db: Database) -> Job:
    job = db.write(waiting)
    db.write(lambda tx: user_buckets.keep_keys(tx, job.id, "sealed", NOW))
    return job


def due(db: Database, now: int = 1) -> list[str]:
    found = db.read(lambda tx: user_buckets.to_copy(tx, NOW + now * SECOND, 10))
    return [row.job_id for row in found]


def end(db: Database, job: Job) -> Job:
    def kill(tx: Tx) -> Job:
        asked = jobs.advance(tx, job, Event.KILL_ASKED, now=NOW)
        return asked if asked.final else jobs.advance(tx, asked, Event.STOPPED, now=NOW)

    return db.write(kill)


def test_keys_are_kept_once_and_go_with_their_job(db: Database) -> None:
    job = a_job(db)
    db.write(lambda tx: user_buckets.keep_keys(tx, job.id, "others", NOW))
    assert db.read(lambda tx: user_buckets.sealed_keys(tx, job.id)) == "sealed"
    db.write(lambda tx: jobs.delete_job(tx, job.id))
    assert db.read(lambda tx: user_buckets.sealed_keys(tx, job.id)) is None


def test_tags_go_with_their_snapshot(db: Database) -> None:
    snapshot = snapshot_of([Entry(path="a \U0001f600", size=1, sha256="0" * 64)])
    tags = {"0" * 64: ("a \U0001f600", '"tag"')}

    def keep(tx: Tx) -> None:
        snapshots.put_snapshot(tx, "ann", snapshot, NOW)
        user_buckets.keep_tags(tx, "ann", snapshot.id, tags)
        user_buckets.keep_tags(tx, "ann", snapshot.id, {})

    db.write(keep)
    assert db.read(lambda tx: user_buckets.get_tags(tx, "ann", snapshot.id)) == tags
    assert db.read(lambda tx: user_buckets.get_tags(tx, "bob", snapshot.id)) is None
    later = NOW + timedelta(days=1)
    assert db.write(lambda tx: snapshots.delete_snapshot(tx, "ann", snapshot.id, later))
    assert db.read(lambda tx: user_buckets.get_tags(tx, "ann", snapshot.id)) is None


def test_logs_are_due_when_the_job_is_over_until_they_are_copied(db: Database) -> None:
    job = a_job(db)
    assert due(db) == []
    end(db, job)
    assert due(db) == [job.id]
    db.write(lambda tx: user_buckets.record_problem(tx, job.id, WAITS, NOW + 5 * SECOND))
    assert db.read(lambda tx: user_buckets.trouble(tx, job.id)) == WAITS
    assert (due(db, 4), due(db, 5)) == ([], [job.id])
    (row,) = db.read(lambda tx: user_buckets.to_copy(tx, NOW + 5 * SECOND, 10))
    assert (row.copied, row.tries) == (0, 1)
    db.write(lambda tx: user_buckets.record_copied(tx, job.id, 0, done=True))
    assert due(db, 9) == []
    assert db.read(lambda tx: user_buckets.trouble(tx, job.id)) is None
