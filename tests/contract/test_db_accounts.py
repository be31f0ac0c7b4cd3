"""What the database promises about users, their keys, and who changed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import audit, tokens, users
from paddlecloud.db.tables.tokens import Origin, Scope, Token, TokenKind
from paddlecloud.db.tables.users import User, UserRole
from tests.unit.db.values import ENGINES, NOW, Ear, opened

MINUTE = timedelta(minutes=1)
ANN = User(id="ann", role=UserRole.READONLY, email="张三@163.com", plan="lab", lang="en")


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_key(tx: Tx, ak: str, user_id: str = "ann", minutes: int = 0, **more: object) -> bool:
    at = NOW + minutes * MINUTE
    return tokens.create_token(tx, ak, user_id, at, **more)  # type: ignore[arg-type]


def test_a_user_comes_back_as_stored_and_changed(db: Database) -> None:
    assert db.write(lambda tx: users.create_user(tx, ANN, NOW))
    found = db.read(lambda tx: users.get_user(tx, "ann"))
    assert found == ANN and found.created_at == NOW
    assert db.read(lambda tx: users.user_of_email(tx, "张三@163.com")) == ANN
    assert db.read(lambda tx: users.user_of_email(tx, "ann")) is None
    changed = replace(ANN, role=UserRole.ADMIN, email=None, plan=None, disabled_at=NOW)
    assert db.write(lambda tx: users.save_user(tx, changed))
    assert db.read(lambda tx: users.get_user(tx, "ann")) == changed
    assert not db.write(lambda tx: users.save_user(tx, replace(changed, id="bob")))


def test_the_keys_of_a_disabled_user_are_no_good_and_everybody_hears_of_it(db: Database) -> None:
    def create(tx: Tx) -> None:
        users.create_user(tx, ANN, NOW)
        a_key(tx, "k1")
        a_key(tx, "k2", scope=Scope.READ)

    db.write(create)
    assert db.read(lambda tx: tokens.find_token(tx, "k2")) == Token(
        ak="k2", user_id="ann", kind=TokenKind.USER, role=UserRole.READONLY, scope=Scope.READ
    )
    ear = Ear(db)
    db.write(lambda tx: users.save_user(tx, replace(ANN, disabled_at=NOW)))
    assert sorted(ear.heard()) == [("token", "k1"), ("token", "k2"), ("user", "ann")]
    assert db.read(lambda tx: tokens.find_token(tx, "k1")) is None
    db.write(lambda tx: users.save_user(tx, ANN))
    assert db.read(lambda tx: tokens.find_token(tx, "k1")) is not None


def test_a_deleted_user_takes_the_keys_along(db: Database) -> None:
    db.write(lambda tx: (users.create_user(tx, ANN, NOW), a_key(tx, "k1")))
    assert db.write(lambda tx: users.delete_user(tx, "ann"))
    assert db.read(lambda tx: tokens.get_token(tx, "k1")) is None
    assert not db.write(lambda tx: users.delete_user(tx, "ann"))


def test_users_are_listed_by_id(db: Database) -> None:
    def create(tx: Tx) -> None:
        for name in ("bob", "ann"):
            users.create_user(tx, User(id=name), NOW)
        a_key(tx, "k1")

    db.write(create)
    assert [user.id for user in db.read(users.list_users)] == ["ann", "bob"]
    assert [u.id for u in db.read(lambda tx: users.list_users(tx, after="ann"))] == ["bob"]
    assert [row.ak for row in db.read(tokens.list_tokens)] == ["k1"]


def test_the_last_use_moves_in_steps_and_the_first_is_told(db: Database) -> None:
    db.write(lambda tx: (users.create_user(tx, ANN, NOW), a_key(tx, "k1", origin=Origin.MAIL)))
    token = db.read(lambda tx: tokens.find_token(tx, "k1"))
    assert token is not None and token.unused_mail
    ear = Ear(db)

    def use(minutes: float) -> bool:
        return db.write(lambda tx: tokens.note_use(tx, "k1", NOW + minutes * MINUTE))

    assert [use(0), use(4), use(5), use(6)] == [True, False, False, False]
    row = db.read(lambda tx: tokens.get_token(tx, "k1"))
    assert row is not None and row.last_used_at == NOW + 5 * MINUTE
    assert ear.heard() == [("token", "k1")]
    assert not db.write(lambda tx: tokens.note_use(tx, "none", NOW))


def test_only_older_mailed_keys_of_the_same_user_are_replaced(db: Database) -> None:
    def create(tx: Tx) -> list[str]:
        users.create_user(tx, ANN, NOW)
        users.create_user(tx, User(id="bob"), NOW)
        a_key(tx, "older", origin=Origin.MAIL)
        a_key(tx, "shown")
        a_key(tx, "bobs", "bob", origin=Origin.MAIL)
        a_key(tx, "new", minutes=1, origin=Origin.MAIL)
        a_key(tx, "newer", minutes=2, origin=Origin.MAIL)
        return tokens.revoke_older_mailed(tx, "new", NOW + 3 * MINUTE)

    assert db.write(create) == ["older"]
    left = {row.ak for row in db.read(tokens.list_tokens)}
    assert left == {"shown", "bobs", "new", "newer"}
    assert db.read(lambda tx: tokens.count_tokens(tx, "ann")) == 1


def test_unused_mailed_keys_are_dropped(db: Database) -> None:
    def create(tx: Tx) -> int:
        users.create_user(tx, ANN, NOW)
        a_key(tx, "old", origin=Origin.MAIL)
        a_key(tx, "used", origin=Origin.MAIL)
        a_key(tx, "shown")
        a_key(tx, "fresh", minutes=9, origin=Origin.MAIL)
        tokens.note_use(tx, "used", NOW)
        return tokens.drop_unused_mailed(tx, "ann", NOW + 5 * MINUTE)

    assert db.write(create) == 1
    assert {row.ak for row in db.read(tokens.list_tokens)} == {"used", "shown", "fresh"}


def test_the_audit_is_newest_first_and_found_by_whom_and_about_whom(db: Database) -> None:
    def record(tx: Tx, minutes: int, actor: str, target: str) -> int:
        detail = {"old_role": "user", "new_role": None, "n": 3, "x": 0.5, "y": True}
        return audit.record(
            tx,
            at=NOW + minutes * MINUTE,
            actor=actor,
            source="192.0.2.1",
            action="user.set",
            target=target,
            detail=detail,
        )

    def fill(tx: Tx) -> list[int]:
        return [record(tx, 0, "chief", "ann"), record(tx, 1, "ann", "x"), record(tx, 2, "b", "c")]

    assert db.write(fill) == [1, 2, 3]
    (row, *_) = db.read(lambda tx: audit.listed(tx, user="chief"))
    assert row.detail == {"old_role": "user", "new_role": None, "n": 3, "x": 0.5, "y": True}
    assert (row.at, row.source, row.target) == (NOW, "192.0.2.1", "ann")

    def numbers(**asked: object) -> list[int]:
        return [r.number for r in db.read(lambda tx: audit.listed(tx, **asked))]  # type: ignore[arg-type]

    assert numbers() == [3, 2, 1]
    assert numbers(user="ann") == [2, 1]
    assert numbers(since=NOW + MINUTE) == [3, 2]
    assert numbers(before=3, limit=1) == [2]


def test_old_rows_of_the_audit_go_a_few_at_a_time(db: Database) -> None:
    def fill(tx: Tx) -> None:
        for minutes in (0, 1, 9, 2, 3, 4):  # the clock of one server was ahead
            at = NOW + minutes * MINUTE
            audit.record(
                tx, at=at, actor="a", source="", action="x", target=f"{minutes}", detail={}
            )

    db.write(fill)

    def forget(before: int, limit: int) -> tuple[bool, list[str]]:
        more = db.write(lambda tx: audit.delete_old(tx, NOW + before * MINUTE, limit))
        return more, [row.target for row in db.read(audit.listed)]

    assert forget(0, 2) == (False, ["4", "3", "2", "9", "1", "0"])
    assert forget(4, 2) == (True, ["4", "3", "2", "9"])
    assert forget(4, 2) == (True, ["4", "3", "9"])
    assert forget(4, 2) == (True, ["4", "9"])
    assert forget(4, 2) == (False, ["4", "9"])
    assert forget(10, 9) == (False, [])
