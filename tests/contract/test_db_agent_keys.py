"""Keys of agents and the tokens by which agents join, on every database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import agent_keys, attempts, jobs, join_tokens
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.join_tokens import JoinToken
from paddlecloud.model.jobs.job import Attempt
from paddlecloud.model.jobs.states import Event
from paddlecloud.testing import an_attempt
from tests.unit.db.values import ENGINES, NOW, opened, waiting

HOUR = timedelta(hours=1)
AGENT = AgentIdentity(ak="k1", agent_id="agent-1", node="gpu-01", pool="cloud")
TOKEN = JoinToken(digest="d", pool="cloud", uses_left=2, expires_at=NOW + HOUR)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def a_placed_attempt(db: Database) -> Attempt:
    job = db.write(waiting)
    attempt = an_attempt(job, replicas=())
    db.write(lambda tx: attempts.insert_attempt(tx, attempt))
    return attempt


def test_a_key_is_valid_until_the_machine_gets_another(db: Database) -> None:
    heard: list[tuple[str, str]] = []
    db.subscribe(lambda channel, payload: heard.append((channel, payload)))
    db.write(lambda tx: agent_keys.create_key(tx, AGENT, NOW, join_token="d"))
    assert db.read(lambda tx: agent_keys.find_key(tx, "k1")) == AGENT
    assert db.read(lambda tx: agent_keys.joined_with(tx, "k1", "d")) == AGENT
    assert db.read(lambda tx: agent_keys.joined_with(tx, "k1", "other")) is None
    second = replace(AGENT, ak="k2")
    db.write(lambda tx: agent_keys.revoke_keys(tx, "gpu-01", NOW))
    db.write(lambda tx: agent_keys.create_key(tx, second, NOW))
    assert db.read(lambda tx: agent_keys.find_key(tx, "k1")) is None
    assert db.read(lambda tx: agent_keys.joined_with(tx, "k1", "d")) is None
    assert db.read(lambda tx: agent_keys.agent_of(tx, "gpu-01")) == second
    assert {payload for channel, payload in heard if channel == "token"} == {"k1", "k2"}


def test_a_key_for_one_attempt_ends_with_it(db: Database) -> None:
    attempt = a_placed_attempt(db)
    agent = replace(AGENT, job_id=attempt.job_id, attempt=1)
    db.write(lambda tx: agent_keys.create_key(tx, agent, NOW))
    assert db.read(lambda tx: agent_keys.find_key(tx, "k1")) == agent
    ended = (attempt.job_id, 1, NOW, Event.BROKE)
    db.write(lambda tx: attempts.end_attempt(tx, *ended))
    assert db.read(lambda tx: agent_keys.find_key(tx, "k1")) == agent, "it still sends outputs"
    db.write(lambda tx: attempts.release(tx, [attempt], to_count=False))
    assert db.read(lambda tx: agent_keys.find_key(tx, "k1")) is None
    assert db.read(lambda tx: agent_keys.agent_of(tx, "gpu-01")) is None


def test_a_join_token_ends_with_its_uses_and_its_time(db: Database) -> None:
    db.write(lambda tx: join_tokens.put(tx, TOKEN, NOW))
    assert db.read(lambda tx: join_tokens.find(tx, "d", NOW)) == TOKEN
    assert [db.write(lambda tx: join_tokens.use(tx, "d")) for _ in range(3)] == [True, True, False]
    db.write(lambda tx: join_tokens.put(tx, TOKEN, NOW))
    assert db.write(lambda tx: join_tokens.use(tx, "d")), "it was renewed"
    assert db.read(lambda tx: join_tokens.find(tx, "d", NOW + HOUR)) is None
    other = replace(TOKEN, digest="e", expires_at=NOW + 3 * HOUR)
    db.write(lambda tx: join_tokens.put(tx, other, NOW + 2 * HOUR))
    assert db.read(lambda tx: tx.all("select digest from join_tokens")) == [("e",)]
    db.write(lambda tx: join_tokens.delete(tx, "e"))
    assert db.read(lambda tx: join_tokens.find(tx, "e", NOW)) is None


def test_a_join_token_for_one_attempt_ends_with_it(db: Database) -> None:
    attempt = a_placed_attempt(db)
    token = replace(TOKEN, job_id=attempt.job_id, attempt=1)
    db.write(lambda tx: join_tokens.put(tx, token, NOW))
    assert db.read(lambda tx: join_tokens.find(tx, "d", NOW)) == token
    ended = (attempt.job_id, 1, NOW, Event.BROKE)
    db.write(lambda tx: attempts.end_attempt(tx, *ended))
    assert db.read(lambda tx: join_tokens.find(tx, "d", NOW)) is None
    db.write(lambda tx: jobs.delete_job(tx, attempt.job_id))
    assert db.read(lambda tx: tx.all("select digest from join_tokens")) == []
