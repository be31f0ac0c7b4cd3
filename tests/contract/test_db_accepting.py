"""What the database promises about accepting a job in one statement: all of it or nothing, on the
grounds it was given, whoever else is at it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.engine.columns import in_parts
from paddlecloud.db.tables import (
    attempts,
    idempotency,
    job_fast_insert,
    jobs,
    snapshots,
    usage,
    users,
)
from paddlecloud.db.tables.job_fast_insert import Grounds, Standing
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.errors import Conflict
from paddlecloud.model.files.snapshot import Snapshot
from paddlecloud.model.jobs.job import Job
from paddlecloud.model.jobs.states import Event, JobState
from tests.unit.db.values import (
    ENGINES,
    NEW,
    NOW,
    a_job,
    a_spec,
    an_attempt,
    opened,
    stored,
    waiting,
)

FILES = Snapshot(id="f" * 64, entries=())
PLAIN = Grounds(key="k", request_hash="h", standing=None, last_number=None, storage=None)
HOUR = timedelta(hours=1)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_user(tx: Tx, name: str = "ann") -> None:
    assert users.create_user(tx, User(id=name, role=UserRole.USER), NOW)


def accepted(db: Database, job: Job, grounds: Grounds = PLAIN) -> Job | None:
    job, answer = db.write(lambda tx: job_fast_insert.accept(tx, job, grounds, NOW, NEW))
    rows = answer()
    return replace(job, number=int(rows[0][0])) if rows else None


def everything(db: Database) -> list[list[tuple[object, ...]]]:
    tables = ("jobs", "job_history", "idempotency", "counters")
    return db.read(lambda tx: [tx.all(f"select * from {name} order by 1, 2") for name in tables])


def test_it_is_the_same_as_the_long_way(db: Database) -> None:
    earlier = db.write(lambda tx: jobs.insert_accepted(tx, a_job(), NOW, NEW))
    short = accepted(db, a_job())
    assert short is not None
    assert short.number == earlier.number + 1
    assert db.read(lambda tx: jobs.get_job(tx, short.id)) == short
    assert short.state is JobState.SCHEDULE
    for each in (earlier, short):
        (row,) = db.read(lambda tx, it=each: jobs.history(tx, it.id))  # type: ignore[misc]
        assert (row.event, row.before, row.after) == (Event.ACCEPTED, "submit", "schedule")
    known = db.read(lambda tx: idempotency.find_key(tx, "ann", "k"))
    assert known is not None
    assert (known.job_id, known.request_hash) == (short.id, "h")
    later = db.write(lambda tx: jobs.insert_job(tx, a_job()))
    assert later.number == short.number + 1, "both ways count on"


def test_the_first_job_of_all_has_number_one(db: Database) -> None:
    first = accepted(db, a_job())
    assert first is not None
    assert first.number == 1


def test_a_key_makes_one_job(db: Database) -> None:
    assert accepted(db, a_job()) is not None
    before = everything(db)
    assert accepted(db, a_job()) is None
    assert everything(db) == before
    assert accepted(db, a_job(owner="bob")) is not None, "the key of another user is another key"


def test_files_have_to_be_there_and_not_about_to_go(db: Database) -> None:
    job = a_job(spec=a_spec(snapshot=FILES.id))
    assert accepted(db, job) is None
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", FILES, NOW - HOUR))
    assert accepted(db, job) is None, "its use has to be noted again, which the long way does"
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", FILES, NOW - HOUR / 2))
    assert accepted(db, job) is not None


def test_a_plan_that_changed_meanwhile_is_noticed(db: Database) -> None:
    db.write(a_user)
    known = db.read(lambda tx: job_fast_insert.standing(tx, "ann", 9))
    assert known == Standing(plan="", limits="", live=0, number=0)
    grounds = replace(PLAIN, standing=known)
    db.write(lambda tx: usage.set_plan(tx, "ann", "small", {"waiting_jobs": 1}))
    assert accepted(db, a_job(), grounds) is None
    now_known = db.read(lambda tx: job_fast_insert.standing(tx, "ann", 9))
    assert now_known is not None
    assert (now_known.plan, now_known.limits) == ("small", '{"waiting_jobs":1}')
    assert accepted(db, a_job(), replace(PLAIN, standing=now_known)) is not None
    assert db.read(lambda tx: job_fast_insert.standing(tx, "nobody", 9)) is None


def test_stored_bytes_count(db: Database) -> None:
    db.write(lambda tx: usage.add_files(tx, "ann", 60))
    with_output = db.write(waiting)
    db.write(lambda tx: usage.set_output_bytes(tx, with_output.id, 40))
    assert accepted(db, a_job(), replace(PLAIN, storage=99)) is None
    assert accepted(db, a_job(), replace(PLAIN, storage=100)) is not None


def test_live_jobs_are_those_that_wait_and_those_that_have_a_place(db: Database) -> None:
    def several(tx: Tx) -> None:
        a_user(tx)
        for _ in range(3):
            waiting(tx)
        waiting(tx, owner="bob")
        placed = replace(a_job(), pool="local", attempt=1)
        job = stored(tx, placed, Event.ACCEPTED)
        attempts.insert_attempt(tx, an_attempt(job, nodes=("n",)))
        stored(tx, a_job(), Event.ACCEPTED, Event.STARTED, Event.SUCCEEDED)

    db.write(several)
    known = db.read(lambda tx: job_fast_insert.standing(tx, "ann", 100))
    assert known is not None
    assert (known.live, known.number) == (4, 6)
    few = db.read(lambda tx: job_fast_insert.standing(tx, "ann", 2))
    assert few is not None
    assert few.live == 3, "two of those that wait, and the placed one"


def test_no_more_than_the_number_allows_whoever_is_at_it(db: Database) -> None:
    """Two or more at the same moment cannot both be the last that fits."""

    def run(number: int) -> int:
        grounds = replace(PLAIN, key=f"k{number}", last_number=10)
        return accepted(db, a_job(), grounds) is not None

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(run, range(40))) == 10
    assert db.read(lambda tx: jobs.count_waiting(tx, "ann")) == 10


def test_what_fails_beside_it_takes_nothing_along(db: Database) -> None:
    """In one commit: jobs that are stored, and a write that is refused by the database."""
    clash = a_job()
    assert accepted(db, clash, replace(PLAIN, key="first")) is not None

    def run(number: int) -> bool:
        if number % 4 == 0:
            with pytest.raises(Conflict):
                accepted(db, clash, replace(PLAIN, key=f"again{number}"))
            return False
        return accepted(db, a_job(), replace(PLAIN, key=f"k{number}")) is not None

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(run, range(40))) == 30
    assert db.read(lambda tx: jobs.count_waiting(tx, "ann")) == 31


def test_answers_come_with_the_next_question(db: Database) -> None:
    def ask(tx: Tx) -> tuple[object, ...]:
        tx.run("insert into counters (name, value) values ('b', 2), ('a', 1)")
        one = tx.soon("select value from counters where name = ?", ("a",))
        none = tx.soon("select value from counters where name = ?", ("c",))
        both = tx.soon("select name from counters order by name")
        last = tx.one("select value from counters where name = ?", ("b",))
        return one(), none(), both(), last

    assert db.write(ask) == ([(1,)], [], [("a",), ("b",)], (2,))
    again = db.write(lambda tx: tx.soon("select name from counters order by name"))
    assert again() == [("a",), ("b",)], "or when the write is over"

    def look(tx: Tx) -> tuple[object, ...]:
        one = tx.soon("select value from counters where name = ?", ("a",))
        return tx.one("select value from counters where name = ?", ("b",)), one()

    for _ in range(5):
        assert db.read(look) == ((2,), [(1,)]), "reads too, also over a connection used before"


def test_many_are_found_as_one_by_one(db: Database) -> None:
    def several(tx: Tx) -> list[Job]:
        found = [waiting(tx) for _ in range(70)]
        for job in found[:40]:
            attempts.insert_attempt(tx, an_attempt(job, nodes=("n", "m")))
        attempts.insert_attempt(tx, an_attempt(found[0], number=2, nodes=("n",)))
        return found

    made = db.write(several)
    ids = [job.id for job in made]
    found = db.read(lambda tx: jobs.get_jobs(tx, [*ids, "job-unknown"]))
    assert {job.id: job for job in found} == {job.id: job for job in made}
    assert len(found) == 70
    wanted = [(job_id, 1) for job_id in ids] + [(ids[0], 2), (ids[1], 2)]
    many = db.read(lambda tx: attempts.get_attempts(tx, wanted))
    each = db.read(lambda tx: [attempts.get_attempt(tx, *one) for one in wanted])
    assert {(a.job_id, a.number): a for a in many} == {(a.job_id, a.number): a for a in each if a}
    assert len(many) == 41


def test_lists_are_asked_for_in_few_lengths() -> None:
    for count in (0, 1, 2, 3, 5, 31, 32, 33, 100):
        parts = list(in_parts(range(count)))
        assert {value for part, _ in parts for value in part} == set(range(count))
        assert {len(part) for part, _ in parts} <= {1, 2, 4, 8, 16, 32}
        assert all(places.count("?") == len(part) for part, places in parts)
