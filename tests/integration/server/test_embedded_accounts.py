"""The files of keys say what is so: whatever else is in them is put right at the next start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import agent_keys, tokens
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.services.accounts.embedded_accounts import embedded_agent, embedded_user
from tests.sqlite import open_with_tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = b"k" * 32


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    db = open_with_tables(tmp_path / "x.db", now=NOW)
    yield db
    db.close()


def test_the_same_keys_are_kept(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    name = embedded_user(db, KEY, path, NOW)
    before = path.read_text()
    assert embedded_user(db, KEY, path, NOW) == name
    assert path.read_text() == before


@pytest.mark.parametrize("change", [{"sk": "0" * 64}, {"user_id": "mallory"}, {"more": 1}])
def test_a_wrong_word_is_put_right_without_a_new_key(
    db: Database, tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "credentials.json"
    name = embedded_user(db, KEY, path, NOW)
    right = json.loads(path.read_text())
    path.write_text(json.dumps(right | change))
    assert embedded_user(db, KEY, path, NOW) == name
    assert json.loads(path.read_text()) == right


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"ak": "unknown"}', '{"ak": null}'])
def test_a_damaged_file_gets_new_keys(db: Database, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "credentials.json"
    name = embedded_user(db, KEY, path, NOW)
    path.write_text(damage)
    assert embedded_user(db, KEY, path, NOW) == name
    facts = json.loads(path.read_text())
    assert facts["sk"] == secret_of(KEY, facts["ak"])
    assert db.read(lambda tx: tokens.find_token(tx, facts["ak"])) is not None


def test_an_agent_follows_its_server_to_another_place(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    embedded_agent(db, KEY, path, "local", "local", tmp_path / "old.json", NOW)
    ak = json.loads(path.read_text())["ak"]
    embedded_agent(db, b"other" * 8, path, "local", "local", tmp_path / "new.json", NOW)
    assert json.loads(path.read_text()) == {
        "agent_id": "local",
        "ak": ak,
        "sk": secret_of(b"other" * 8, ak),
        "endpoint_file": str(tmp_path / "new.json"),
    }


def test_the_key_of_a_user_does_not_serve_an_agent(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    embedded_user(db, KEY, path, NOW)
    ak = json.loads(path.read_text())["ak"]
    embedded_agent(db, KEY, path, "local", "local", tmp_path / "server.json", NOW)
    assert json.loads(path.read_text())["ak"] != ak


def test_an_agent_from_before_it_had_a_pool_keeps_its_key(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    legacy = AgentIdentity(ak="a" * 32, agent_id="local", node="local", pool="")
    db.write(lambda tx: agent_keys.create_key(tx, legacy, NOW))
    path.write_text(json.dumps({"ak": legacy.ak}))
    embedded_agent(db, KEY, path, "local", "gpus", tmp_path / "server.json", NOW)
    assert json.loads(path.read_text())["ak"] == legacy.ak
    assert db.read(lambda tx: agent_keys.find_key(tx, legacy.ak)) == replace(legacy, pool="gpus")
