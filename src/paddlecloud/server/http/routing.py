"""Types of routes and calls.

Routes are values, so the OpenAPI document, the application and the tests that walk over every route
read the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import Any, TypedDict, TypeVar, Unpack, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller

BYTES = "application/octet-stream"


class Access(StrEnum):
    OPEN = "open"
    USER = "user"
    AGENT = "agent"
    JOB = "job"
    """A worker of a job, for what belongs to its own job."""
    METRICS = "metrics"
    """A user, or a program with a bearer token of this scope."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request, checked and decoded."""

    caller: Caller
    lang: str
    request_id: str
    path: Mapping[str, str]
    headers: Mapping[str, str]
    query: Any = None
    body: Any = None


Plain = Callable[[Deps, Call], object]
"""Runs in a thread; returns a schema object or a Response."""
Streaming = Callable[[Deps, Call, Request], Awaitable[object]]
"""Runs in the event loop and must not block; reads its own body."""
Handler = TypeVar("Handler", bound=Plain | Streaming)


@dataclass(frozen=True, kw_only=True)
class Route:
    method: str
    path: str
    summary: str
    access: Access = Access.USER
    plain: Plain | None = None
    streaming: Streaming | None = None
    body: type | None = None
    query: type | None = None
    answer: type | None = None
    """None: not JSON of a schema; its type is `media`."""
    media: str = "application/json"
    admin: bool = False
    """Only for users with the role admin."""
    status: int = 200
    """HTTP status of success."""
    long: bool = False
    """A plain route that may wait long for a disk: it gets a thread from another pool."""
    acts: bool = False
    """A GET that may change something: a WebSocket to a job."""

    @property
    def writes(self) -> bool:
        """Whether it may change anything; tokens with a read-only scope may not call it."""
        return self.method != "GET" or self.acts


class RouteOptions(TypedDict, total=False):
    """Fields of a `Route` that its decorator takes."""

    access: Access
    body: type
    query: type
    answer: type
    media: str
    admin: bool
    status: int
    long: bool
    acts: bool


class Router:
    """Collects the routes of a module: its methods are decorators of the functions that answer."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def get(
        self, path: str, summary: str, **options: Unpack[RouteOptions]
    ) -> Callable[[Handler], Handler]:
        return self._adder("GET", path, summary, options)

    def post(
        self, path: str, summary: str, **options: Unpack[RouteOptions]
    ) -> Callable[[Handler], Handler]:
        return self._adder("POST", path, summary, options)

    def put(
        self, path: str, summary: str, **options: Unpack[RouteOptions]
    ) -> Callable[[Handler], Handler]:
        return self._adder("PUT", path, summary, options)

    def _adder(
        self, method: str, path: str, summary: str, options: RouteOptions
    ) -> Callable[[Handler], Handler]:
        """The schema of the answer is what the function returns, unless that is a Response."""

        def add(handler: Handler) -> Handler:
            returned = get_type_hints(handler)["return"]
            if returned is not Response:
                options.setdefault("answer", returned)
            which = "streaming" if iscoroutinefunction(handler) else "plain"
            handlers: dict[str, Any] = {which: handler}
            route = Route(method=method, path=path, summary=summary, **handlers, **options)
            self.routes.append(route)
            return handler

        return add


class Cut(Exception):
    """Aborts a response in progress and its connection: an orderly end would seem a complete
    response. Not an internal error."""


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
