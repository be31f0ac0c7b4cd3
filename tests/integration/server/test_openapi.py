"""The document that describes the interface is right by itself and complete."""

from __future__ import annotations

import re

from openapi_spec_validator import validate

from paddlecloud.server.http.routing import Access
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.schemas.logs import LogsQuery
from tests.integration.server.openapi_contract import api, find_operation
from tests.integration.server.world import World


def test_it_is_valid() -> None:
    validate(api())


def test_it_covers_every_route_and_nothing_else() -> None:
    described = {
        (method.upper(), path)
        for path, operations in api()["paths"].items()
        for method in operations
    }
    assert described == {(r.method, re.sub(r":path\}", "}", r.path)) for r in ROUTES}


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [op["operationId"] for ops in api()["paths"].values() for op in ops.values()]
    assert len(names) == len(set(names)) == len(ROUTES)


def test_it_says_which_routes_need_a_signature() -> None:
    for route in ROUTES:
        operation = find_operation(route.method, re.sub(r"\{\w+(:path)?\}", "x", route.path))
        assert operation is not None
        signed: list[dict[str, list[str]]] = [{"bce-auth-v1": []}]
        want = {Access.OPEN: [], Access.METRICS: [*signed, {"bearer": []}]}
        assert operation["security"] == want.get(route.access, signed)


def test_parameters_are_described() -> None:
    operation = find_operation("GET", "/api/v1/jobs/job-1/logs")
    assert operation is not None
    found = {p["name"]: (p["in"], p["required"]) for p in operation["parameters"]}
    assert found == {
        "job_id": ("path", True),
        **{name: ("query", False) for name in LogsQuery.__struct_fields__},
    }


def test_the_server_gives_it_out(world: World) -> None:
    assert world.user.get("/api/v1/openapi.json") == api()
