"""Agents that join with a token: for a pool, or for one attempt."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.db.tables import attempts
from paddlecloud.model.errors import Refused
from paddlecloud.server.http.auth import Caller, secret_of
from paddlecloud.server.services.agents import join
from paddlecloud.testing import Reply, ScriptedAgent, exchange
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World

JOIN = "/api/v1/agent/join"
ADMIN = Caller(ak="", user_id="chief", kind="user", role="admin", source="127.0.0.1")
POOLS = {"local": {"node": "node", "cpu": "1"}, "cloud": {"nodes": "0", "join": "1"}}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(pools=POOLS)


def ask(world: World, token: str, *, instance: str = "", node: str = "") -> Reply:
    """An unsigned request to join."""
    headers = {"host": f"127.0.0.1:{world.stage.port}"}
    body = {"token": token, "instance": instance or secrets.token_hex(16), "node": node or None}
    data = json.dumps(body).encode()
    return exchange("127.0.0.1", world.stage.port, "POST", JOIN, headers, data)


def joined(world: World, reply: Reply) -> ScriptedAgent:
    answer = reply.json()
    assert answer["sk"] == secret_of(world.deps.server_key, answer["ak"])
    return ScriptedAgent(caller=world.signed(answer["ak"]), name=answer["agent_id"])


def a_token(world: World, uses: int = 1, hours: float = 1) -> str:
    lifetime = timedelta(hours=hours)
    return join.create_token(world.deps, ADMIN, "cloud", uses=uses, lifetime=lifetime)


def test_a_machine_joins_a_pool_and_runs_its_jobs(world: World) -> None:
    reply = ask(world, a_token(world), node="gpu-01")
    assert reply.status == 200
    answer = reply.json()
    assert (answer["node"], answer["pool"]) == ("gpu-01", "cloud")
    assert answer["agent_id"] != "gpu-01"
    agent = joined(world, reply)
    job_id = world.submit(cluster="cloud")
    world.plan()
    assert world.look(job_id)["pool"] == "", "the machine was not in contact yet"
    agent.poll()
    world.deps.caches.machines.clear()
    assert [node.id for node in world.deps.nodes()["cloud"]] == ["gpu-01"]
    world.clock.move(seconds=2)
    world.plan()
    order = agent.order(job_id)
    agent.run(order, b"hello\n")
    assert world.state(job_id) == "success"
    assert [node.id for node in world.deps.nodes()["local"]] == ["node-0"]


def test_a_retry_gets_the_same_key_and_counts_once(world: World) -> None:
    token, instance = a_token(world), secrets.token_hex(16)
    first, again = (ask(world, token, instance=instance).json() for _ in range(2))
    assert first == again
    assert first["node"].startswith("node-")
    reply = ask(world, token)
    assert (reply.status, reply.code) == (401, "join_token_unknown")


def test_a_token_ends(world: World) -> None:
    token = a_token(world, uses=9)
    world.clock.move(hours=1)
    assert ask(world, token).code == "join_token_unknown"
    assert ask(world, "wrong").code == "join_token_unknown"


def test_wrong_tokens_are_rate_limited_and_right_ones_are_not(world: World) -> None:
    token = a_token(world)
    for _ in range(join.FAILURES):
        assert ask(world, "wrong").status == 401
    reply = ask(world, "wrong")
    assert (reply.status, reply.code) == (429, "join_often")
    assert ask(world, token).status == 200
    world.clock.move(hours=1)
    assert ask(world, "wrong").status == 401


def test_no_agent_takes_the_machine_of_another(world: World) -> None:
    token = a_token(world, uses=9)
    agent = joined(world, ask(world, token, node="gpu-01"))
    agent.poll()
    for node in ("gpu-01", "node-0"):
        reply = ask(world, token, node=node)
        assert (reply.status, reply.code) == (409, "join_node_taken")
    world.clock.move(minutes=1)
    assert ask(world, token, node="node-0").code == "join_node_taken", "it is of another pool"
    successor = joined(world, ask(world, token, node="gpu-01"))
    successor.poll()
    assert agent.caller.call("GET", "/api/v1/whoami").code == "auth_unknown_key"


@pytest.mark.parametrize(
    "change", [{"token": ""}, {"instance": "short"}, {"node": "../x"}, {"node": "-"}, {"more": 1}]
)
def test_a_wrong_request_is_refused(world: World, change: dict[str, Any]) -> None:
    headers = {"host": f"127.0.0.1:{world.stage.port}"}
    body = json.dumps({"token": a_token(world), "instance": "0" * 16} | change).encode()
    reply = exchange("127.0.0.1", world.stage.port, "POST", JOIN, headers, body)
    assert (reply.status, reply.code) == (400, "body_invalid")


def test_a_pool_without_machines_that_join_has_no_tokens(world: World) -> None:
    with pytest.raises(Refused) as caught:
        join.create_token(world.deps, ADMIN, "none", uses=1, lifetime=join.HOUR)
    assert caught.value.code == "join_pool"


def test_tokens_and_joins_are_in_the_audit(world: World) -> None:
    token = a_token(world)
    ask(world, token, node="gpu-01")
    rows = world.deps.db.read(
        lambda tx: tx.all("select actor, action, target, detail from audit order by number")
    )
    assert [row[:3] for row in rows] == [
        ("chief", "join_token.create", "cloud"),
        ("anonymous", "agent.join", "gpu-01"),
    ]
    assert token not in str(rows)


@pytest.fixture
def on_demand(make_world: MakeWorld) -> World:
    """A pool whose agents join with the credentials that an attempt is started with."""
    return make_world(pools={"local": {"node": "pod", "cpu": "1", "nodes": "2", "join": "1"}})


def test_the_agents_of_an_attempt_join_with_its_credentials(on_demand: World) -> None:
    world = on_demand
    job_id = world.submit()
    world.plan()
    credentials = world.backends["local"].credentials[f"{job_id}-1"]
    assert credentials is not None
    assert credentials.join_token not in repr(credentials)
    other = ask(world, credentials.join_token, node="pod-1")
    assert (other.status, other.code) == (400, "join_node_unknown")
    agent = joined(world, ask(world, credentials.join_token, node="pod-0"))
    order = agent.order(job_id)
    agent.run(order, b"hello\n")
    assert world.state(job_id) == "success"
    assert agent.poll() == [], "it may still send what is left"
    assert ask(world, credentials.join_token, node="pod-0").code == "join_token_unknown"
    world.release()
    world.clock.move(seconds=5)
    assert agent.caller.call("GET", "/api/v1/whoami").code == "auth_unknown_key"


def test_an_attempt_that_is_started_again_has_the_same_credentials(on_demand: World) -> None:
    world = on_demand
    job_id = world.submit()
    world.plan()
    backend = world.backends["local"]
    first = backend.credentials[f"{job_id}-1"]
    (attempt,) = world.deps.db.read(attempts.live_attempts)
    assert join.credentials_for(world.deps, attempt) == first
    assert first is not None
    for _ in range(join.USES_PER_NODE):
        assert ask(world, first.join_token, node="pod-0").status == 200
    assert ask(world, first.join_token, node="pod-0").status == 401
    assert join.credentials_for(world.deps, attempt) == first
    assert ask(world, first.join_token, node="pod-0").status == 200, "its uses were renewed"
