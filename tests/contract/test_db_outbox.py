"""What the database promises about what is to be sent: once per id, in turn, by one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import notification_prefs, outbox, users
from paddlecloud.db.tables.notification_prefs import Wishes
from paddlecloud.db.tables.outbox import MAIL, WEBHOOK
from paddlecloud.db.tables.users import User
from paddlecloud.model.jobs.job import Reason
from tests.unit.db.values import ENGINES, NOW, SECOND, opened, waiting

LEASE = timedelta(minutes=5)
ERROR = Reason(code="mail_refused", params={"host": "h", "status": 450})


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def put(db: Database, **changes: Any) -> bool:
    plain: dict[str, Any] = {
        "kind": MAIL,
        "owner": "ann",
        "address": "ann@example.com",
        "template": "mail_ended",
        "params": {"job_name": "训练", "attempt": 1, "share": 0.5, "reason": None},
        "lang": "zh",
        "now": NOW,
    }
    return db.write(lambda tx: outbox.put(tx, **(plain | changes)))


def take(db: Database, *, kind: str = MAIL, limit: int = 4, **how: Any) -> list[str]:
    at = how.pop("at", NOW + LEASE)
    taken = db.write(lambda tx: outbox.take_due(tx, at, limit, kind=kind, lease=LEASE, **how))
    return [row.id for row in taken]


def test_a_row_comes_back_as_it_was_put(db: Database) -> None:
    assert put(db, id="one")
    row = db.read(lambda tx: outbox.get(tx, "one"))
    assert row is not None
    assert row.params == {"job_name": "训练", "attempt": 1, "share": 0.5, "reason": None}
    assert (row.kind, row.owner, row.address, row.lang) == (MAIL, "ann", "ann@example.com", "zh")
    assert (row.created_at, row.tries, row.last_error, row.sent_at) == (NOW, 0, None, None)


def test_an_id_is_used_once(db: Database) -> None:
    assert put(db, id="one")
    assert not put(db, id="one", owner="bob")
    assert put(db)
    assert put(db)
    assert db.read(outbox.count_waiting) == {MAIL: 3}


def test_one_at_a_time_of_each_owner_and_the_longest_waiting_first(db: Database) -> None:
    for number in range(3):
        for owner in ("a", "b"):
            put(db, kind=WEBHOOK, owner=owner, now=NOW + number * SECOND, id=f"{owner}{number}")
    assert take(db) == []
    assert take(db, kind=WEBHOOK) == ["a0", "b0"]
    assert take(db, kind=WEBHOOK, busy={"a"}) == ["b1"]
    assert take(db, kind=WEBHOOK, limit=1) == ["a1"]
    assert sorted(take(db, kind=WEBHOOK)) == ["a2", "b2"]
    assert take(db, kind=WEBHOOK) == []


def test_a_row_that_was_taken_is_due_again_when_its_time_is_over(db: Database) -> None:
    put(db, id="one")
    assert take(db, at=NOW) == ["one"]
    assert take(db, at=NOW + LEASE - SECOND) == []
    assert not db.read(lambda tx: outbox.has_due(tx, NOW))
    assert db.read(lambda tx: outbox.has_due(tx, NOW + LEASE))
    assert take(db, at=NOW + LEASE) == ["one"]
    row = db.read(lambda tx: outbox.get(tx, "one"))
    assert row is not None and row.tries == 2


def test_a_row_is_taken_by_one_of_many(db: Database) -> None:
    for number in range(20):
        put(db, owner=f"u{number}", id=f"{number}")
    with ThreadPoolExecutor(8) as pool:
        taken = [id for ids in pool.map(lambda _: take(db, at=NOW), range(16)) for id in ids]
    assert sorted(taken) == sorted(str(number) for number in range(20))


def test_what_is_sent_or_given_up_is_never_due(db: Database) -> None:
    for name in ("sent", "given", "failed"):
        put(db, id=name, owner=name)
    later = NOW + timedelta(hours=1)
    db.write(lambda tx: outbox.sent(tx, "sent", NOW))
    db.write(lambda tx: outbox.give_up(tx, "given", ERROR, NOW))
    db.write(lambda tx: outbox.failed(tx, "failed", ERROR, later))
    assert take(db, at=later - SECOND) == []
    assert take(db, at=later) == ["failed"]
    given = db.read(lambda tx: outbox.get(tx, "given"))
    assert given is not None and (given.last_error, given.given_up_at) == (ERROR, NOW)
    db.write(lambda tx: outbox.failed(tx, "sent", ERROR, NOW))
    sent = db.read(lambda tx: outbox.get(tx, "sent"))
    assert sent is not None and (sent.last_error, sent.sent_at) == (None, NOW)


def test_what_waits_for_one_receiver_is_postponed_together(db: Database) -> None:
    put(db, id="a", kind=WEBHOOK)
    put(db, id="b", kind=WEBHOOK)
    put(db, id="mail")
    put(db, id="other", kind=WEBHOOK, owner="bob")
    later = NOW + LEASE
    db.write(lambda tx: outbox.postpone(tx, "ann", WEBHOOK, later))
    assert take(db, kind=WEBHOOK, at=NOW) == ["other"]
    assert take(db, at=NOW) == ["mail"]
    assert take(db, kind=WEBHOOK, at=later)[0] == "a"
    assert db.write(lambda tx: outbox.drop(tx, "ann", WEBHOOK)) == 2


def test_old_rows_are_forgotten_but_for_those_that_wait(db: Database) -> None:
    put(db, id="old")
    put(db, id="waits")
    put(db, id="new", now=NOW + LEASE)
    for name in ("old", "new"):
        db.write(lambda tx, name=name: outbox.sent(tx, name, NOW))  # type: ignore[misc]
    assert db.write(lambda tx: outbox.delete_old(tx, NOW + SECOND)) == 1
    left = db.read(lambda tx: tx.all("select id from outbox where owner = 'ann' order by id"))
    assert [row[0] for row in left] == ["new", "waits"]
    assert db.read(lambda tx: outbox.count_since(tx, "ann", "mail_ended", NOW)) == 1


def test_a_row_rings_the_bell_with_its_commit_only(db: Database) -> None:
    heard: list[str] = []
    stop = db.subscribe(lambda channel, _payload: heard.append(channel))
    with pytest.raises(RuntimeError):
        db.write(_put_and_fail)
    assert outbox.CHANNEL not in heard
    put(db)
    assert heard.count(outbox.CHANNEL) == 1
    stop()


def _put_and_fail(tx: Tx) -> None:
    outbox.put(tx, kind=MAIL, owner="a", address="", template="t", params={}, lang="en", now=NOW)
    raise RuntimeError("rolled back")


def test_choices_are_kept_and_told(db: Database) -> None:
    heard: list[tuple[str, str]] = []
    db.subscribe(lambda channel, payload: heard.append((channel, payload)))
    db.write(lambda tx: users.create_user(tx, User(id="ann"), NOW))
    assert db.read(notification_prefs.subscribers) == frozenset()
    wishes = Wishes(events=("ended",), webhook="https://a.example/", webhook_secret="v1.x.y")
    db.write(lambda tx: notification_prefs.save_wishes(tx, "ann", wishes))
    assert ("user", "ann") in heard
    assert db.read(notification_prefs.subscribers) == {"ann"}
    choice = db.read(lambda tx: notification_prefs.get_choice(tx, "ann"))
    assert choice is not None and choice.wishes == wishes
    db.write(lambda tx: tx.execute("update users set disabled_at = 1 where id = 'ann'"))
    assert db.read(notification_prefs.subscribers) == frozenset()
    db.write(lambda tx: notification_prefs.save_wishes(tx, "ann", Wishes()))
    assert db.read(lambda tx: tx.one("select notify from users where id = 'ann'")) == (None,)
    assert db.read(lambda tx: notification_prefs.get_choice(tx, "nobody")) is None


def test_jobs_that_wait_long_and_were_not_told_of(db: Database) -> None:
    job = db.write(lambda tx: waiting(tx, owner="ann"))
    db.write(lambda tx: waiting(tx, owner="bob"))

    def untold(since: Any) -> list[str]:
        return db.read(
            lambda tx: notification_prefs.waiting_unnotified(tx, "ann", since, "long_queue", 9)
        )

    assert untold(NOW - SECOND) == []
    assert untold(NOW) == [job.id]
    put(db, id=f"webhook.long_queue.{job.id}.{job.attempt}")
    assert untold(NOW) == []
