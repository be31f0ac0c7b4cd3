"""Holds every answer of these tests to the OpenAPI document that the server itself gives out."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from paddlecloud.server.http.openapi import document
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import Reply


def check_reply(method: str, path: str, reply: Reply) -> None:
    """Fail unless the document knows this route and says that it may answer like this."""
    assert reply.headers.get("x-request-id"), f"{method} {path} has no request id"
    assert reply.headers.get("x-paddlecloud-server"), f"{method} {path} does not say who answers"
    operation = find_operation(method, path)
    if operation is None:
        assert reply.status == 404, f"{method} {path} is not in the document: {reply.status}"
        return
    answers = operation["responses"]
    content = answers.get(str(reply.status), answers["default"])["content"]
    media = reply.headers["content-type"].partition(";")[0]
    assert media in content, f"{method} {path} answered {media}, the document says {[*content]}"
    if media == "application/json":
        schema = content[media]["schema"] | {"components": api()["components"]}
        jsonschema.Draft202012Validator(schema).validate(json.loads(reply.body))


def find_operation(method: str, path: str) -> dict[str, Any] | None:
    for template, operations in api()["paths"].items():
        if method.lower() in operations and _pattern(template).fullmatch(path):
            found: dict[str, Any] = operations[method.lower()]
            return found
    return None


@cache
def api() -> dict[str, Any]:
    return document(ROUTES)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """A parameter at the very end called path may hold slashes, the others not."""
    text = re.sub(r"\{path\}$", "(.*)", template)
    return re.compile(re.sub(r"\{\w+\}", "([^/]+)", text), re.DOTALL)
