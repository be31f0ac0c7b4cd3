"""Rows of secrets, on every engine: one per owner and name, replaced in place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import secrets, users
from paddlecloud.db.tables.users import User
from tests.unit.db.values import ENGINES, NOW, SECOND, opened


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        for name in ("ann", "bob"):
            database.write(partial(users.create_user, user=User(id=name), now=NOW))
        yield database


def put(db: Database, owner: str, name: str, sealed: str, later: int = 0) -> secrets.SecretRow:
    now = NOW + later * SECOND
    return db.write(
        lambda tx: secrets.put_secret(tx, owner, name, sealed, now, is_text=sealed != "b")
    )


def test_a_secret_is_replaced_in_place(db: Database) -> None:
    put(db, "ann", "x", "a")
    put(db, "bob", "x", "other")
    again = put(db, "ann", "x", "b", later=5)
    assert (again.sealed, again.is_text) == ("b", False)
    assert (again.created_at, again.updated_at) == (NOW, NOW + 5 * SECOND)
    put(db, "ann", "w", "c")
    assert [row.name for row in db.read(lambda tx: secrets.list_secrets(tx, "ann"))] == ["w", "x"]
    found = db.read(lambda tx: secrets.find_secrets(tx, "bob", ["w", "x"]))
    assert [(row.name, row.sealed) for row in found] == [("x", "other")]
    assert db.read(lambda tx: secrets.find_secrets(tx, "bob", [])) == []


def test_deleting_tells_whether_there_was_one(db: Database) -> None:
    put(db, "ann", "x", "a")
    assert db.write(lambda tx: secrets.delete_secret(tx, "bob", "x")) is False
    assert db.write(lambda tx: secrets.delete_secret(tx, "ann", "x")) is True
    assert db.write(lambda tx: secrets.delete_secret(tx, "ann", "x")) is False
