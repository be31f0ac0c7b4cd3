"""What the database promises about use: a run counts once, in its day, whatever came between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, jobs, usage, users
from paddlecloud.db.tables.users import User
from paddlecloud.model.jobs.job import Attempt, ExitCause, ExitRecord, Job, ReplicaState, Resources
from paddlecloud.model.jobs.states import Event
from paddlecloud.model.policy.quota import Used, day_of, overlap
from tests.unit.db.values import ENGINES, NOW, SECOND, a_job, an_attempt, opened, waiting

MINUTE = timedelta(minutes=1)
ZONE = ZoneInfo("Asia/Shanghai")
TODAY = day_of(NOW, ZONE)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_run(
    tx: Tx,
    *,
    owner: str = "ann",
    began: datetime,
    ended: datetime | None = None,
    public: bool = True,
) -> Attempt:
    """An attempt that ran then, without any note of its supervisor."""
    job = a_job(owner=owner)
    attempt = an_attempt(job, nodes=("n1",))
    usage.begin(tx, job, attempt, public=public, at=began)
    if ended is not None:
        assert usage.end(tx, attempt, ended)
    return attempt


def ran(attempt: Attempt, *seconds: float | None) -> Attempt:
    """The same attempt, over, with what each supervisor counted."""
    records = [ExitRecord(cause=ExitCause.EXIT, exit_code=0, ran=each) for each in seconds]
    pairs = zip(attempt.replicas, records, strict=True)
    over = tuple(replace(r, state=ReplicaState.EXITED, exit=exit) for r, exit in pairs)
    return replace(attempt, replicas=over)


def today(db: Database, owner: str = "ann", now: datetime = NOW) -> timedelta:
    found = db.read(lambda tx: usage.ran_today(tx, [owner], TODAY.start, now))
    return found.get(owner, timedelta(0))


def test_a_run_is_begun_and_ended_once(db: Database) -> None:
    attempt = db.write(lambda tx: a_run(tx, began=NOW - 10 * MINUTE))
    db.write(
        lambda tx: usage.begin(tx, a_job(), replace(attempt), public=True, at=NOW - 50 * MINUTE)
    )
    assert today(db) == 10 * MINUTE
    assert db.write(lambda tx: usage.end(tx, attempt, NOW - 5 * MINUTE))
    assert not db.write(lambda tx: usage.end(tx, attempt, NOW))
    assert today(db) == 5 * MINUTE
    assert not db.write(lambda tx: usage.end(tx, replace(attempt, number=2), NOW))


def test_only_what_lies_in_the_day_counts_and_what_runs_counts_until_now(db: Database) -> None:
    def fill(tx: Tx) -> None:
        a_run(tx, began=TODAY.start - 30 * MINUTE, ended=TODAY.start + 7 * MINUTE)
        a_run(tx, began=TODAY.start - 90 * MINUTE, ended=TODAY.start - 60 * MINUTE)
        a_run(tx, began=NOW - 4 * MINUTE)
        a_run(tx, began=NOW - 20 * MINUTE, public=False)
        a_run(tx, owner="bob", began=NOW - 1 * MINUTE)

    db.write(fill)
    assert today(db) == 11 * MINUTE
    assert today(db, "bob") == MINUTE
    assert today(db, "eve") == timedelta(0)
    runs = db.read(lambda tx: usage.since(tx, "ann", TODAY.start))
    spans = [(run.started_at, run.ended_at or NOW) for run in runs if run.public]
    assert overlap(spans, TODAY.start, NOW) == today(db)


def test_what_runs_over_midnight_counts_for_the_new_day_from_then_on(db: Database) -> None:
    db.write(lambda tx: a_run(tx, began=TODAY.start - 300 * MINUTE))
    later = TODAY.start + 3 * MINUTE
    assert today(db, now=later) == 3 * MINUTE


def test_a_supervisor_that_counted_is_believed_whatever_the_clocks_did(db: Database) -> None:
    def fill(tx: Tx) -> None:
        ahead = a_run(tx, began=NOW - 10 * MINUTE)
        assert usage.end(tx, ran(ahead, 60.0), NOW)
        back = a_run(tx, began=NOW - 10 * MINUTE)
        assert usage.end(tx, ran(back, 120.0), NOW - 400 * MINUTE)

    db.write(fill)
    assert today(db) == 3 * MINUTE


def test_without_its_word_the_servers_clock_counts_and_never_backwards(db: Database) -> None:
    def fill(tx: Tx) -> None:
        lost = a_run(tx, began=NOW - 10 * MINUTE)
        assert usage.end(tx, ran(lost, None), NOW - 4 * MINUTE)
        back = a_run(tx, began=NOW - 10 * MINUTE)
        assert usage.end(tx, back, NOW - 400 * MINUTE)

    db.write(fill)
    assert today(db) == 6 * MINUTE


def test_a_gang_ran_as_long_as_its_longest_replica(db: Database) -> None:
    def fill(tx: Tx) -> None:
        job = a_job(owner="ann")
        attempt = an_attempt(job, nodes=("n1", "n2"))
        usage.begin(tx, job, attempt, public=True, at=NOW - 10 * MINUTE)
        assert usage.end(tx, ran(attempt, 60.0, 90.0), NOW)

    db.write(fill)
    assert today(db) == 90 * SECOND


def test_a_jump_of_the_clock_is_taken_out_of_what_ran_before_it(db: Database) -> None:
    def fill(tx: Tx) -> None:
        a_run(tx, began=NOW - 5 * MINUTE)
        a_run(tx, owner="bob", began=NOW + 59 * MINUTE)

    db.write(fill)
    later = NOW + 60 * MINUTE
    shift = partial(usage.shift_running, ahead=60 * MINUTE, now=later, passed=2 * MINUTE)
    assert db.write(shift) == 1
    assert today(db, now=later) == 5 * MINUTE
    assert today(db, "bob", now=later) == MINUTE


def test_a_clock_that_is_set_back_takes_nothing_from_what_ran(db: Database) -> None:
    """What may have begun since then is not made longer by it."""

    def fill(tx: Tx) -> None:
        a_run(tx, began=NOW - 5 * MINUTE)
        a_run(tx, owner="bob", began=NOW - 61 * MINUTE)
        a_run(tx, owner="eve", began=NOW - 75 * MINUTE)

    db.write(fill)
    earlier = NOW - 60 * MINUTE
    shift = partial(usage.shift_running, ahead=-60 * MINUTE, now=earlier, passed=2 * MINUTE)
    assert db.write(shift) == 2
    assert today(db, now=earlier) == 5 * MINUTE
    assert today(db, "bob", now=earlier) == MINUTE
    assert today(db, "eve", now=earlier) == 75 * MINUTE


def placed(tx: Tx, owner: str, pool: str, nodes: tuple[str, ...] = ("n1",)) -> tuple[Job, Attempt]:
    job = waiting(tx, owner=owner)
    job = jobs.save_job(tx, replace(job, pool=pool, attempt=1), expected_version=job.version)
    attempt = replace(an_attempt(job, nodes=nodes), pool=pool)
    attempts.insert_attempt(tx, attempt)
    return job, attempt


def test_a_job_holds_its_place_from_the_order_to_the_end(db: Database) -> None:
    def fill(tx: Tx) -> Job:
        placed(tx, "ann", "public", ("n1", "n2"))
        placed(tx, "ann", "private")
        waiting(tx, owner="ann")
        return placed(tx, "bob", "public")[0]

    def held(owner: str) -> Used | None:
        return db.read(lambda tx: usage.resources_held(tx, ["ann", "bob"], ["public"])).get(owner)

    job = db.write(fill)
    assert held("ann") == Used(jobs=1, resources=Resources(cpu=2.0, memory=200, gpu=0))
    assert held("bob") == Used(jobs=1, resources=Resources(cpu=1.0, memory=100, gpu=0))
    started = db.write(lambda tx: jobs.advance(tx, job, Event.STARTED, now=NOW))
    assert held("bob") is not None
    db.write(lambda tx: jobs.advance(tx, started, Event.SUCCEEDED, now=NOW))
    assert held("bob") is None
    assert db.read(lambda tx: usage.resources_held(tx, ["ann"], [])) == {}


def test_many_owners_are_asked_about_in_few_statements(db: Database) -> None:
    names = [f"user-{number}" for number in range(usage.AT_ONCE + 1)]
    db.write(lambda tx: a_run(tx, owner=names[0], began=NOW - MINUTE))
    db.write(lambda tx: a_run(tx, owner=names[-1], began=NOW - 2 * MINUTE))
    found = db.read(lambda tx: usage.ran_today(tx, names, TODAY.start, NOW))
    assert set(found) == {"user-0", f"user-{usage.AT_ONCE}"}


def test_a_plan_is_given_and_read_with_its_limits(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for name in ("ann", "bob"):
            users.create_user(tx, User(id=name), NOW)
        assert usage.set_plan(tx, "ann", "big", {"cpu": 2.5, "storage": None})
        assert not usage.set_plan(tx, "eve", "big", {})

    db.write(fill)
    found = db.read(lambda tx: usage.plans(tx, ["ann", "bob", "eve"]))
    assert found == {"ann": ("big", {"cpu": 2.5, "storage": None})}
    db.write(lambda tx: usage.set_plan(tx, "ann", None, {}))
    assert db.read(lambda tx: usage.plans(tx, ["ann"])) == {}


def test_what_a_submit_checks_of_its_user(db: Database) -> None:
    def fill(tx: Tx) -> None:
        users.create_user(tx, User(id="ann"), NOW)
        usage.set_plan(tx, "ann", "big", {"cpu": 1})
        usage.add_files(tx, "ann", 100)
        usage.add_files(tx, "ann", 11)
        made = [waiting(tx, owner="ann") for _ in range(4)]
        usage.set_output_bytes(tx, made[0].id, 1000)
        placed(tx, "ann", "public")

    db.write(fill)
    assert db.read(lambda tx: usage.plans(tx, ["ann"])) == {"ann": ("big", {"cpu": 1})}
    assert [db.read(partial(jobs.count_waiting, owner="ann", limit=n)) for n in (None, 10, 3)] == [
        4,
        4,
        3,
    ]
    assert db.read(lambda tx: usage.stored_bytes(tx, "ann")) == 1111
    assert db.read(lambda tx: jobs.count_waiting(tx, "eve", 3)) == 0
    assert db.read(lambda tx: usage.stored_bytes(tx, "eve")) == 0
    db.write(lambda tx: usage.recount_files(tx, "ann", 5, instead_of=111))
    assert db.read(lambda tx: usage.stored_bytes(tx, "ann")) == 1005


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_outputs_is_that_of_the_jobs_that_are_there(db: Database, seed: int) -> None:
    chance = random.Random(seed)
    sizes = {"ann": dict[str, int](), "bob": dict[str, int]()}
    for owner in chance.choices(sorted(sizes), k=60):
        there = sizes[owner]
        known = chance.choice(sorted(there)) if there else ""
        match chance.choice(("submit", "measure", "measure", "delete", "files")):
            case "submit":
                there[db.write(partial(waiting, owner=owner)).id] = 0
            case "measure" if known:
                there[known] = chance.randrange(3) * 2**40
                change = partial(usage.set_output_bytes, job_id=known, size=there[known])
                db.write(change)
            case "delete" if known:
                del there[known]
                assert db.write(partial(jobs.delete_job, job_id=known))
            case "files":
                db.write(partial(usage.recount_files, owner=owner, size=7, instead_of=0))
        for each, of_jobs in sizes.items():
            files = db.read(partial(usage.files_bytes, owner=each))
            stored = db.read(partial(usage.stored_bytes, owner=each))
            assert stored - files == sum(of_jobs.values())
            assert not db.read(partial(usage.outputs_differ, owner=each))


def test_what_was_let_go_uncounted_is_to_be_counted_when_that_begins(db: Database) -> None:
    _, over = db.write(lambda tx: placed(tx, "ann", "public"))
    db.write(lambda tx: placed(tx, "ann", "public"))
    let_go = over.job_id, over.number
    db.write(lambda tx: attempts.release(tx, [over]))
    assert db.read(usage.to_count) == []
    for _ in range(2):
        db.write(partial(usage.set_counting, counting=True))
        assert db.read(usage.to_count) == [let_go]
    db.write(lambda tx: usage.set_output_bytes(tx, let_go[0], 7, ended=[1]))
    db.write(partial(usage.set_counting, counting=True))
    assert db.read(usage.to_count) == []
    for counting, want in ((False, []), (True, [let_go])):
        db.write(partial(usage.set_counting, counting=counting))
        assert db.read(usage.to_count) == want


def execute(tx: Tx, text: str) -> None:
    tx.execute(text)


@pytest.mark.parametrize("sizes", [(50, 0), (2**40, 50)])
def test_outputs_are_counted_anew(db: Database, sizes: tuple[int, int]) -> None:
    db.write(partial(waiting, owner="ann"))
    for size in sizes:
        change = f"update jobs set output_bytes = {size}"
        db.write(partial(execute, text=change))
        assert db.read(partial(usage.outputs_differ, owner="ann"))
        db.write(partial(usage.recount_outputs, owner="ann"))
        assert not db.read(partial(usage.outputs_differ, owner="ann"))
        assert db.read(partial(usage.stored_bytes, owner="ann")) == size
    assert not db.read(partial(usage.outputs_differ, owner="bob"))


@pytest.mark.parametrize(
    ("since", "want"),
    [(0, 40), (7, 47), (-60, 40)],
    ids=["nothing came", "files came", "another count ended"],
)
def test_files_that_come_while_others_are_counted_are_not_lost(
    db: Database, since: int, want: int
) -> None:
    db.write(lambda tx: usage.add_files(tx, "ann", 100))
    db.write(lambda tx: usage.add_files(tx, "ann", since))
    db.write(lambda tx: usage.recount_files(tx, "ann", 40, instead_of=100))
    assert db.read(lambda tx: usage.files_bytes(tx, "ann")) == want
    db.write(lambda tx: usage.recount_files(tx, "new", 40, instead_of=0))
    assert db.read(lambda tx: usage.files_bytes(tx, "new")) == 40


def test_old_runs_are_forgotten_and_live_ones_never(db: Database) -> None:
    def fill(tx: Tx) -> None:
        a_run(tx, began=NOW - 500 * MINUTE, ended=NOW - 400 * MINUTE)
        a_run(tx, began=NOW - 500 * MINUTE, ended=NOW - 1 * MINUTE)
        a_run(tx, began=NOW - 900 * MINUTE)

    db.write(fill)
    assert db.write(lambda tx: usage.delete_old(tx, ["ann", "bob"], NOW - 60 * MINUTE)) == 1
    assert len(db.read(usage.running)) == 1
