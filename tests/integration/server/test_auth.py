"""Nobody gets in: every route times every way of getting a request wrong."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paddlecloud.db.tables import tokens
from paddlecloud.db.tables.nonces import Pruner, WriteBehindNonces
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.protocol import bce_auth
from paddlecloud.net.endpoint import EMPTY_SHA256
from paddlecloud.server.http.app import App
from paddlecloud.server.http.routing import Access, Route
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import Reply, SignedCaller, encode_query, exchange
from tests.integration.server.world import Stage, World, eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the vendor's files carry invalid escape sequences
    from baidubce.auth import bce_v1_signer as vendor
    from baidubce.auth.bce_credentials import BceCredentials

GUARDED = [route for route in ROUTES if route.access is not Access.OPEN]
# The other two would change the world that these tests share; test_life and test_files call them.
HARMLESS = [r for r in GUARDED if "{area}" not in r.path and not r.path.endswith("/kill")]

UPLOAD = {"sha256": "0" * 64, "size": 1}
"""Begun by the user: a body of one byte would be all of it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A world with one running job, and for each route a request that would be answered."""

    world: World
    admin: SignedCaller
    job_id: str
    order: dict[str, Any]

    @property
    def user(self) -> SignedCaller:
        return self.world.user

    def wanted(self, route: Route) -> Request:
        values = {
            "job_id": self.job_id,
            "path": "run.sh",
            "snapshot_id": self.order["run"]["snapshot"],
            "sha256": UPLOAD["sha256"],
            "replica": self.order["replica"],
            "area": "output",
            "ak": "0" * 32,
            "user_id": "somebody",
            "command_id": "0" * 32,
            "tunnel_id": "0" * 32,
            "name": "train",
            "secret": "wandb",
            "number": "1",
        }
        agent = route.access is Access.AGENT
        of_job = route.access is Access.JOB
        worker = replace(self.user, ak=self.order["replica"], sk=self.order["run"]["secret"])
        person = self.admin if route.admin else self.user
        which = (route.method, route.path)
        return Request(
            caller=self.world.agent.caller if agent else worker if of_job else person,
            method=route.method,
            path=route.path.replace(":path", "").format(**values),
            query=_QUERIES[which](self) if which in _QUERIES else {},
            body=_BODIES[which](self) if which in _BODIES else b"",
        )

    def large_output(self) -> str:
        """The upload of an output whose 65th part is one byte."""
        path = f"/api/v1/agent/replicas/{self.order['replica']}/parts/output/run.sh"
        query, size = {"fence": self.order["fence"]}, 64 * 1024 * 1024 + 1
        reply = self.world.agent.caller.call("POST", path, query, {"size": size})
        return str(reply.json()["upload"])


_FILE = "/api/v1/agent/replicas/{replica}/files/{area}/{path:path}"
_PARTS = "/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}"
_PART = "/api/v1/agent/replicas/{replica}/part/{area}/{path:path}"
_QUERIES: dict[tuple[str, str], Callable[[Site], dict[str, object]]] = {
    ("GET", "/api/v1/agent/snapshots/{snapshot_id}"): lambda site: {
        "replica": site.order["replica"]
    },
    ("GET", "/api/v1/agent/blobs/{sha256}"): lambda site: {"replica": site.order["replica"]},
    ("PUT", _FILE): lambda site: {"fence": site.order["fence"]},
    ("POST", _FILE): lambda site: {"fence": site.order["fence"], "offset": 0},
    ("POST", "/api/v1/agent/replicas/{replica}/listing"): lambda site: {
        "fence": site.order["fence"]
    },
    ("POST", "/api/v1/agent/replicas/{replica}/bundle"): lambda site: {
        "fence": site.order["fence"]
    },
    ("POST", _PARTS): lambda site: {"fence": site.order["fence"]},
    ("PUT", _PARTS): lambda site: {"fence": site.order["fence"]},
    ("PUT", _PART): lambda site: {
        "fence": site.order["fence"],
        "upload": site.large_output(),
        "number": 65,
    },
    ("PUT", "/api/v1/agent/commands/{command_id}/output"): lambda _: {
        "stream": "out",
        "offset": 0,
    },
}
_REPORT = b'{"agent": "node-0", "boot": "b", "seq": 1, "items": []}'
_BODIES: dict[tuple[str, str], Callable[[Site], bytes]] = {
    ("POST", "/api/v1/jobs"): lambda _: (
        b'{"spec": {"start_cmd": "x"}, "idempotency_key": "0123456789"}'
    ),
    ("POST", "/api/v1/snapshots"): lambda _: b'{"entries": []}',
    ("POST", "/api/v1/secrets"): lambda _: b'{"name": "wandb", "value": "eA=="}',
    ("POST", "/api/v1/agent/replicas/{replica}/bundle"): lambda _: b'{"files": []}\n',
    ("POST", "/api/v1/agent/poll"): lambda site: (
        b'{"agent": "node-0", "boot": "b", "version": "0", "cursor": 99, "wait": 0,'
        b' "capacity": {"cpu": 1, "memory": 1}}'
    ),
    ("POST", "/api/v1/jobs/{job_id}/tasks/{name}"): lambda _: b'{"digest": "%s"}' % (b"0" * 64),
    ("POST", "/api/v1/jobs/{job_id}/tasks/{name}/lease"): lambda _: b'{"reader": "x"}',
    ("POST", "/api/v1/jobs/{job_id}/tasks/{name}/renew"): lambda _: (
        b'{"reader": "x", "leases": []}'
    ),
    ("POST", "/api/v1/jobs/{job_id}/tasks/{name}/finish"): lambda _: (
        b'{"reader": "x", "number": 0, "fence": 0, "of_pass": 0}'
    ),
    ("POST", "/api/v1/jobs/{job_id}/tasks/{name}/fail"): lambda _: (
        b'{"reader": "x", "number": 0, "fence": 0}'
    ),
    ("POST", "/api/v1/agent/report"): lambda _: len(_REPORT).to_bytes(4, "big") + _REPORT,
}


@dataclass(kw_only=True)
class Request:
    """One request before it is signed; what a test changes afterwards is not covered."""

    caller: SignedCaller
    method: str
    path: str
    query: dict[str, object]
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def signed(self) -> Request:
        pairs = encode_query(self.query)
        self.headers = self.caller.headers(self.method, self.raw_path, pairs, self.body)
        return self

    def resigned(self, **headers: str | None) -> Request:
        """The same with these headers instead, signed again with what is left."""
        kept = {k: v for k, v in (self.signed().headers | headers).items() if v is not None}
        del kept["authorization"]
        kept["authorization"] = bce_auth.sign(
            self.caller.ak,
            self.caller.sk,
            self.method,
            self.raw_path,
            encode_query(self.query),
            kept,
            int(self.caller.clock()),
        )
        self.headers = kept
        return self

    @property
    def raw_path(self) -> str:
        return bce_auth.quote(self.path, "/")

    def send(self) -> Reply:
        pairs = encode_query(self.query)
        target = f"{self.raw_path}?{pairs}" if pairs else self.raw_path
        caller = self.caller
        return exchange(caller.host, caller.port, self.method, target, self.headers, self.body)


def unsigned(request: Request, _site: Site) -> None:
    del request.signed().headers["authorization"]


def malformed(request: Request, _site: Site) -> None:
    request.signed().headers["authorization"] = "Basic bGV0LW1lLWlu"


def unknown_bearer(request: Request, _site: Site) -> None:
    request.signed().headers["authorization"] = "Bearer let-me-in"


def wrong_secret(request: Request, _site: Site) -> None:
    request.caller = replace(request.caller, sk="0" * 64)
    request.signed()


def unknown_key(request: Request, _site: Site) -> None:
    request.caller = replace(request.caller, ak="f" * 32)
    request.signed()


def changed_body(request: Request, _site: Site) -> None:
    request.signed().body += b" "


def changed_query(request: Request, _site: Site) -> None:
    request.signed().query["offset"] = 1


def changed_path(request: Request, _site: Site) -> None:
    request.signed().path += "x"


def changed_method(request: Request, _site: Site) -> None:
    real, request.method = request.method, "DELETE"
    request.signed().method = real


def replayed(request: Request, site: Site) -> None:
    agent = request.caller is site.world.agent.caller
    worker = request.caller.ak == site.order["replica"]
    own = f"/api/v1/jobs/{site.job_id}/tasks/none" if worker else "/api/v1/whoami"
    first = Request(
        caller=request.caller,
        method="GET",
        path="/api/v1/agent/blobs/0" if agent else own,
        query={"replica": "none"} if agent else {},
        body=b"",
    ).signed()
    assert first.send().status in (200, 404)
    request.resigned(**{bce_auth.NONCE: first.headers[bce_auth.NONCE]})


def expired(request: Request, site: Site) -> None:
    request.caller = replace(request.caller, clock=lambda: site.world.clock().timestamp() - 1801)
    request.signed()


def good_for_long(request: Request, _site: Site) -> None:
    request.signed()
    del request.headers["authorization"]
    request.headers["authorization"] = bce_auth.sign(
        request.caller.ak,
        request.caller.sk,
        request.method,
        request.raw_path,
        encode_query(request.query),
        request.headers,
        int(request.caller.clock()),
        1801,
    )


def from_the_future(request: Request, site: Site) -> None:
    request.caller = replace(request.caller, clock=lambda: site.world.clock().timestamp() + 901)
    request.signed()


def without_nonce(request: Request, _site: Site) -> None:
    request.resigned(**{bce_auth.NONCE: None})


def nonce_not_covered(request: Request, _site: Site) -> None:
    request.resigned(**{bce_auth.NONCE: None}).headers[bce_auth.NONCE] = secrets.token_hex(16)


def body_hash_not_covered(request: Request, _site: Site) -> None:
    request.resigned(**{bce_auth.CONTENT_SHA256: None}).headers[bce_auth.CONTENT_SHA256] = (
        EMPTY_SHA256
    )


def foreign_host(request: Request, _site: Site) -> None:
    request.resigned(host="evil.example")


def host_that_is_no_text(request: Request, _site: Site) -> None:
    request.resigned(host="127.0.0.1\udcff")


def other_kind_of_key(request: Request, site: Site) -> None:
    agent = site.world.agent.caller
    request.caller = site.world.user if request.caller is agent else agent
    request.signed()


ATTACKS: list[tuple[Callable[[Request, Site], None], str]] = [
    (unsigned, "auth_missing"),
    (malformed, "auth_malformed"),
    (unknown_bearer, "auth_bearer_unknown"),
    (wrong_secret, "auth_signature"),
    (unknown_key, "auth_unknown_key"),
    (changed_body, "auth_body_hash"),
    (changed_query, "auth_signature"),
    (changed_path, "auth_signature"),
    (changed_method, "auth_signature"),
    (replayed, "auth_replay"),
    (expired, "auth_expired"),
    (from_the_future, "auth_future"),
    (good_for_long, "auth_expire_long"),
    (without_nonce, "auth_header_unsigned"),
    (nonce_not_covered, "auth_header_unsigned"),
    (body_hash_not_covered, "auth_header_unsigned"),
    (foreign_host, "auth_host"),
    (host_that_is_no_text, "auth_host"),
    (other_kind_of_key, "auth_role"),
]


@pytest.fixture(scope="module")
def one_site(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    world = World(stage, tmp_path_factory.mktemp("auth"))
    job_id, order = world.placed()
    world.agent.start(order)
    admin = world.caller("root", role=UserRole.ADMIN)
    world.user.post("/api/v1/uploads", UPLOAD)
    yield Site(world=world, admin=admin, job_id=job_id, order=order)
    world.close()


@pytest.fixture
def site(one_site: Site) -> Site:
    one_site.world.enter()
    return one_site


def test_exactly_these_routes_are_open() -> None:
    open_routes = [(route.method, route.path) for route in ROUTES if route.access is Access.OPEN]
    assert open_routes == [
        ("POST", "/api/v1/agent/join"),
        ("POST", "/api/v1/gen_token"),
        ("GET", "/api/v1/agent/package/{sha256}"),
        ("GET", "/healthz"),
        ("GET", "/install.sh"),
        ("GET", "/paddlecloud_stable.tar.gz"),
        ("GET", "/paddlecloud-{version}-py3-none-any.whl"),
        ("GET", "/{name}.sha256"),
    ]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda pair: pair[0].__name__)
def test_no_route_lets_it_in(
    attack: tuple[Callable[[Request, Site], None], str], site: Site
) -> None:
    change, code = attack
    before = site.world.job(site.job_id)
    for route in GUARDED:
        request = site.wanted(route)
        change(request, site)
        reply = request.send()
        path_is_gone = change is changed_path and reply.status == 404
        if not path_is_gone:  # one letter more can be another route, or none
            assert (reply.status, reply.code) == (401, code), f"{route.method} {route.path}"
    assert site.world.job(site.job_id) == before
    assert [s.path for s in site.world.deps.store.list("users/someone/output")] == []
    assert site.user.post("/api/v1/uploads", UPLOAD)["parts"] == []


@pytest.mark.parametrize("route", HARMLESS, ids=lambda route: f"{route.method} {route.path}")
def test_the_same_requests_unchanged_are_answered(route: Route, site: Site) -> None:
    """Otherwise the test above could pass for another reason."""
    reply = site.wanted(route).signed().send()
    assert reply.status != 401, reply.body
    assert reply.status < 500, reply.body


def test_health_needs_no_signature_but_the_right_host(site: Site) -> None:
    world = site.world
    where = ("127.0.0.1", world.stage.port, "GET", "/healthz")
    assert exchange(*where, {"host": "localhost"}).json()["boot"] == world.deps.boot
    reply = exchange(*where, {"host": "evil.example"})
    assert (reply.status, reply.code) == (401, "auth_host")
    assert exchange(*where, {}).status in (400, 401)


def test_a_route_that_does_not_exist_says_so_and_nothing_else(site: Site) -> None:
    for method, path in (("GET", "/"), ("PUT", "/api/v1/jobs"), ("DELETE", "/healthz")):
        reply = site.world.user.call(method, path)
        assert (reply.status, reply.code) == (404, "route_unknown")


def test_the_refusal_is_in_the_language_of_the_caller(site: Site) -> None:
    request = site.wanted(GUARDED[0]).signed()
    del request.headers["authorization"]
    request.headers["accept-language"] = "zh"
    assert "请求没有签名" in request.send().body.decode()


def test_a_revoked_key_is_forgotten_at_once(site: Site) -> None:
    world = site.world
    caller = world.caller("someone-else")
    assert caller.get("/api/v1/whoami")["user_id"] == "someone-else"
    assert world.deps.db.write(lambda tx: tokens.revoke_token(tx, caller.ak, world.clock()))
    assert caller.call("GET", "/api/v1/whoami").code == "auth_unknown_key"


def test_a_nonce_is_remembered_by_the_next_server_too(site: Site) -> None:
    world = site.world
    world.clock.move(seconds=1)
    request = Request(caller=world.user, method="GET", path="/api/v1/whoami", query={}, body=b"")
    assert request.signed().send().status == 200
    nonce = request.headers[bce_auth.NONCE]
    written = "select 1 from nonces where nonce = ?"
    eventually(lambda: bool(world.deps.db.read(lambda tx: tx.all(written, (nonce,)))))  # behind
    world.stage.app = App(world.deps)
    assert request.send().code == "auth_replay"


def test_nonces_are_deleted_when_their_signatures_have_expired(site: Site) -> None:
    world = site.world
    world.user.get("/api/v1/whoami")
    eventually(lambda: world.count("nonces") > 0)
    before, hour = world.count("nonces"), 3600
    assert isinstance(world.stage.app, App)
    signatures = world.stage.app._signatures
    signatures._pruner = Pruner(
        world.deps.db, world.clock(), time.monotonic() - hour
    )  # as if it ran
    world.clock.move(seconds=hour)
    world.user.get("/api/v1/whoami")
    eventually(lambda: world.count("nonces") < before)
    assert isinstance(signatures._nonces, WriteBehindNonces)
    assert len(signatures._nonces._buckets) == 1


@pytest.mark.parametrize(
    ("method", "path", "params", "body"),
    [
        ("GET", "/api/v1/whoami", {}, b""),
        ("GET", "/api/v1/jobs", {"limit": "5", "name": "a b/ä"}, b""),
        ("POST", "/api/v1/snapshots", {}, b'{"entries": []}'),
    ],
)
def test_the_signature_of_the_vendors_sdk_is_understood(
    site: Site, method: str, path: str, params: dict[str, str], body: bytes
) -> None:
    caller = site.world.user
    headers = caller.headers(method, path, encode_query(params), body)
    del headers["authorization"]
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    signed = vendor.sign(
        BceCredentials(caller.ak, caller.sk),
        method.encode(),
        path.encode(),
        raw,
        {name.encode(): value.encode() for name, value in params.items()},
        int(caller.clock()),
        1800,
        {name.encode() for name in headers},
    )
    headers["authorization"] = signed.decode()
    pairs = encode_query(params)
    target = f"{path}?{pairs}" if pairs else path
    reply = exchange(caller.host, caller.port, method, target, headers, body)
    assert reply.status == 200, reply.body
