"""Tasks on every engine: each counted once per pass, whoever has it, loses it or comes late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import data_tasks, jobs
from paddlecloud.model.jobs.data_tasks import TaskSet, TaskState, Verdict
from tests.unit.db.values import ENGINES, NOW, SECOND, opened, waiting

A, B = "r0/x", "r1/y"
LIVE = {"r0", "r1"}
UNTIL = NOW + 60 * SECOND


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_set(db: Database, count: int, *, passes: int = 1, failure_max: int = 3) -> TaskSet:
    def make(tx: Tx) -> TaskSet:
        new = TaskSet(
            job_id=waiting(tx).id,
            name="train",
            digest="d",
            passes=passes,
            failure_max=failure_max,
            current=0,
            created_at=NOW,
        )
        data_tasks.define(tx, new, [f"chunk {number} \U0001f600" for number in range(count)])
        return new

    return db.write(make)


def now_is(db: Database, known: TaskSet) -> TaskSet:
    found = db.read(lambda tx: data_tasks.get_set(tx, known.job_id, known.name))
    assert found is not None
    return found


def leased(db: Database, known: TaskSet, holder: str, count: int = 1) -> list[tuple[int, int]]:
    known = now_is(db, known)
    found = db.write(lambda tx: data_tasks.lease(tx, known, holder, count, UNTIL))
    return [(task.number, task.fence) for task in found]


def finish(db: Database, known: TaskSet, holder: str, number: int, fence: int, turn: int) -> str:
    known = now_is(db, known)
    verdict, _ = db.write(lambda tx: data_tasks.finish(tx, known, holder, number, fence, turn, NOW))
    return verdict.value


def test_a_set_comes_back_as_it_was_stored(db: Database) -> None:
    known = a_set(db, 250, passes=2)
    assert now_is(db, known) == known
    found = db.write(lambda tx: data_tasks.lease(tx, known, A, 2, UNTIL))
    assert [(t.number, t.content, t.tries, t.fence, t.holder, t.until) for t in found] == [
        (0, "chunk 0 \U0001f600", 1, 1, A, UNTIL),
        (1, "chunk 1 \U0001f600", 1, 1, A, UNTIL),
    ]
    assert db.read(lambda tx: data_tasks.held_by(tx, known, A)) == found
    tally = db.read(lambda tx: data_tasks.tallies(tx, known.job_id))[0]
    assert (tally.total, tally.todo, tally.leased, tally.done) == (250, 248, 2, 0)
    assert db.read(lambda tx: data_tasks.get_set(tx, known.job_id, "other")) is None


def test_nobody_gets_what_another_has(db: Database) -> None:
    known = a_set(db, 3)
    assert leased(db, known, A, 2) == [(0, 1), (1, 1)]
    assert leased(db, known, B, 5) == [(2, 1)]
    assert leased(db, known, B, 5) == []


def test_it_counts_once_and_a_repeated_word_changes_nothing(db: Database) -> None:
    known = a_set(db, 2, passes=2)
    leased(db, known, A, 2)
    assert finish(db, known, A, 0, 1, 0) == Verdict.COUNTED
    assert finish(db, known, A, 0, 1, 0) == Verdict.REPEATED
    assert finish(db, known, B, 0, 1, 0) == Verdict.LATE
    assert finish(db, known, A, 1, 1, 0) == Verdict.COUNTED
    assert now_is(db, known).current == 1
    assert finish(db, known, A, 1, 1, 0) == Verdict.REPEATED  # its answer was lost
    assert db.read(lambda tx: data_tasks.tallies(tx, known.job_id))[0].finished == 2
    assert db.read(lambda tx: data_tasks.last_finished(tx, known.job_id)) == NOW
    assert leased(db, known, B, 2) == [(0, 2), (1, 2)]
    assert finish(db, known, A, 1, 1, 0) == Verdict.LATE
    assert finish(db, known, B, 0, 2, 0) == Verdict.REPEATED  # harmless: of a pass that is over
    assert finish(db, known, B, 0, 2, 1) == Verdict.COUNTED
    assert finish(db, known, B, 1, 2, 1) == Verdict.COUNTED
    after = now_is(db, known)
    assert after.over
    assert leased(db, known, A) == []
    tally = db.read(lambda tx: data_tasks.tallies(tx, known.job_id, "train"))[0]
    assert (tally.finished, tally.given_up_ever, tally.current) == (4, 0, 2)


def test_a_lease_that_lapsed_goes_to_another_and_the_late_word_is_refused(db: Database) -> None:
    known = a_set(db, 1)
    leased(db, known, A)
    late = NOW + 61 * SECOND

    def back(tx: Tx) -> tuple[TaskSet, list[int]]:
        return data_tasks.take_back(tx, known, LIVE, set(), late)

    assert db.write(lambda tx: data_tasks.take_back(tx, known, LIVE, set(), NOW)) == (known, [])
    assert leased(db, known, B) == []
    db.write(back)
    assert leased(db, known, B) == [(0, 3)]
    assert finish(db, known, A, 0, 1, 0) == Verdict.LATE
    assert db.write(lambda tx: data_tasks.renew(tx, known, A, [(0, 1)], late)) == [0]
    assert db.write(lambda tx: data_tasks.renew(tx, known, B, [(0, 3)], late + SECOND)) == []
    assert db.write(back) == (known, [])
    assert finish(db, known, B, 0, 3, 0) == Verdict.COUNTED


def test_the_lease_of_a_replica_that_is_over_goes_back_at_once(db: Database) -> None:
    known = a_set(db, 1, failure_max=2)
    leased(db, known, A)
    db.write(lambda tx: data_tasks.take_back(tx, known, {"r1"}, {"r0"}, NOW))
    found = db.write(lambda tx: data_tasks.lease(tx, known, B, 1, UNTIL))
    assert [(task.fence, task.tries) for task in found] == [(3, 1)]  # no failed try: it was spared


def test_after_so_many_tries_it_is_given_up_and_the_next_pass_tries_again(db: Database) -> None:
    known = a_set(db, 2, passes=2, failure_max=2)
    (_, first), (_, second) = leased(db, known, A, 2)
    assert finish(db, known, A, 1, second, 0) == Verdict.COUNTED

    def failed(tx: Tx, fence: int, counts: bool) -> TaskState | None:
        current = data_tasks.get_set(tx, known.job_id, "train")
        assert current is not None
        return data_tasks.put_back(tx, current, A, 0, fence, counts=counts)[0]

    assert db.write(lambda tx: failed(tx, first, False)) is TaskState.OPEN
    assert db.write(lambda tx: failed(tx, first, True)) is None
    fence = leased(db, known, A)[0][1]
    assert db.write(lambda tx: failed(tx, fence, True)) is TaskState.OPEN
    fence = leased(db, known, A)[0][1]
    assert db.write(lambda tx: failed(tx, fence, True)) is TaskState.GIVEN_UP
    assert finish(db, known, A, 0, fence, 0) == Verdict.LATE
    after = now_is(db, known)
    assert after.current == 1
    tally = db.read(lambda tx: data_tasks.tallies(tx, known.job_id))[0]
    assert (tally.finished, tally.given_up, tally.given_up_ever) == (1, 0, 1)
    assert [number for number, _ in leased(db, known, B, 5)] == [0, 1]
    for number in (0, 1):
        held = db.read(lambda tx: data_tasks.held_by(tx, after, B))
        fence = next(task.fence for task in held if task.number == number)
        assert finish(db, known, B, number, fence, 1) == Verdict.COUNTED
    tally = db.read(lambda tx: data_tasks.tallies(tx, known.job_id))[0]
    assert (tally.finished, tally.given_up_ever, tally.done) == (3, 1, 2)


def test_a_set_without_tasks_is_over_and_all_of_it_goes_with_its_job(db: Database) -> None:
    empty = a_set(db, 0)
    assert now_is(db, empty).over
    known = a_set(db, 2)
    assert db.write(lambda tx: jobs.delete_job(tx, known.job_id))
    assert db.read(lambda tx: data_tasks.tallies(tx, known.job_id)) == []
    assert db.read(lambda tx: tx.one("select count(*) from tasks")) == (0,)
    assert replace(known, current=1).over
