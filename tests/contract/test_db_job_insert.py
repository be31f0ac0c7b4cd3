"""What the database promises about accepting jobs, alone and beside writes that fail; and about
questions that are asked together."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.engine.columns import in_parts
from paddlecloud.db.tables import (
    attempts,
    idempotency,
    jobs,
)
from paddlecloud.model.errors import Conflict
from paddlecloud.model.jobs.job import Job
from paddlecloud.model.jobs.states import Event, JobState
from tests.unit.db.values import (
    ENGINES,
    NEW,
    NOW,
    a_job,
    an_attempt,
    opened,
    waiting,
)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def accepted(tx: Tx, job: Job, key: str) -> Job:
    made = jobs.insert_accepted(tx, job, NOW, NEW)
    assert idempotency.insert_key(tx, job.owner, key, made.id, "h", NOW)
    return made


def test_an_accepted_job_has_a_number_a_first_step_and_a_key(db: Database) -> None:
    first = db.write(lambda tx: accepted(tx, a_job(), "k"))
    assert (first.number, first.state) == (1, JobState.SCHEDULE)
    assert db.read(lambda tx: jobs.get_job(tx, first.id)) == first
    (row,) = db.read(lambda tx: jobs.history(tx, first.id))
    assert (row.event, row.before, row.after) == (Event.ACCEPTED, "submit", "schedule")
    known = db.read(lambda tx: idempotency.find_key(tx, "ann", "k"))
    assert known is not None
    assert (known.job_id, known.request_hash) == (first.id, "h")
    assert db.read(lambda tx: idempotency.find_key(tx, "bob", "k")) is None
    later = db.write(lambda tx: accepted(tx, a_job(owner="bob"), "k"))
    assert later.number == 2, "the key of another user is another key"


def test_what_fails_beside_it_takes_nothing_along(db: Database) -> None:
    """In one commit: jobs that are stored, and a write that is refused by the database."""
    clash = a_job()
    db.write(lambda tx: accepted(tx, clash, "first"))

    def run(number: int) -> bool:
        if number % 4 == 0:
            with pytest.raises(Conflict):
                db.write(lambda tx: accepted(tx, clash, f"again{number}"))
            return False
        return db.write(lambda tx: accepted(tx, a_job(), f"k{number}")).number > 0

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
