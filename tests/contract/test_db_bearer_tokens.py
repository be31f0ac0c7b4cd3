"""Bearer tokens, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import bearer_tokens
from paddlecloud.db.tables.bearer_tokens import METRICS, BearerToken
from tests.unit.db.values import ENGINES, NOW, opened

LATER = NOW + timedelta(minutes=1)
TOKEN = BearerToken(ak="a1", scope=METRICS, name="prometheus", created_at=NOW)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def test_a_token_is_found_by_its_digest_until_it_is_revoked(db: Database) -> None:
    db.write(lambda tx: bearer_tokens.insert(tx, TOKEN, "d1"))
    second = replace(TOKEN, ak="a2", created_at=LATER)
    db.write(lambda tx: bearer_tokens.insert(tx, second, "d2"))
    assert db.read(lambda tx: bearer_tokens.find(tx, "d1")) == TOKEN
    assert db.read(lambda tx: bearer_tokens.find(tx, "a1")) is None
    assert db.read(lambda tx: bearer_tokens.list_all(tx, revoked=False)) == [second, TOKEN]
    assert db.read(bearer_tokens.count) == 2

    assert db.write(lambda tx: bearer_tokens.revoke(tx, "a1", LATER))
    assert not db.write(lambda tx: bearer_tokens.revoke(tx, "a1", LATER + timedelta(hours=1)))
    assert not db.write(lambda tx: bearer_tokens.revoke(tx, "none", LATER))
    revoked = replace(TOKEN, revoked_at=LATER)
    assert db.read(lambda tx: bearer_tokens.find(tx, "d1")) is None
    assert db.read(lambda tx: bearer_tokens.get(tx, "a1")) == revoked
    assert db.read(lambda tx: bearer_tokens.list_all(tx, revoked=False)) == [second]
    assert db.read(lambda tx: bearer_tokens.list_all(tx, revoked=True)) == [second, revoked]
    assert db.read(bearer_tokens.count) == 1


def test_a_use_is_stored_every_few_minutes(db: Database) -> None:
    db.write(lambda tx: bearer_tokens.insert(tx, TOKEN, "d1"))
    assert bearer_tokens.is_use_due(TOKEN, NOW)
    db.write(lambda tx: bearer_tokens.note_use(tx, "a1", NOW))
    used = db.read(lambda tx: bearer_tokens.find(tx, "d1"))
    assert used == replace(TOKEN, last_used_at=NOW)
    assert not bearer_tokens.is_use_due(used, LATER)
    assert bearer_tokens.is_use_due(used, NOW + timedelta(minutes=5))
    assert bearer_tokens.is_use_due(used, NOW - timedelta(hours=1)), "the clock was set back"
