"""What was waited is the same after the clock was moved, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import jobs, usage
from paddlecloud.model.jobs.job import Job
from tests.unit.db.values import ENGINES, NOW, opened, waiting

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_wait(
    tx: Tx, since: datetime, not_before: datetime, quota_since: datetime | None = None
) -> Job:
    job = waiting(tx)
    changed = replace(job, waiting_since=since, not_before=not_before, quota_since=quota_since)
    return jobs.save_job(tx, changed, expected_version=job.version)


def again(db: Database, job: Job) -> Job:
    found = db.read(lambda tx: jobs.get_job(tx, job.id))
    assert found is not None
    return found


def test_a_clock_that_is_set_forward(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        before = a_wait(tx, NOW - 5 * MINUTE, quota_since=NOW - MINUTE, not_before=NOW + MINUTE)
        after = a_wait(tx, NOW + 59 * MINUTE, not_before=NOW + 61 * MINUTE)
        return [before, after]

    before, after = db.write(fill)
    later = NOW + 60 * MINUTE
    shift = partial(usage.shift, ahead=60 * MINUTE, now=later, passed=2 * MINUTE)
    assert db.write(shift) == 1
    moved = again(db, before)
    assert (moved.waiting_since, moved.version) == (later - 5 * MINUTE, before.version)
    assert (moved.quota_since, moved.not_before) == (later - MINUTE, later + MINUTE)
    assert again(db, after) == after


def test_a_clock_that_is_set_back(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        before = a_wait(tx, NOW - 5 * MINUTE, not_before=NOW + MINUTE)
        after = a_wait(tx, NOW - 61 * MINUTE, not_before=NOW - 58 * MINUTE)
        return [before, after]

    before, after = db.write(fill)
    earlier = NOW - 60 * MINUTE
    shift = partial(usage.shift, ahead=-60 * MINUTE, now=earlier, passed=2 * MINUTE)
    assert db.write(shift) == 1
    moved = again(db, before)
    assert (moved.waiting_since, moved.not_before) == (earlier - 5 * MINUTE, earlier + MINUTE)
    assert again(db, after) == after
