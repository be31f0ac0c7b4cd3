"""Secrets on the server: whose they are, what is stored, and which agent gets them when."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.server.services.accounts import secrets
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, a_submit

SECRETS, JOBS = "/api/v1/secrets", "/api/v1/jobs"
VALUE = b"s3cr3t of someone"


def encoded(value: bytes = VALUE) -> str:
    return base64.b64encode(value).decode()


def test_a_value_is_stored_sealed_and_returned_nowhere(world: World) -> None:
    made = world.user.post(SECRETS, {"name": "wandb", "value": encoded()})
    assert set(made) == {"name", "created_at", "updated_at"}
    world.clock.move(hours=1)
    again = world.user.post(SECRETS, {"name": "wandb", "value": encoded(b"other")})
    assert (again["created_at"], again["updated_at"] > made["updated_at"]) == (
        made["created_at"],
        True,
    )
    world.user.post(SECRETS, {"name": "a.key", "value": encoded()})
    listed = world.user.get(SECRETS)["secrets"]
    assert [row["name"] for row in listed] == ["a.key", "wandb"]
    rows = world.deps.db.read(_everything)
    assert VALUE.decode() not in rows
    assert encoded() not in rows
    assert rows.count("secret.set") == 3


def _everything(tx: Tx) -> str:
    return repr([tx.all(f"select * from {table}") for table in ("secrets", "audit")])


def test_a_secret_belongs_to_its_user(make_world: MakeWorld) -> None:
    world = make_world()
    world.user.post(SECRETS, {"name": "wandb", "value": encoded()})
    other = world.caller("another")
    assert other.get(SECRETS)["secrets"] == []
    reply = other.call("POST", f"{SECRETS}/wandb/delete")
    assert (reply.status, reply.code) == (404, "secret_unknown")
    assert world.user.post(f"{SECRETS}/wandb/delete", {}) == {"name": "wandb"}
    reply = world.user.call("POST", f"{SECRETS}/wandb/delete")
    assert (reply.status, reply.code) == (404, "secret_unknown")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "../x", "value": "eA=="}, "secret_name"),
        ({"name": "", "value": "eA=="}, "secret_name"),
        ({"name": ".hidden", "value": "eA=="}, "secret_name"),
        ({"name": "n" * 65, "value": "eA=="}, "secret_name"),
        ({"name": "x", "value": "not base64!"}, "secret_encoding"),
        ({"name": "x", "value": encoded(b"x" * (64 * 1024 + 1))}, "secret_long"),
    ],
)
def test_a_wrong_secret_is_refused(world: World, body: dict[str, str], code: str) -> None:
    reply = world.user.call("POST", SECRETS, body=body)
    assert (reply.status in (400, 413), reply.code) == (True, code)
    assert world.count("secrets") == 0


def test_a_user_has_a_limited_number_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MAX_SECRETS", 3)
    for number in range(3):
        world.user.post(SECRETS, {"name": f"s{number}", "value": "eA=="})
    reply = world.user.call("POST", SECRETS, body={"name": "more", "value": "eA=="})
    assert (reply.status, reply.code) == (409, "secrets_too_many")
    world.user.post(SECRETS, {"name": "s2", "value": "eQ=="})


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"none": ""}, "secret_missing"),
        ({"theirs": ""}, "secret_missing"),
        ({"binary": "KEY"}, "secret_binary"),
    ],
)
def test_a_job_cannot_be_submitted_without_its_secrets(
    world: World, asked: dict[str, str], code: str
) -> None:
    world.caller("another").post(SECRETS, {"name": "theirs", "value": encoded()})
    world.user.post(SECRETS, {"name": "binary", "value": encoded(b"\xff\0")})
    body = a_submit(world.spec(secret=asked))
    for path in (JOBS, f"{JOBS}/validate"):
        reply = world.user.call("POST", path, body=body)
        assert (reply.status, reply.code) == (422, code)
    assert world.count("jobs") == 0


def fetched(world: World, order: dict[str, Any]) -> dict[str, bytes]:
    answer = world.agent.caller.get(f"/api/v1/agent/replicas/{order['replica']}/secrets")
    return {name: base64.b64decode(value) for name, value in answer["secrets"].items()}


def test_the_agent_of_a_live_replica_gets_the_present_value(world: World) -> None:
    world.user.post(SECRETS, {"name": "wandb", "value": encoded()})
    world.user.post(SECRETS, {"name": "unused", "value": encoded(b"no")})
    job_id, order = world.placed(secret={"wandb": "KEY"})
    assert order["run"]["secrets"] == {"wandb": "KEY"}
    assert encoded() not in repr(order)
    assert fetched(world, order) == {"wandb": VALUE}
    world.user.post(SECRETS, {"name": "wandb", "value": encoded(b"newer")})
    assert fetched(world, order) == {"wandb": b"newer"}
    view = world.user.get(f"{JOBS}/{job_id}")
    assert view["secrets"] == ["wandb=KEY"]
    assert world.user.get(f"{JOBS}/{job_id}/spec")["spec"]["secret"] == {"wandb": "KEY"}
    path = f"/api/v1/agent/replicas/{order['replica']}/secrets"
    world.user.post(f"{SECRETS}/wandb/delete", {})
    reply = world.agent.caller.call("GET", path)
    assert (reply.status, reply.code) == (422, "secret_deleted")
    assert world.user.call("GET", path).status == 401


def test_secrets_go_with_their_user(world: World) -> None:
    other = world.caller("another")
    other.post(SECRETS, {"name": "x", "value": encoded()})
    world.deps.db.write(lambda tx: tx.execute("delete from users where id = ?", ("another",)))
    assert world.count("secrets") == 0
