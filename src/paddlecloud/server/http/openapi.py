"""The OpenAPI 3.1 document, generated from the route table and the schemas."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from paddlecloud import __version__
from paddlecloud.server.http.routing import Access, Route
from paddlecloud.server.schemas.base import ErrorAnswer

_JOB_REFERENCE = (
    "The job's id; or the beginning of it, at least 4 hex digits with or without `job-`; or `last`,"
    " your newest job; or a job name, which means your newest job of that name. The header x-job-id"
    " of the response then has the id."
)
_REF = "#/components/schemas/{name}"


def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    schemas: list[type] = [ErrorAnswer]
    for route in routes:
        schemas += [schema for schema in (route.body, route.answer) if schema is not None]
    _, components = msgspec.json.schema_components(schemas, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "PaddleCloud", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bce-auth-v1": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "bce-auth-v1/{ak}/{time}/{seconds}/{headers}/{signature}; "
                    "host, x-bce-content-sha256, x-bce-nonce and every other x-bce header must be "
                    "signed.",
                },
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `admin token create --scope=metrics`.",
                },
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    handler = route.plain or route.streaming
    assert handler is not None
    operation: dict[str, Any] = {
        "operationId": f"{handler.__module__.rpartition('.')[2]}_{handler.__name__}",
        "summary": route.summary,
        "tags": [route.access.value],
        "x-access": "admin" if route.admin else route.access.value,
        "x-owned": _owned(route),
        "x-writes": route.writes,
        "security": _security(route),
        "parameters": _parameters(route),
        "responses": {
            str(route.status): {
                "description": "done",
                "content": _content(route.answer, route.media),
            },
            "default": {
                "description": "an error in words, with a stable code",
                "content": _content(ErrorAnswer, "application/json"),
            },
        },
    }
    if route.method in ("POST", "PUT"):
        raw = "application/octet-stream" if route.body is None else "application/json"
        operation["requestBody"] = {"content": _content(route.body, raw)}
    return operation


def _security(route: Route) -> list[dict[str, Any]]:
    if route.access is Access.OPEN:
        return []
    signed: dict[str, Any] = {"bce-auth-v1": []}
    return [signed, {"bearer": []}] if route.access is Access.METRICS else [signed]


def _owned(route: Route) -> str | None:
    """The path parameter whose object belongs to a user: for other users it does not exist."""
    names = _path_parameters(route)
    if not names or route.admin or route.access is not Access.USER:
        return None
    return names[0]


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _path_parameters(route)
    ]
    if _owned(route) == "job_id":
        found[0]["description"] = _JOB_REFERENCE
    if route.query is not None:
        schema = msgspec.json.schema(route.query)
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        for name, kind in schema["properties"].items():
            required = name in schema.get("required", [])
            found.append({"name": name, "in": "query", "required": required, "schema": kind})
    return found


def _path_parameters(route: Route) -> list[str]:
    return re.findall(r"\{(\w+)(?::path)?\}", route.path)


def _content(schema: type | None, media: str) -> dict[str, Any]:
    if schema is not None:
        return {"application/json": {"schema": {"$ref": _REF.format(name=schema.__name__)}}}
    if media == "application/json":
        return {media: {"schema": {"type": "object"}}}
    return {media: {"schema": {"type": "string", "format": "binary"}}}
