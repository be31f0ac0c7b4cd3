"""Every operation of the OpenAPI document, called with values that schemathesis generates.

Valid and invalid values, unsigned and as every role that may be allowed. The server never
fails with an internal error, every error has a code, and a rejected call changes no table.

schemathesis is imported where it is used: the import takes a second, in every process that collects
this file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.http.openapi import document
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import Reply
from tests.hostile.target_server import TargetServer, send, target_server
from tests.postgres import fresh_database

OUTSIDE = frozenset(
    {"webhook_unreachable", "mail_unreachable", "database_failed", "store_room", "store_room_files"}
)
"""Errors from 500 up with a cause outside the server: the network, or a full disk."""
NOBODY = "nobody"

pytestmark = [pytest.mark.slow(seconds=2), pytest.mark.timeout(900)]

EXAMPLES = {"sqlite": 15, "postgres": 5}
"""For each operation, caller and kind of values; the code above the database is the same."""
OPERATIONS = [
    (method.upper(), path, str(operation["x-access"]))
    for path, operations in document(ROUTES)["paths"].items()
    for method, operation in operations.items()
]
CALLERS = {
    "open": (NOBODY,),
    "user": (NOBODY, "alice"),
    "agent": (NOBODY, "agent"),
    "job": (NOBODY, "worker"),
}
PARTS = "/api/v1/uploads/"
"""Below it a digest names an upload that was begun, elsewhere a content that is there."""
UPLOAD = {"sha256": "0" * 64, "number": "1"}


@dataclass(frozen=True, kw_only=True)
class Shot:
    """One request."""

    who: str
    method: str
    path: str
    query: str
    body: bytes

    def fire(self, site: TargetServer) -> Reply:
        if self.who != NOBODY:
            return send(site.people[self.who], self.method, self.path, self.query, self.body)
        target = f"{self.path}?{self.query}" if self.query else self.path
        return site.raw(self.method, target, body=self.body)


@pytest.fixture(scope="module", params=list(EXAMPLES))
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetServer]:
    url = fresh_database(keep=True) if database == "postgres" else ""
    with target_server(tmp_path_factory.mktemp(database), database=url) as made:
        admin = made.people["admin"]
        admin.post("/api/v1/admin/users", {"user_id": "carol"})
        spare = admin.post("/api/v1/admin/users/carol/tokens", {})
        made.things |= {"user_id": "carol", "ak": spare["ak"]}
        begun = {"sha256": UPLOAD["sha256"], "size": 1}
        assert not made.people["alice"].post("/api/v1/uploads", begun)["stored"]
        yield made
        assert "Traceback" not in made.journal()
        assert made.raw("GET", "/healthz").status == 200
        assert scratch(made) == begun_uploads(made)


def scratch(site: TargetServer) -> set[str]:
    """What is unfinished in the store."""
    return {path.name for path in (site.home / "store" / ".tmp").iterdir()}


def begun_uploads(site: TargetServer) -> set[str]:
    """What may be: the parts of uploads that can be resumed."""
    records = (site.home / "store" / "users").glob("*/uploads/*")
    return {json.loads(path.read_bytes())["upload"] for path in records}


@pytest.mark.parametrize(("method", "path", "access"), OPERATIONS)
def test_no_request_breaks_the_server(
    site: TargetServer, database: str, method: str, path: str, access: str
) -> None:
    from schemathesis.generation import GenerationMode  # noqa: PLC0415 - slow to import

    for mode in GenerationMode:
        for who in CALLERS.get(access, (NOBODY, "alice", "admin")):
            shoot(site, who, cases(method, path, mode), EXAMPLES[database])


def shoot(site: TargetServer, who: str, strategy: st.SearchStrategy[Any], count: int) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(case=strategy, real=st.lists(st.booleans(), max_size=4))
    def one(case: Any, real: list[bool]) -> None:
        check(site, shot(site, who, case, real))

    with suppress(Unsatisfiable):  # of a route without parameters nothing can be wrong
        one()


@cache
def cases(method: str, path: str, mode: Any) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = api()[path][method].as_strategy(generation_mode=mode)
    return found


@cache
def api() -> Any:
    import schemathesis  # noqa: PLC0415 - slow to import

    return schemathesis.openapi.from_dict(document(ROUTES))


def shot(site: TargetServer, who: str, case: Any, real: list[bool]) -> Shot:
    """The request of a case; some of its names are replaced by those of real things."""
    names = dict(case.path_parameters)
    things = site.things | UPLOAD if case.path.startswith(PARTS) else site.things
    for name, wanted in zip(names, [*real, True, True, True], strict=False):
        if wanted:
            names[name] = bce_auth.quote(things[name], "/")
    path = case.path.format(**names) if names else case.path
    query = {str(name): value for name, value in (case.query or {}).items()}
    for name in ("wait", "follow"):  # these would block until a timeout
        query.pop(name, None)
    try:
        pairs = urlencode(query, doseq=True)
        body = _bytes(case.body)
        f"{path}{pairs}".encode("ascii")
    except (UnicodeError, TypeError, ValueError):
        reject()
    return Shot(who=who, method=case.method.upper(), path=path, query=pairs, body=body)


def _bytes(body: Any) -> bytes:
    from schemathesis.core import NOT_SET  # noqa: PLC0415 - slow to import

    if body is NOT_SET:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, dict) and "cursor" in body:
        body = body | {"wait": 0}
    return json.dumps(body).encode()


def check(site: TargetServer, shot: Shot) -> None:
    before = site.counts()
    reply = shot.fire(site)
    assert reply.headers.get("x-request-id"), shot
    if reply.status < 400:
        return
    assert reply.status < 500 or reply.code in OUTSIDE, f"{shot}: {reply.status} {reply.body!r}"
    assert reply.code, shot
    if reply.code == "join_token_unknown":
        return  # such failures are counted, for the rate limit
    if site.counts() != before:
        # An earlier accepted call may have taken effect since: repeat when the tables are at rest.
        before = quiet(site)
        assert shot.fire(site).status >= 400, shot
        assert site.counts() == before, shot


def quiet(site: TargetServer) -> dict[str, int]:
    """The rows of every table once they have stopped to change."""
    deadline = time.monotonic() + 30
    last: dict[str, int] = {}
    while time.monotonic() < deadline:
        now = site.counts()
        if now == last:
            return now
        last = now
        time.sleep(0.3)
    raise AssertionError("the tables do not come to rest")
