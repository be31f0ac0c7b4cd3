"""What the database promises about attempts, replicas and the orders that agents follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables.orders import Want, orders_since, set_order
from paddlecloud.model.errors import Conflict
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Job,
    Replica,
    ReplicaState,
    Resources,
    Role,
)
from tests.unit.db.values import ENGINES, NOW, SECOND, Ear, an_attempt, opened, waiting

GRACE = timedelta(seconds=40)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_placed_job(db: Database, *nodes: str, number: int = 1) -> tuple[Job, Attempt]:
    def place(tx: Tx) -> tuple[Job, Attempt]:
        job = waiting(tx)
        attempt = an_attempt(job, nodes=nodes, number=number)
        attempts.insert_attempt(tx, attempt)
        return job, attempt

    return db.write(place)


def orders(db: Database, node: str, cursor: int = 0) -> list[tuple[int, str, str]]:
    found = db.read(lambda tx: orders_since(tx, node, cursor))
    return [(order.seq, order.want.value, order.replica.worker) for order in found]


def test_an_attempt_comes_back_as_it_was_stored(db: Database) -> None:
    def place(tx: Tx) -> Attempt:
        attempt = replace(an_attempt(waiting(tx), nodes=("n1", "n2")), handle={"pod": "x"})
        server = Replica(
            id=f"{attempt.job_id}.1.pserver-0",
            role=Role.PSERVER,
            rank=0,
            node="n1",
            resources=Resources(cpu=0.5, memory=1 << 40, gpu=2),
            host="10.0.0.1",
            port=6174,
        )
        attempt = replace(attempt, replicas=(*attempt.replicas, server))
        attempts.insert_attempt(tx, attempt)
        return attempt

    attempt = db.write(place)
    assert db.read(lambda tx: attempts.get_attempt(tx, attempt.job_id, 1)) == attempt
    assert db.read(lambda tx: attempts.get_attempt(tx, attempt.job_id, 2)) is None


def test_an_attempt_is_stored_once(db: Database) -> None:
    _job, attempt = a_placed_job(db, "n1")
    with pytest.raises(Conflict):
        db.write(lambda tx: attempts.insert_attempt(tx, attempt))
    assert len(orders(db, "n1")) == 1


def test_an_attempt_that_ended_is_no_longer_live_and_keeps_its_first_outcome(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1")
    _other, still = a_placed_job(db, "n1")
    assert db.read(attempts.live_attempts) == [attempt, still]
    db.write(lambda tx: attempts.end_attempt(tx, job.id, 1, NOW, "lost"))
    db.write(lambda tx: attempts.end_attempt(tx, job.id, 1, NOW + SECOND, "success"))
    assert db.read(attempts.live_attempts) == [still]
    kept = db.read(lambda tx: attempts.get_attempt(tx, job.id, 1))
    assert kept is not None
    assert (kept.ended_at, kept.outcome) == (NOW, "lost")


def test_an_attempt_is_found_by_a_replica_of_it(db: Database) -> None:
    job, first = a_placed_job(db, "n1", "n2")
    second = an_attempt(job, nodes=("n2",), number=2, fence=8)
    db.write(lambda tx: attempts.insert_attempt(tx, second))
    for attempt in (first, second):
        for replica in attempt.replicas:
            found = db.read(lambda tx, it=replica: attempts.attempt_of(tx, it.id))  # type: ignore[misc]
            assert found == attempt
    for unknown in ("none", "", f"{job.id}.\u00b2.trainer-0", f"{job.id}.3.trainer-0"):
        assert db.read(lambda tx, it=unknown: attempts.attempt_of(tx, it)) is None  # type: ignore[misc]


def test_an_attempt_is_released_once_and_only_what_exited_is_forgotten(db: Database) -> None:
    ear = Ear(db)
    (early, one), (late, two) = a_placed_job(db, "n1", "n2"), a_placed_job(db, "n1")
    a_placed_job(db, "n1")

    def end(tx: Tx) -> None:
        attempts.update_replica(tx, replace(one.replicas[0], state=ReplicaState.EXITED))
        attempts.update_replica(tx, replace(one.replicas[1], state=ReplicaState.LOST))
        attempts.update_replica(tx, replace(two.replicas[0], state=ReplicaState.EXITED))
        attempts.end_attempt(tx, late.id, 1, NOW + SECOND, "")
        attempts.end_attempt(tx, early.id, 1, NOW, "")

    db.write(end)
    assert [a.job_id for a in db.read(lambda tx: attempts.ended_attempts(tx, 1))] == [early.id]
    ended = db.read(lambda tx: attempts.ended_attempts(tx, 9))
    assert {a.job_id for a in ended} == {early.id, late.id}
    before = len(ear.heard())
    db.write(lambda tx: attempts.release(tx, ended))
    assert db.read(lambda tx: attempts.ended_attempts(tx, 9)) == []
    assert len(ear.heard()) == before, "forgetting is no hurry"
    assert [want for _, want, _ in orders(db, "n1", 4)] == ["forget", "forget"]
    assert [want for _, want, _ in orders(db, "n2")] == ["run"], "a lost one may be alive"
    db.write(lambda tx: attempts.release(tx, ended))
    assert len(orders(db, "n1", 4)) == 2, "repeating it orders nothing new"


def test_ended_attempts_of_some_pools_can_be_left_out(db: Database) -> None:
    def place(tx: Tx, pool: str) -> str:
        attempt = replace(an_attempt(waiting(tx), nodes=("n1",)), pool=pool)
        attempts.insert_attempt(tx, attempt)
        attempts.end_attempt(tx, attempt.job_id, 1, NOW, "")
        return attempt.job_id

    ids = {pool: db.write(partial(place, pool=pool)) for pool in ("a", "b", "c")}

    def ended(*without: str) -> set[str]:
        found = db.read(lambda tx: attempts.ended_attempts(tx, 9, without))
        return {attempt.job_id for attempt in found}

    assert ended() == set(ids.values())
    assert ended("a") == {ids["b"], ids["c"]}
    assert ended("a", "c") == {ids["b"]}
    assert ended("a", "b", "c") == set()


def test_attempts_that_ended_the_same_way_in_a_row_are_counted(db: Database) -> None:
    def end(tx: Tx, number: int, pool: str, outcome: str) -> None:
        attempt = replace(an_attempt(job, nodes=("n1",), number=number), pool=pool)
        attempts.insert_attempt(tx, attempt)
        attempts.end_attempt(tx, job.id, number, NOW, outcome)

    def refused() -> tuple[int, int]:
        a, b = (
            db.read(
                partial(attempts.repeated_outcomes, job_id=job.id, pool=pool, outcome="refused")
            )
            for pool in ("a", "b")
        )
        return a, b

    job = db.write(waiting)
    assert refused() == (0, 0)
    for number, (pool, outcome, want) in enumerate(
        [
            ("a", "refused", (1, 0)),
            ("b", "refused", (1, 1)),
            ("a", "refused", (2, 1)),
            ("b", "lost", (0, 0)),
            ("a", "refused", (1, 0)),
        ],
        1,
    ):
        db.write(partial(end, number=number, pool=pool, outcome=outcome))
        assert refused() == want


def test_an_attempt_holds_its_place_until_it_is_released(db: Database) -> None:
    first, attempt = a_placed_job(db, "n1")
    second, _ = a_placed_job(db, "n1")
    both = [(first.id, 1), (second.id, 1)]
    assert sorted(db.read(attempts.unreleased)) == sorted(both)
    db.write(lambda tx: attempts.end_attempt(tx, first.id, 1, NOW, "lost"))
    assert sorted(db.read(attempts.unreleased)) == sorted(both)
    db.write(lambda tx: attempts.release(tx, [attempt]))
    assert db.read(attempts.unreleased) == [(second.id, 1)]


def test_a_replica_only_moves_down_the_list(db: Database) -> None:
    _job, attempt = a_placed_job(db, "n1")
    ordered = attempt.replicas[0]
    running = replace(
        ordered, state=ReplicaState.RUNNING, pid=42, log_bytes=100, started_at=NOW + SECOND
    )
    record = ExitRecord(
        cause=ExitCause.EXIT,
        exit_code=137,
        signal=9,
        oom=True,
        started_at=NOW,
        finished_at=NOW + SECOND,
        asked_at=NOW,
        hint="no_pserver",
        max_rss=1 << 33,
        cpu_seconds=0.25,
        enforced={"cpu": True, "memory": False},
    )
    exited = replace(running, state=ReplicaState.EXITED, exit=record, log_bytes=150)
    lost = replace(running, state=ReplicaState.LOST)

    def stored() -> Replica | None:
        found = db.read(lambda tx: attempts.attempt_of(tx, ordered.id))
        return found.replicas[0] if found else None

    for replica, after in (
        (running, running),
        (ordered, running),
        (replace(running, log_bytes=50), running),
        (exited, exited),
        (running, exited),
        (exited, exited),
        (lost, replace(lost, log_bytes=150)),
        (exited, replace(lost, log_bytes=150)),
    ):
        db.write(lambda tx, it=replica: attempts.update_replica(tx, it))  # type: ignore[misc]
        assert stored() == after


def test_the_mark_of_a_replica_moves_with_its_state_and_with_its_job(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1")
    (replica,) = attempt.replicas
    marks = [db.read(lambda tx: attempts.replica_mark(tx, replica.id))]
    running = replace(replica, state=ReplicaState.RUNNING)
    db.write(lambda tx: attempts.update_replica(tx, running))
    marks.append(db.read(lambda tx: attempts.replica_mark(tx, replica.id)))
    db.write(lambda tx: jobs.save_job(tx, replace(job, retried=1), expected_version=job.version))
    marks.append(db.read(lambda tx: attempts.replica_mark(tx, replica.id)))
    assert marks == [
        ("ordered", job.version),
        ("running", job.version),
        ("running", job.version + 1),
    ]
    assert db.read(lambda tx: attempts.replica_mark(tx, "none")) is None


def test_placing_orders_every_replica_to_run_on_its_node(db: Database) -> None:
    ear = Ear(db)
    a_placed_job(db, "n1", "n2", "n1")
    assert orders(db, "n1") == [(1, "run", "trainer-0"), (3, "run", "trainer-2")]
    assert orders(db, "n2") == [(2, "run", "trainer-1")]
    assert [payload for channel, payload in ear.heard() if channel == "agent"] == ["n1", "n2"]


def test_an_agent_hears_only_what_is_new_to_it(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1", "n1")
    a_placed_job(db, "n1")

    def stop(tx: Tx) -> int:
        return set_order(tx, job.id, 1, Want.STOP, grace=GRACE, cause=ExitCause.STOPPED)

    assert db.write(stop) == 2
    assert db.write(stop) == 0, "the same order is not given again"
    assert orders(db, "n1", 3) == [(4, "stop", "trainer-0"), (5, "stop", "trainer-1")]
    order = db.read(lambda tx: orders_since(tx, "n1", 3))[0]
    assert (order.grace, order.cause, order.fence) == (GRACE, ExitCause.STOPPED, 7)
    assert (order.job_id, order.attempt, order.replica) == (job.id, 1, attempt.replicas[0])
    assert orders(db, "n1", 5) == []


def test_an_order_never_moves_back_up(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1")

    def want(wanted: Want) -> int:
        return db.write(lambda tx: set_order(tx, job.id, 1, wanted))

    assert [want(Want.STOP), want(Want.RUN)] == [1, 0]
    assert [want(Want.DELETE), want(Want.STOP), want(Want.DELETE)] == [1, 0, 0]
    assert orders(db, "n1", 2) == [(3, "forget", "trainer-0")]
    assert attempt.replicas[0].state is ReplicaState.ORDERED


def test_an_agent_that_starts_anew_hears_every_live_order_and_no_other(db: Database) -> None:
    over, _ = a_placed_job(db, "n1")
    a_placed_job(db, "n1")
    stopped, _ = a_placed_job(db, "n1")
    a_placed_job(db, "n2")
    db.write(lambda tx: set_order(tx, over.id, 1, Want.DELETE))
    db.write(lambda tx: set_order(tx, stopped.id, 1, Want.STOP))
    assert orders(db, "n1") == [(2, "run", "trainer-0"), (6, "stop", "trainer-0")]
    assert db.read(lambda tx: len(orders_since(tx, "n1", 0, 1))) == 1


def test_only_the_named_replicas_get_the_order(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1", "n1")
    only = {attempt.replicas[1].id}
    assert db.write(lambda tx: set_order(tx, job.id, 1, Want.STOP, only=only)) == 1
    assert orders(db, "n1", 2) == [(3, "stop", "trainer-1")]


def test_what_is_in_use_is_added_up_by_node_and_by_owner(db: Database) -> None:
    _job, attempt = a_placed_job(db, "n1", "n1", "n2")
    ended = replace(attempt.replicas[0], state=ReplicaState.EXITED)
    assert db.read(attempts.used_on_nodes) == {
        "n1": Resources(cpu=2.0, memory=200),
        "n2": Resources(cpu=1.0, memory=100),
    }
    db.write(lambda tx: attempts.update_replica(tx, ended))
    assert db.read(attempts.used_on_nodes)["n1"] == Resources(cpu=1.0, memory=100)
    assert db.read(attempts.used_by_owner) == {"ann": Resources(cpu=2.0, memory=200)}


def test_a_deleted_job_takes_its_attempts_and_replicas_along(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1")
    db.write(lambda tx: jobs.delete_job(tx, job.id))
    assert db.read(lambda tx: attempts.attempt_of(tx, attempt.replicas[0].id)) is None
    assert orders(db, "n1") == []


def a_gang(db: Database) -> Attempt:
    """A pserver and a trainer on n1, with ports and cards; another trainer on n2."""

    def place(tx: Tx) -> Attempt:
        attempt = an_attempt(waiting(tx), nodes=("n1", "n2"))
        first, second = attempt.replicas
        server = replace(
            first, id=f"{attempt.job_id}.1.pserver-0", role=Role.PSERVER, port=62001, cards=()
        )
        members = (
            server,
            replace(first, port=62003, cards=(0, 3)),
            replace(second, port=62001, cards=(1,)),
        )
        gang = replace(attempt, replicas=members)
        attempts.insert_attempt(tx, gang)
        return gang

    return db.write(place)


def test_ports_and_cards_are_taken_until_their_replica_is_over(db: Database) -> None:
    gang = a_gang(db)
    nodes = ("n1", "n2", "n3")
    ports = db.read(lambda tx: attempts.ports_in_use(tx, nodes))
    assert ports == {"n1": {62001, 62002, 62003}, "n2": {62001}, "n3": set()}
    cards = db.read(lambda tx: attempts.cards_in_use(tx, nodes))
    assert cards == {"n1": {0, 3}, "n2": {1}, "n3": set()}
    gone = replace(gang.replicas[1], state=ReplicaState.LOST)
    db.write(lambda tx: attempts.update_replica(tx, gone))
    assert db.read(lambda tx: attempts.ports_in_use(tx, ("n1",))) == {"n1": {62001, 62002}}
    assert db.read(lambda tx: attempts.cards_in_use(tx, ("n1",))) == {"n1": set()}
    assert db.read(lambda tx: attempts.ports_in_use(tx, ())) == {}
    assert db.read(lambda tx: attempts.cards_in_use(tx, ())) == {}
    found = db.read(lambda tx: attempts.get_attempt(tx, gang.job_id, 1))
    assert found is not None
    assert {each.id: each.cards for each in found.replicas} == {
        each.id: each.cards for each in gang.replicas
    }


def test_an_order_may_replace_only_those_of_one_kind(db: Database) -> None:
    job, attempt = a_placed_job(db, "n1", "n2")
    first, second = (replica.id for replica in attempt.replicas)

    def stop(tx: Tx, cause: ExitCause, only: str | None, over: Want | None) -> int:
        chosen = None if only is None else {only}
        return set_order(tx, job.id, 1, Want.STOP, cause=cause, only=chosen, over=over)

    assert db.write(lambda tx: stop(tx, ExitCause.PREEMPTED, first, None)) == 1
    assert db.write(lambda tx: stop(tx, ExitCause.STOPPED, None, Want.RUN)) == 1
    found = db.read(lambda tx: orders_since(tx, "n1", 0))
    found += db.read(lambda tx: orders_since(tx, "n2", 0))
    assert {order.replica.id: order.cause for order in found} == {
        first: ExitCause.PREEMPTED,
        second: ExitCause.STOPPED,
    }
