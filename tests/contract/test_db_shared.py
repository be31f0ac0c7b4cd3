"""What the database promises about agents, keys, snapshots, and what servers must agree on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import (
    agents,
    attempts,
    counters,
    idempotency,
    jobs,
    leases,
    nonces,
    rate_limits,
    servers,
    snapshots,
    tokens,
    users,
)
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.idempotency import KnownKey
from paddlecloud.db.tables.servers import Server
from paddlecloud.db.tables.tokens import Token, TokenKind
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.errors import Conflict
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of
from paddlecloud.model.jobs.job import Job, ReplicaState, Resources
from tests.unit.db.values import (
    ENGINES,
    NOW,
    SECOND,
    Ear,
    a_spec,
    an_attempt,
    opened,
    waiting,
)

AGENT = Agent(
    id="agent-1",
    pool="local",
    boot="b1",
    version="0.1.0",
    host="127.0.0.1",
    capacity=Resources(cpu=2.0, memory=1 << 34, gpu=1),
    enforces={"cpu": True, "memory": False, "pids": True},
    seen_at=NOW,
)
TTL = timedelta(seconds=10)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_snapshot(*names: str) -> Snapshot:
    return snapshot_of(
        Entry(path=name, size=len(name), sha256=f"{number:064x}")
        for number, name in enumerate(names)
    )


def test_of_two_that_spend_one_nonce_exactly_one_may(db: Database) -> None:
    start = threading.Barrier(8)

    def spend(_: int) -> list[bool]:
        start.wait(30)
        return [
            db.write(
                lambda tx, n=n: nonces.spend_nonce(tx, "ak", f"{n:032x}", NOW),  # type: ignore[misc]
                durable=False,
            )
            for n in range(25)
        ]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(spend, range(8)))
    assert [sum(column) for column in zip(*answers, strict=True)] == [1] * 25


def test_a_nonce_belongs_to_its_key_and_is_forgotten_after_its_time(db: Database) -> None:
    def spend(ak: str) -> bool:
        return db.write(lambda tx: nonces.spend_nonce(tx, ak, "n", NOW))

    assert [spend("a"), spend("b"), spend("a")] == [True, True, False]
    assert db.write(lambda tx: nonces.delete_expired(tx, NOW)) == 0
    assert db.write(lambda tx: nonces.delete_expired(tx, NOW + SECOND)) == 2
    assert spend("a")


def test_an_idempotency_key_means_its_first_job(db: Database) -> None:
    first, second = db.write(waiting), db.write(waiting)

    def remember(job: Job, owner: str = "ann") -> bool:
        return db.write(lambda tx: idempotency.insert_key(tx, owner, "k", job.id, "h", NOW))

    assert [remember(first), remember(second), remember(second, "bob")] == [True, False, True]
    known = db.read(lambda tx: idempotency.find_key(tx, "ann", "k"))
    assert known == KnownKey(job_id=first.id, request_hash="h")
    assert db.read(lambda tx: idempotency.find_key(tx, "ann", "other")) is None
    db.write(lambda tx: jobs.delete_job(tx, first.id))
    assert db.read(lambda tx: idempotency.find_key(tx, "ann", "k")) is None


def test_a_lease_has_one_holder_and_a_fence_that_only_grows(db: Database) -> None:
    def take(holder: str, seconds: int) -> int | None:
        now = NOW + seconds * SECOND
        return db.write(lambda tx: leases.take_lease(tx, "loop", holder, now, TTL))

    assert take("a", 0) == 1
    assert take("b", 9) is None
    assert take("a", 9) == 1, "renewed in time, the fence stays"
    assert take("b", 18) is None
    assert take("b", 19) == 2, "it lapsed and changed hands"
    assert take("a", 20) is None
    assert not db.write(lambda tx: leases.release_lease(tx, "loop", "a", 1))
    assert db.write(lambda tx: leases.release_lease(tx, "loop", "b", 2))
    assert take("b", 21) == 3, "given back, it is taken anew"
    assert take("b", 31) == 4, "lapsed, even its own holder takes it anew"
    assert db.write(leases.break_leases) == 1
    assert take("a", 32) == 5, "broken, it is free at once"


def test_a_lease_that_was_found_dead_is_taken_whatever_its_end_says(db: Database) -> None:
    def take(holder: str, now: datetime, dead: leases.Held | None = None) -> int | None:
        return db.write(lambda tx: leases.take_lease(tx, "loop", holder, now, TTL, dead=dead))

    def seen(holder: str) -> leases.Held | None:
        return db.read(lambda tx: leases.held_by_others(tx, "loop", holder, NOW))

    fast = NOW + timedelta(days=1)
    assert (seen("b"), take("a", fast), seen("a")) == (None, 1, None)
    found = seen("b")
    assert found is not None
    assert take("b", NOW) is None
    assert take("a", fast + SECOND) == 1
    assert seen("b") != found, "it lives"
    assert take("b", NOW, found) is None
    assert take("b", NOW, seen("b")) == 2
    assert take("b", NOW, found) == 2
    assert (seen("b"), take("a", NOW)) == (None, None)


def test_a_fence_is_good_while_the_lease_is_held(db: Database) -> None:
    db.write(lambda tx: leases.take_lease(tx, "loop", "a", NOW, TTL))

    def good(fence: int, seconds: int) -> bool:
        now = NOW + seconds * SECOND
        return db.read(lambda tx: leases.holds_lease(tx, "loop", fence, now))

    assert good(1, 9)
    assert not good(1, 10)
    db.write(lambda tx: leases.take_lease(tx, "loop", "b", NOW + 10 * SECOND, TTL))
    assert [good(1, 11), good(2, 11)] == [False, True]


def test_one_of_many_gets_the_lease(db: Database) -> None:
    def take(holder: int) -> int | None:
        return db.write(lambda tx: leases.take_lease(tx, "loop", str(holder), NOW, TTL))

    with ThreadPoolExecutor(8) as pool:
        fences = list(pool.map(take, range(8)))
    assert sorted(fence for fence in fences if fence is not None) == [1]


def test_a_counter_gives_each_number_once_or_several_at_once(db: Database) -> None:
    def take(tx: Tx) -> list[int]:
        return [counters.next_number(tx, "c", step) for step in (1, 1, 5, 1)]

    assert db.write(take) == [1, 2, 7, 8]
    assert db.write(lambda tx: counters.next_number(tx, "other")) == 1


def test_a_rate_is_exact_in_every_window(db: Database) -> None:
    minute = timedelta(minutes=1)

    def ask(seconds: float, key: str = "ann", limit: int = 3) -> timedelta | None:
        now = NOW + timedelta(seconds=seconds)
        return db.write(lambda tx: rate_limits.allow_rate(tx, "mail", key, limit, minute, now))

    assert [ask(0), ask(0), ask(20)] == [None, None, None]
    assert ask(20) == timedelta(seconds=40), "the first of the last three leaves the window then"
    assert ask(20, "bob") is None, "each key for itself"
    assert ask(59.9) == timedelta(seconds=0.1)
    assert [ask(60), ask(60)] == [None, None]
    assert ask(60) == timedelta(seconds=20), "what was refused does not count"
    assert ask(60, limit=0) == minute
    assert ask(60, limit=1) == minute
    count = "select count(*) from rate_marks"
    assert db.read(lambda tx: tx.one(count)) == (4,)
    assert ask(1000, "cid") is None
    assert db.read(lambda tx: tx.one(count)) == (1,), "what is too old is forgotten, whose ever"


def test_a_clock_that_was_wrong_does_not_lock_anybody_out(db: Database) -> None:
    def ask(days: int) -> timedelta | None:
        now = NOW + timedelta(days=days)
        return db.write(lambda tx: rate_limits.allow_rate(tx, "mail", "a", 1, 60 * SECOND, now))

    assert [ask(400), ask(0), ask(0)] == [None, None, 60 * SECOND]


def test_of_many_at_once_no_more_than_the_limit_are_allowed(db: Database) -> None:
    def ask(_: int) -> bool:
        wait = db.write(lambda tx: rate_limits.allow_rate(tx, "m", "k", 5, TTL, NOW))
        return wait is None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(40))) == 5


def test_a_nonce_is_kept_until_it_has_expired_by_the_clock_of_every_server(db: Database) -> None:
    def seen(boot: str, at: datetime) -> None:
        server = Server(
            boot=boot, place=boot, url="", node="", key_mark="k", version="0", started_at=at,
            seen_at=at,
        )  # fmt: skip
        db.write(lambda tx: servers.heartbeat(tx, server))

    hour = timedelta(hours=1)
    db.write(lambda tx: nonces.spend_nonce(tx, "ak", "n", NOW + SECOND))
    seen("right", NOW)
    seen("fast", NOW + hour)
    assert db.write(lambda tx: nonces.delete_expired(tx, NOW + hour)) == 0
    seen("right", NOW + hour)
    assert db.write(lambda tx: nonces.delete_expired(tx, NOW + hour)) == 1


def test_many_nonces_are_spent_in_one_statement(db: Database) -> None:
    first = db.write(lambda tx: nonces.spend_nonces(tx, {("a", "1"): 9, ("a", "2"): 9}))
    assert first == {("a", "1"), ("a", "2")}
    again = db.write(lambda tx: nonces.spend_nonces(tx, {("b", "1"): 9, ("a", "2"): 9}))
    assert again == {("b", "1")}


def test_agents_that_fell_silent_are_forgotten_unless_they_have_work(db: Database) -> None:
    attempt = db.write(lambda tx: an_attempt(waiting(tx), nodes=("busy",)))
    db.write(lambda tx: attempts.insert_attempt(tx, attempt))
    for name, age in (("busy", 2), ("gone", 2), ("here", 0)):
        agent = replace(AGENT, id=name, seen_at=NOW - age * SECOND)
        db.write(partial(agents.upsert_agent, agent=agent))

    def forget() -> list[str]:
        db.write(lambda tx: agents.delete_silent(tx, NOW - SECOND))
        return [agent.id for agent in db.read(agents.list_agents)]

    assert forget() == ["busy", "here"]
    over = replace(attempt.replicas[0], state=ReplicaState.EXITED)
    db.write(lambda tx: attempts.update_replica(tx, over))
    assert forget() == ["here"]


def test_a_poll_is_written_when_it_says_something_new_or_now_and_then(db: Database) -> None:
    ear = Ear(db)

    def seen(agent: Agent) -> bool:
        expected = db.read(lambda tx: agents.needs_saving(tx, agent))
        written = db.write(lambda tx: agents.upsert_agent(tx, agent))
        assert written is expected
        return written

    def later(seconds: float, **changes: str) -> Agent:
        return replace(AGENT, seen_at=NOW + timedelta(seconds=seconds), **changes)  # type: ignore[arg-type]

    assert seen(AGENT)
    assert not seen(later(4.9))
    assert db.read(agents.list_agents) == [AGENT]
    assert seen(later(5.0))
    assert seen(later(5.1, boot="b2"))
    assert db.read(lambda tx: agents.get_agent(tx, "agent-1")) == later(5.1, boot="b2")
    assert ear.heard() == [("agents", "agent-1")] * 2


def test_a_key_speaks_for_its_user_until_it_is_revoked(db: Database) -> None:
    ear = Ear(db)
    user = User(id="ann", role=UserRole.ADMIN)

    def create(tx: Tx) -> tuple[bool, bool, bool]:
        new = users.create_user(tx, user, NOW)
        again = users.create_user(tx, User(id="ann"), NOW)
        return new, again, tokens.create_token(tx, "ak", "ann", NOW)

    assert db.write(create) == (True, False, True)
    assert db.read(lambda tx: users.get_user(tx, "ann")) == user
    assert db.read(lambda tx: users.get_user(tx, "bob")) is None
    assert db.read(lambda tx: tokens.find_token(tx, "ak")) == Token(
        ak="ak", user_id="ann", kind=TokenKind.USER, role=UserRole.ADMIN
    )
    assert db.write(lambda tx: tokens.revoke_token(tx, "ak", NOW))
    assert not db.write(lambda tx: tokens.revoke_token(tx, "ak", NOW))
    assert db.read(lambda tx: tokens.find_token(tx, "ak")) is None
    assert not db.write(lambda tx: tokens.create_token(tx, "ak", "ann", NOW))
    assert ear.heard() == [("token", "ak")] * 2


def test_a_snapshot_is_its_owners_and_comes_back_entry_by_entry(db: Database) -> None:
    snapshot = snapshot_of(
        [
            Entry(path="数据/训练.txt", size=3, sha256="a" * 64, executable=True),
            Entry(path="empty", kind=EntryKind.DIRECTORY),
            Entry(path="link", kind=EntryKind.LINK, target="empty"),
        ]
    )
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", snapshot, NOW))
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", snapshot, NOW))
    assert db.read(lambda tx: snapshots.get_snapshot(tx, "ann", snapshot.id)) == snapshot
    assert db.read(lambda tx: snapshots.last_use(tx, "ann", snapshot.id)) == NOW
    assert db.read(lambda tx: snapshots.get_snapshot(tx, "bob", snapshot.id)) is None
    assert db.read(lambda tx: snapshots.last_use(tx, "bob", snapshot.id)) is None


def test_a_use_of_a_snapshot_is_noted_to_the_hour(db: Database) -> None:
    snapshot = a_snapshot("used")
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", snapshot, NOW))

    def use(minutes: int, owner: str = "ann") -> bool:
        now = NOW + timedelta(minutes=minutes)
        return db.write(lambda tx: snapshots.touch(tx, owner, snapshot.id, now))

    assert [use(59), use(1, "bob")] == [True, False]
    assert db.read(lambda tx: snapshots.last_use(tx, "ann", snapshot.id)) == NOW
    assert use(60)
    later = db.read(lambda tx: snapshots.last_use(tx, "ann", snapshot.id))
    assert later == NOW + timedelta(hours=1)


def test_only_snapshots_that_nobody_needs_are_deleted(db: Database) -> None:
    used, old, fresh = a_snapshot("used"), a_snapshot("old", "b"), a_snapshot("fresh")

    def fill(tx: Tx) -> Job:
        snapshots.put_snapshot(tx, "ann", used, NOW)
        snapshots.put_snapshot(tx, "bob", used, NOW)
        snapshots.put_snapshot(tx, "ann", old, NOW)
        snapshots.put_snapshot(tx, "ann", fresh, NOW + SECOND)
        return waiting(tx, spec=a_spec(snapshot=used.id))

    job = db.write(fill)
    before = NOW + SECOND
    unused = db.read(lambda tx: snapshots.unused_snapshots(tx, before))
    assert sorted(unused) == [("ann", old.id), ("bob", used.id)]
    by_use = db.read(lambda tx: snapshots.ids_by_use(tx, "ann"))
    assert by_use == [*sorted((used.id, old.id)), fresh.id]

    def delete(snapshot: Snapshot) -> bool:
        return db.write(lambda tx: snapshots.delete_snapshot(tx, "ann", snapshot.id, before))

    assert [delete(used), delete(old), delete(fresh), delete(old)] == [False, True, False, False]
    db.write(lambda tx: jobs.delete_job(tx, job.id))
    assert delete(used)


def test_the_contents_of_a_snapshot(db: Database) -> None:
    link = Entry(path="way", kind=EntryKind.LINK, target="a")
    found = snapshot_of([*a_snapshot("a", "b").entries, link])
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", found, NOW))
    digests = db.read(lambda tx: snapshots.get_digests(tx, "ann", found.id))
    assert digests == {f"{i:064x}" for i in (0, 1)}
    assert db.read(lambda tx: snapshots.get_digests(tx, "bob", found.id)) is None


def test_a_job_cannot_refer_to_files_that_are_not_there(db: Database) -> None:
    with pytest.raises(Conflict):
        db.write(lambda tx: waiting(tx, spec=a_spec(snapshot="sha256:unknown")))
    assert db.read(jobs.count_by_state) == {}
