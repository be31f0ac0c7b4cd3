"""What the database promises about jobs: guarded saves, history, and the questions of the loops."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import jobs
from paddlecloud.model.errors import IllegalTransition, StaleVersion
from paddlecloud.model.jobs.job import Failure, HistoryRow, Job, Reason
from paddlecloud.model.jobs.states import FINAL, Event, JobState
from tests.unit.db.values import (
    ENGINES,
    NEW,
    NOW,
    SECOND,
    Ear,
    a_job,
    a_spec,
    opened,
    stored,
    waiting,
)

STARTED = (Event.ACCEPTED, Event.STARTED)
ENDED = (*STARTED, Event.SUCCEEDED)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def ids(found: list[Job]) -> list[str]:
    return [job.id for job in found]


def test_a_job_comes_back_as_it_was_stored(db: Database) -> None:
    spec = a_spec(name="训练", priority=3, wall_time=timedelta(hours=2))
    job = replace(
        a_job(spec=spec),
        failure=Failure(
            reason=Reason(code="exit_code", params={"code": 3, "share": 0.5, "what": None}),
            advice=Reason(code="look"),
            worker="trainer-0",
            exit_code=3,
            last_lines=("one", "two"),
        ),
        attempt=2,
        pool="local",
        kill_asked=True,
    )
    kept = db.write(lambda tx: stored(tx, job, *ENDED))
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == kept
    assert kept.spec == spec


def test_the_pause_before_a_retry_is_kept(db: Database) -> None:
    end = NOW + timedelta(microseconds=1_500_000)
    job = db.write(lambda tx: stored(tx, replace(a_job(), not_before=end), Event.ACCEPTED))
    assert job.not_before == end
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == job
    changed = replace(job, not_before=None)
    kept = db.write(lambda tx: jobs.save_job(tx, changed, expected_version=job.version))
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == kept
    assert kept.not_before is None


def test_numbers_are_given_in_the_order_of_arrival(db: Database) -> None:
    first, second = (db.write(waiting) for _ in range(2))
    assert (first.number, second.number) == (1, 2)


def test_a_job_is_found_by_its_id(db: Database) -> None:
    job = db.write(waiting)
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == job
    assert db.read(lambda tx: jobs.get_job(tx, "job-none")) is None


def test_a_save_with_an_older_version_is_refused_and_changes_nothing(db: Database) -> None:
    job = db.write(waiting)
    saved = db.write(lambda tx: jobs.save_job(tx, replace(job, pool="a"), expected_version=1))
    assert saved.version == 2
    with pytest.raises(StaleVersion):
        db.write(lambda tx: jobs.save_job(tx, replace(job, pool="b"), expected_version=1))
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == saved


def test_of_many_that_save_the_same_version_one_wins(db: Database) -> None:
    job = db.write(waiting)

    def kill(_: int) -> bool:
        try:
            db.write(lambda tx: jobs.advance(tx, job, Event.KILL_ASKED, NOW))
        except StaleVersion:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(kill, range(8)))
    assert won.count(True) == 1
    assert len(db.read(lambda tx: jobs.history(tx, job.id))) == 1


def test_advancing_saves_records_and_wakes(db: Database) -> None:
    job = db.write(waiting)
    ear = Ear(db)
    full = Reason(code="no_room", params={"free": 0})
    failure = Failure(reason=Reason(code="exit_code", params={"code": 1}))

    def live(tx: Tx) -> Job:
        held = jobs.advance(tx, job, Event.NO_CAPACITY, NOW, reason=full)
        found = jobs.advance(
            tx, held, Event.CAPACITY_FOUND, NOW, reason=NEW, pool="local", attempt=1
        )
        running = jobs.advance(tx, found, Event.STARTED, NOW + SECOND)
        return jobs.advance(tx, running, Event.BROKE, NOW + 2 * SECOND, failure=failure)

    ended = db.write(live)
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == ended
    assert (ended.state, ended.version, ended.pool) == (JobState.FAILED, 5, "local")
    assert ended.finished_at == NOW + 2 * SECOND
    assert db.read(lambda tx: jobs.history(tx, job.id)) == [
        HistoryRow(
            at=NOW,
            event=Event.NO_CAPACITY,
            before=JobState.SCHEDULE,
            after=JobState.QUEUE,
            reason=full,
        ),
        HistoryRow(
            at=NOW,
            event=Event.CAPACITY_FOUND,
            before=JobState.QUEUE,
            after=JobState.SCHEDULE,
            reason=NEW,
        ),
        HistoryRow(
            at=NOW + SECOND,
            event=Event.STARTED,
            before=JobState.SCHEDULE,
            after=JobState.RUNNING,
        ),
        HistoryRow(
            at=NOW + 2 * SECOND,
            event=Event.BROKE,
            before=JobState.RUNNING,
            after=JobState.FAILED,
            reason=failure.reason,
        ),
    ]
    assert ear.heard() == [("job", job.id)]


def test_an_event_that_cannot_happen_changes_nothing(db: Database) -> None:
    job = db.write(waiting)
    with pytest.raises(IllegalTransition):
        db.write(lambda tx: jobs.advance(tx, job, Event.SUCCEEDED, NOW))
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == job
    assert db.read(lambda tx: jobs.history(tx, job.id)) == []


def test_a_list_is_paged_newest_first_and_filtered(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        return [
            stored(tx, a_job(spec=a_spec(name="even")), Event.ACCEPTED)
            if number % 2 == 0
            else stored(tx, a_job(spec=a_spec(name="odd")), *(ENDED if number % 3 else STARTED))
            for number in range(1, 13)
        ]

    mine = db.write(fill)
    db.write(lambda tx: waiting(tx, owner="bob"))

    def listed(**filters: object) -> list[int]:
        found = db.read(lambda tx: jobs.list_jobs(tx, "ann", **filters))  # type: ignore[arg-type]
        assert all(mine[job.number - 1] == job for job in found)
        return [job.number for job in found]

    assert listed() == list(range(12, 0, -1))
    assert listed(limit=3) == [12, 11, 10]
    assert listed(limit=3, before=10) == [9, 8, 7]
    assert listed(states={JobState.SUCCESS}) == [11, 7, 5, 1]
    assert listed(states={JobState.SUCCESS, JobState.RUNNING}, limit=3) == [11, 9, 7]
    assert listed(states=[]) == []
    assert listed(name="even", limit=2, before=12) == [10, 8]
    assert listed(name="odd", states={JobState.RUNNING, JobState.SCHEDULE}) == [9, 3]
    assert listed(name="none") == []
    for _ in range(5):  # a question that comes often is asked in another way
        assert listed(limit=1, before=2**53) == [12]


def test_who_waits_is_listed_by_owner_priority_and_arrival(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for owner in ("bob", "ann", "cid"):
            for priority in (0, 5, 0, -1):
                waiting(tx, owner=owner, spec=a_spec(priority=priority))
        stored(tx, a_job(owner="dan"), *STARTED)
        placed = waiting(tx, owner="eve")
        jobs.save_job(tx, replace(placed, pool="local"), expected_version=1)
        killed = waiting(tx, owner="fay")
        jobs.advance(tx, killed, Event.KILL_ASKED, NOW)

    db.write(fill)
    found = db.read(lambda tx: jobs.waiting_jobs(tx, per_owner=3))
    assert [(job.owner, job.number) for job in found] == [
        ("ann", 6), ("ann", 5), ("ann", 7),
        ("bob", 2), ("bob", 1), ("bob", 3),
        ("cid", 10), ("cid", 9), ("cid", 11),
    ]  # fmt: skip
    assert db.read(lambda tx: jobs.count_waiting(tx, "ann")) == 4
    assert db.read(lambda tx: jobs.count_waiting(tx, "eve")) == 0


def test_the_position_counts_who_is_before(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        return [
            waiting(tx, owner=owner, spec=a_spec(priority=priority))
            for owner, priority in (("ann", 0), ("bob", 0), ("ann", 9), ("ann", 0))
        ]

    line = db.write(fill)
    positions = [db.read(lambda tx, job=job: jobs.queue_position(tx, job)) for job in line]  # type: ignore[misc]
    assert positions == [1, 2, 0, 3]


def test_newcomers_are_those_nobody_looked_at(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        fresh = [waiting(tx) for _ in range(3)]
        jobs.advance(tx, waiting(tx), Event.NO_CAPACITY, NOW, reason=Reason(code="no_room"))
        stored(tx, a_job(), Event.ACCEPTED, reason=Reason(code="starting"))
        return fresh

    fresh = db.write(fill)
    assert db.read(lambda tx: jobs.newcomers(tx, 100)) == fresh
    assert db.read(lambda tx: jobs.newcomers(tx, 2)) == fresh[:2]


def test_placed_jobs_and_those_in_one_state(db: Database) -> None:
    def fill(tx: Tx) -> tuple[Job, Job]:
        stored(tx, a_job(), *ENDED)
        waiting(tx)
        runs = stored(tx, replace(a_job(), pool="local"), *STARTED)
        dies = stored(tx, a_job(), Event.ACCEPTED, Event.KILL_ASKED)
        return runs, dies

    runs, dies = db.write(fill)
    assert db.read(jobs.placed_jobs) == [runs]
    assert db.read(lambda tx: jobs.jobs_in_state(tx, JobState.KILLING)) == [dies]
    assert db.read(lambda tx: jobs.jobs_in_state(tx, JobState.SUCCESS)) == []


def test_jobs_are_counted_by_state(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for owner in ("ann", "bob"):
            waiting(tx, owner=owner)
            stored(tx, a_job(owner=owner), *ENDED)
        waiting(tx)

    db.write(fill)
    assert db.read(jobs.count_by_state) == {JobState.SCHEDULE: 3, JobState.SUCCESS: 2}
    assert db.read(lambda tx: jobs.count_by_state(tx, "bob")) == {
        JobState.SCHEDULE: 1,
        JobState.SUCCESS: 1,
    }


def test_who_waits_too_long_is_found_from_the_moment_on(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        return [
            stored(tx, a_job(since=NOW + i * SECOND), Event.ACCEPTED, now=NOW) for i in (2, 0, 1)
        ]

    two, zero, one = db.write(fill)
    db.write(lambda tx: stored(tx, a_job(), *STARTED))
    late = db.read(lambda tx: jobs.overdue_waiting(tx, NOW + SECOND))
    assert ids(late) == ids([zero, one])
    assert ids(db.read(lambda tx: jobs.overdue_waiting(tx, NOW + 2 * SECOND))) == ids(
        [zero, one, two]
    )
    assert db.read(lambda tx: jobs.overdue_waiting(tx, NOW - SECOND)) == []


def test_wall_time_counts_from_the_start_and_only_while_the_job_runs(db: Database) -> None:
    limited = a_spec(wall_time=timedelta(seconds=10))
    job = db.write(lambda tx: waiting(tx, spec=limited))
    assert job.deadline is None
    job = db.write(lambda tx: jobs.advance(tx, job, Event.STARTED, NOW + SECOND))
    assert job.deadline == NOW + 11 * SECOND
    lost = db.write(lambda tx: jobs.advance(tx, job, Event.ATTEMPT_LOST, NOW + 5 * SECOND))
    assert lost.deadline is None
    again = db.write(lambda tx: jobs.advance(tx, lost, Event.STARTED, NOW + 50 * SECOND))
    assert db.read(lambda tx: jobs.get_job(tx, job.id)) == again
    assert (again.ran, again.retried) == (4 * SECOND, 1)
    assert again.deadline == NOW + 56 * SECOND


def test_finished_jobs_are_found_oldest_first_and_deleted_whole(db: Database) -> None:
    def fill(tx: Tx) -> list[Job]:
        ended = [stored(tx, a_job(), *ENDED, now=NOW + i * SECOND) for i in (3, 1, 2)]
        jobs.record(tx, ended[1], ended[1], Event.SUCCEEDED, NOW)
        waiting(tx)
        return ended

    three, one, two = db.write(fill)
    assert ids(db.read(lambda tx: jobs.finished_before(tx, NOW + 3 * SECOND, 10))) == ids(
        [one, two]
    )
    assert ids(db.read(lambda tx: jobs.finished_before(tx, NOW + 9 * SECOND, 1))) == [one.id]
    assert db.write(lambda tx: jobs.delete_job(tx, one.id))
    assert not db.write(lambda tx: jobs.delete_job(tx, one.id))
    assert db.read(lambda tx: jobs.get_job(tx, one.id)) is None
    assert db.read(lambda tx: tx.one("select count(*) from job_history")) == (0,)
    assert three.final


def test_every_state_can_be_stored_and_listed(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for state in JobState:
            jobs.insert_job(tx, replace(a_job(), state=state))

    db.write(fill)
    for wanted in (set(JobState) - FINAL, FINAL, {JobState.SCHEDULE_TIMEOUT}):
        found = db.read(lambda tx, wanted=wanted: jobs.list_jobs(tx, "ann", states=wanted))  # type: ignore[misc]
        assert {job.state for job in found} == wanted


def test_jobs_by_the_beginning_of_their_id(db: Database) -> None:
    heads = {"job-00ab": "ann", "job-00ac": "ann", "job-00ad": "bob", "job-00b0": "ann"}
    found = [
        replace(a_job(owner=owner), id=head + digit * 28)
        for head, owner in heads.items()
        for digit in "0f"
    ]
    for job in found:
        db.write(lambda tx, job=job: jobs.insert_job(tx, job))  # type: ignore[misc]
    low, high = "job-00a" + "0" * 29, "job-00a" + "f" * 29

    def read(owner: str | None, limit: int = 10) -> list[str]:
        return ids(db.read(lambda tx: jobs.list_by_id(tx, low, high, owner=owner, limit=limit)))

    newest_first = [job.id for job in reversed(found) if low <= job.id <= high]
    assert read(None) == newest_first
    assert read("ann") == newest_first[2:]
    assert read("ann", 1) == newest_first[2:3]
    assert read("eve") == []
