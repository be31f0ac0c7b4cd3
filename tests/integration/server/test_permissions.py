"""Who may call what: every operation of the OpenAPI document, called as everybody there is.

What is expected comes from the document alone (`x-access`, `x-owned`, `x-writes`), so a route that
is added tomorrow is in the matrix without anybody thinking of it; one whose class or whose things
this file does not know fails. Bodies and parameters are made from the document's schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agent_keys, tokens, users
from paddlecloud.db.tables.tokens import Scope
from paddlecloud.db.tables.users import UserRole
from paddlecloud.testing import Reply, SignedCaller, exchange
from tests.integration.server.openapi_contract import api
from tests.integration.server.world import Stage, World

# product.md: health, gen_token, login, presigned and published links, the console's assets, joining
# with a token.
JOIN = ("POST", "/api/v1/agent/join")
AGENT_FILE = ("GET", "/api/v1/agent/package/{sha256}")
CLIENT_FILES = (
    "/install.sh",
    "/paddlecloud_stable.tar.gz",
    "/paddlecloud-{version}-py3-none-any.whl",
    "/{name}.sha256",
)
OPEN = {
    ("GET", "/healthz"),
    ("POST", "/api/v1/gen_token"),
    JOIN,
    AGENT_FILE,
    *(("GET", path) for path in CLIENT_FILES),
}
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in api()["paths"].items()
    for method, operation in operations.items()
]
ACCESS = ("open", "user", "admin", "agent", "job", "metrics")
PEOPLE = (
    "owner", "other", "readonly", "read", "admin", "read_admin", "revoked", "disabled", "agent",
    "worker", "strange_worker", "unsigned",
)  # fmt: skip
MACHINES = {"agent": "agent", "worker": "job", "strange_worker": "job"}
"""Who is no person, and what such a one may call."""
UNKNOWN = {"job_id": "job-" + "0" * 32, "ak": "0" * 32, "sha256": "f" * 64, "secret": "none"}
ENDS_THINGS = ("/kill", "/revoke", "/gc", "/delete")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A world with a running job of `owner`, one key of theirs to ask about, and everybody."""

    world: World
    people: dict[str, SignedCaller]
    things: dict[str, str]
    order: dict[str, Any]

    def ask(self, who: str, method: str, path: str, operation: dict[str, Any]) -> Reply:
        return self.ask_for(self.things, who, method, path, operation)

    def ask_for(
        self,
        things: dict[str, str],
        who: str,
        method: str,
        path: str,
        operation: dict[str, Any],
    ) -> Reply:
        place = re.sub(r"\{(\w+)\}", lambda found: things[found[1]], path)
        query = {
            p["name"]: self._parameter(p["name"])
            for p in operation["parameters"]
            if p["in"] == "query" and p["required"]
        }
        body = _body(operation)
        if who == "unsigned":
            headers = {"host": f"127.0.0.1:{self.world.stage.port}"}
            where = ("127.0.0.1", self.world.stage.port, method, place)
            return exchange(*where, headers, body)
        return self.people[who].call(method, place, query, body)

    def _parameter(self, name: str) -> object:
        known = {"replica": self.order["replica"], "fence": self.order["fence"], "offset": 0}
        return (known | {"upload": "none", "number": 1, "port": 80})[name]


@pytest.fixture(scope="module")
def one_site(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    def team(settings: Any) -> Any:
        return replace(settings, team=True, mail=replace(settings.mail, host="mail.invalid"))

    pools = {"local": {"node": "node", "cpu": "2"}}
    world = World(stage, tmp_path_factory.mktemp("rights"), change=team, pools=pools)
    world.user = world.caller("owner")
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    assert world.agent.upload(order, "model", b"weights").status == 200
    people = {
        "owner": world.user,
        "other": world.caller("other"),
        "readonly": world.caller("looker", role=UserRole.READONLY),
        "read": world.caller("owner"),
        "admin": world.caller("chief", role=UserRole.ADMIN),
        "read_admin": world.caller("chief"),
        "revoked": world.caller("owner"),
        "disabled": world.caller("gone"),
        "agent": world.agent.caller,
        "worker": worker_of(world, order),
    }
    _, another = world.placed(cpu=0.25)
    world.agent.start(another)
    people["strange_worker"] = worker_of(world, another)
    spare = world.caller("owner")
    command = world.user.post(f"/api/v1/jobs/{job_id}/commands", {"argv": ["true"]})
    world.user.post("/api/v1/secrets", {"name": "wandb", "value": "eA=="})
    world.deps.db.write(lambda tx: _arrange(tx, world, people))
    things = {
        "job_id": job_id,
        "ak": spare.ak,
        "command_id": command["id"],
        "path": "run.sh",
        "user_id": "owner",
        "snapshot_id": order["run"]["snapshot"],
        "sha256": "0" * 64,
        "number": "1",
        "replica": order["replica"],
        "area": "output",
        "name": "train",
        "secret": "wandb",
        "version": "0",
        "tunnel_id": "none",
    }
    yield Site(world=world, people=people, things=things, order=order)
    world.close()


@pytest.fixture
def site(one_site: Site) -> Site:
    one_site.world.enter()
    return one_site


def test_exactly_these_routes_need_no_signature() -> None:
    found = {(method, path) for method, path, op in OPERATIONS if op["x-access"] == "open"}
    assert found == OPEN


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_a_route_says_who_may_call_it(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["x-access"] in ACCESS
    assert operation["x-writes"] or method == "GET"
    assert (operation["security"] == []) == (operation["x-access"] == "open")
    if operation["x-access"] == "user" and "{" in path:
        assert operation["x-owned"] in UNKNOWN, f"{method} {path}: whose is it?"
    if "/admin/" in path:
        assert operation["x-access"] == "admin"
    if "/agent/" in path and (method, path) not in OPEN:
        assert operation["x-access"] == "agent"


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_gets_what_is_theirs(who: str, site: Site) -> None:
    before = site.world.job(site.things["job_id"]).version
    for method, path, operation in OPERATIONS:
        want = expected(who, operation)
        if want is None and path.endswith(ENDS_THINGS):
            continue  # they would be allowed, and the next one still needs the thing
        reply = site.ask(who, method, path, operation)
        where = f"{who}: {method} {path}: {reply.status} {reply.body[:200]!r}"
        if (method, path) == JOIN:
            assert reply.code == "join_token_unknown", where
        elif want is None:
            assert reply.status not in (401, 403), where
            assert reply.status < 500, where
            assert not is_hidden(reply), where
        else:
            assert reply.status == want, where
    assert site.world.job(site.things["job_id"]).version == before


@pytest.mark.parametrize("who", ["other", "readonly"])
def test_what_is_anothers_is_as_unknown_as_nothing(who: str, site: Site) -> None:
    """Word for word: not even the sentence tells them apart."""
    checked = 0
    for method, path, operation in OPERATIONS:
        owned = operation["x-owned"]
        if owned is None or expected(who, operation) != 404:
            continue
        theirs = site.ask(who, method, path, operation)
        none = site.ask_for(site.things | UNKNOWN, who, method, path, operation)
        assert theirs.status == none.status == 404, f"{method} {path}"
        assert said(theirs, site.things[owned]) == said(none, UNKNOWN[owned]), f"{method} {path}"
        checked += 1
    assert checked >= 5


def expected(who: str, operation: dict[str, Any]) -> int | None:
    """The status that this person must get; None: they are let in."""
    access = operation["x-access"]
    if access == "open":
        return None
    if who in ("unsigned", "revoked", "disabled"):
        return 401
    machine = MACHINES.get(who)
    if machine != (access if access in MACHINES.values() else None):
        return 401
    if machine is not None:
        return 404 if who == "strange_worker" else None
    if access == "admin" and who not in ("admin", "read_admin"):
        return 403
    if operation["x-writes"] and who in ("readonly", "read", "read_admin"):
        return 403
    if operation["x-owned"] is None or who in ("owner", "read"):
        return None
    if who in ("admin", "read_admin") and operation["x-owned"] == "job_id":
        return None
    return 404


def worker_of(world: World, order: dict[str, Any]) -> SignedCaller:
    """A process of the replica of this order."""
    return replace(world.user, ak=order["replica"], sk=order["run"]["secret"])


def is_hidden(reply: Reply) -> bool:
    """Whether it says that the job or the key does not exist."""
    return reply.status == 404 and reply.code in (
        "job_unknown",
        "token_unknown",
        "secret_unknown",
    )


def said(reply: Reply, name: str) -> str:
    error = json.loads(reply.body)["error"]
    del error["request_id"]
    return json.dumps(error).replace(name, "X")


def _arrange(tx: Tx, world: World, people: dict[str, SignedCaller]) -> None:
    now = world.clock()
    for who in ("read", "read_admin"):
        changed = tx.execute(
            "update tokens set scope = ? where ak = ?", (Scope.READ.value, people[who].ak)
        )
        assert changed == 1
    assert tokens.revoke_token(tx, people["revoked"].ak, now)
    gone = users.get_user(tx, "gone")
    assert gone is not None
    assert users.save_user(tx, replace(gone, disabled_at=now))
    assert agent_keys.find_key(tx, people["agent"].ak) is not None


_WORDS: dict[str, object] = {
    "email": "ann@example.com", "user_id": "newcomer", "agent": "node-0", "digest": "0" * 64,
    "value": "eA==",
}  # fmt: skip


def _body(operation: dict[str, Any]) -> bytes:
    """A body of the right shape, the smallest there is."""
    if "requestBody" not in operation:
        return b""
    content = operation["requestBody"]["content"]
    if "application/json" not in content:
        return b""
    return json.dumps(_example(content["application/json"]["schema"])).encode()


def _example(schema: dict[str, Any], name: str = "") -> object:
    if "$ref" in schema:
        found = api()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return _example(found, name)
    if name in _WORDS:
        return _WORDS[name]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], name)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        needed = schema.get("required", [])
        return {key: _example(schema["properties"][key], key) for key in needed}
    if kind == "string":
        return "x" * max(1, schema.get("minLength", 1))
    return {"array": [], "integer": 0, "number": 0, "boolean": False, "null": None}[str(kind)]
