"""What is used now, and commands beside replicas, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, exec_commands, jobs, live_usage
from paddlecloud.db.tables.exec_commands import Command
from paddlecloud.db.tables.live_usage import Use
from paddlecloud.model.jobs.job import Attempt, ReplicaState
from tests.unit.db.values import ENGINES, NOW, SECOND, Ear, an_attempt, opened, waiting


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def placed(db: Database, owner: str = "ann") -> Attempt:
    def write(tx: Tx) -> Attempt:
        attempt = an_attempt(waiting(tx, owner=owner), nodes=("n1", "n2"))
        attempts.insert_attempt(tx, attempt)
        return attempt

    return db.write(write)


def a_use(*, memory: int = 100, peak: int = 100, gpu: float | None = None) -> Use:
    return Use(
        at=NOW,
        cpu=0.5,
        memory=memory,
        peak_memory=peak,
        gpu=gpu,
        gpu_memory=None if gpu is None else 2**40,
        quiet_since=NOW - 3 * SECOND,
    )


def a_command(attempt: Attempt, name: str = "c1", **changes: object) -> Command:
    replica = attempt.replicas[0]
    plain = Command(
        id=name,
        replica=replica.id,
        node=replica.node,
        owner="ann",
        argv=("sh", "-c", "echo 'hi' \U0001f600"),
        timeout=1.5,
        input=5,
        created_at=NOW,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_the_last_use_is_kept_and_the_highest_peak(db: Database) -> None:
    attempt = placed(db)
    first, second = (replica.id for replica in attempt.replicas)
    db.write(lambda tx: live_usage.save(tx, {first: a_use(peak=900), second: a_use(gpu=0.25)}))
    later = replace(a_use(memory=50, peak=200), at=NOW + SECOND, cpu=2.25)
    db.write(lambda tx: live_usage.save(tx, {first: later}), durable=False)
    found = db.read(lambda tx: live_usage.of_attempt(tx, attempt.job_id, 1))
    assert found == {first: replace(later, peak_memory=900), second: a_use(gpu=0.25)}
    assert db.read(lambda tx: live_usage.of_attempt(tx, attempt.job_id, 2)) == {}


def test_an_owner_sees_what_holds_a_place_newest_job_first(db: Database) -> None:
    older, newer, others = placed(db), placed(db), placed(db, owner="bob")
    rank_one = newer.replicas[1].id
    uses = {rank_one: a_use(), others.replicas[0].id: a_use()}
    db.write(lambda tx: live_usage.save(tx, uses))
    over = replace(older.replicas[0], state=ReplicaState.EXITED)
    db.write(lambda tx: attempts.update_replica(tx, over))
    seats = db.read(lambda tx: live_usage.of_owner(tx, "ann", 100))
    assert [(seat.job_id, seat.rank, seat.use) for seat in seats] == [
        (newer.job_id, 0, None),
        (newer.job_id, 1, a_use()),
        (older.job_id, 1, None),
    ]
    assert (seats[0].role, seats[0].state, seats[0].node) == ("TRAINER", "ordered", "n1")
    assert len(db.read(lambda tx: live_usage.of_owner(tx, "ann", 2))) == 2


def test_a_command_comes_back_as_it_was_asked_for(db: Database) -> None:
    attempt = placed(db)
    ear, command = Ear(db), a_command(attempt)
    db.write(lambda tx: exec_commands.insert(tx, command))
    assert db.read(lambda tx: exec_commands.get(tx, "c1")) == command
    assert db.read(lambda tx: exec_commands.get(tx, "c2")) is None
    assert db.read(lambda tx: exec_commands.live_on(tx, "n1")) == [command]
    assert db.read(lambda tx: exec_commands.live_on(tx, "n2")) == []
    assert db.read(lambda tx: exec_commands.count_live(tx, command.replica)) == 1
    assert ("agent", "n1") in ear.heard()


def test_a_command_stops_once_and_ends_once(db: Database) -> None:
    attempt = placed(db)
    command = a_command(attempt)
    db.write(lambda tx: exec_commands.insert(tx, command))
    ear = Ear(db)
    for _ in range(2):
        db.write(lambda tx: exec_commands.ask_stop(tx, command))
    stopping = db.read(lambda tx: exec_commands.get(tx, "c1"))
    assert stopping == replace(command, stop_asked=True)
    assert db.write(lambda tx: exec_commands.end(tx, "c1", at=NOW, exit_code=7, message="exit:"))
    again = db.write(
        lambda tx: exec_commands.end(tx, "c1", at=NOW + SECOND, exit_code=None, message="failed:x")
    )
    assert not again
    ended = db.read(lambda tx: exec_commands.get(tx, "c1"))
    assert ended == replace(command, stop_asked=True, ended_at=NOW, exit_code=7, message="exit:")
    assert db.read(lambda tx: exec_commands.live_on(tx, "n1")) == []
    heard = ear.heard()
    assert heard.count(("agent", "n1")) == 1
    assert ("command", "c1") in heard


def test_what_was_taken_of_a_command_and_who_holds_it_is_known(db: Database) -> None:
    command = a_command(placed(db))
    db.write(lambda tx: exec_commands.insert(tx, command))
    db.write(lambda tx: exec_commands.record_taken(tx, "c1", {"out": 10}))
    db.write(lambda tx: exec_commands.record_taken(tx, "c1", {"out": 5, "err": 3}))
    db.write(lambda tx: exec_commands.record_held(tx, "c1", NOW))
    held = replace(command, taken={"out": 10, "err": 3}, held_at=NOW)
    assert db.read(exec_commands.live) == [held]
    ear = Ear(db)
    assert not db.write(lambda tx: exec_commands.stop_unread(tx, command)), "it was held since"
    assert db.write(lambda tx: exec_commands.stop_unread(tx, held))
    assert not db.write(lambda tx: exec_commands.stop_unread(tx, held))
    db.write(lambda tx: exec_commands.record_held(tx, "c1", NOW + SECOND))
    assert db.read(exec_commands.live) == [replace(held, left=True, stop_asked=True)]
    assert ear.heard().count(("agent", "n1")) == 1


def test_both_go_with_their_job(db: Database) -> None:
    attempt = placed(db)
    db.write(lambda tx: exec_commands.insert(tx, a_command(attempt)))
    db.write(lambda tx: live_usage.save(tx, {attempt.replicas[0].id: a_use()}))
    db.write(lambda tx: jobs.delete_job(tx, attempt.job_id))
    assert db.read(lambda tx: exec_commands.get(tx, "c1")) is None
    assert db.read(lambda tx: tx.one("select count(*) from replica_usage")) == (0,)
