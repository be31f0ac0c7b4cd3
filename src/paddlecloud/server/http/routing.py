"""Types of routes and calls, and decoding of request bodies and queries.

Routes are values, so the OpenAPI document, the application and the tests that walk over every route
read the same table.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import Any, TypedDict, TypeVar, Unpack, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paddlecloud.messages import render
from paddlecloud.model.errors import Invalid, Retry, TooLarge
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import _validation_errors
from paddlecloud.server.http.auth import Caller

T = TypeVar("T")
MAX_UNSIGNED = 16 * 1024
"""Bytes of an unsigned body."""
BATCH = 1024 * 1024
BYTES = "application/octet-stream"


class Access(StrEnum):
    OPEN = "open"
    USER = "user"
    AGENT = "agent"
    JOB = "job"
    """A worker of a job, for what belongs to its own job."""


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

    @property
    def writes(self) -> bool:
        """Whether it may change anything; tokens with a read-only scope may not call it."""
        return self.method != "GET"


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


async def signed_body(request: Request, headers: Mapping[str, str], limit: int) -> bytes:
    """The whole body of a request; raises if it is not the one that was signed."""
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge("body_too_large", limit=limit)
    raw = await read_body(request, limit)
    bce_auth.check_body(headers, hashlib.sha256(raw).hexdigest())
    return raw


async def signed_batches(request: Request, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body of a request of any length, in chunks of at least `BATCH` except for the last, so
    that few thread changes are needed. The last comes after the signature of all was checked."""
    digest = hashlib.sha256()
    kept: list[bytes] = []
    length, yielded = 0, 0
    try:
        async for chunk in request.stream():
            digest.update(chunk)
            kept.append(chunk)
            length += len(chunk)
            if length >= BATCH:
                yield b"".join(kept)
                kept, length, yielded = [], 0, yielded + length
    except ClientDisconnect as error:
        raise Retry("body_cut", size=yielded + length) from error
    bce_auth.check_body(headers, digest.hexdigest())
    yield b"".join(kept)


async def read_body(request: Request, limit: int = MAX_UNSIGNED) -> bytes:
    """A whole short body, signed or not. Nearly every request uses this, so it avoids the
    generators that long ones are read with."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Retry("body_cut", size=size)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge("body_too_large", limit=limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def inflated(raw: bytes, limit: int) -> bytes:
    """A compressed body, decompressed; never more than `limit` bytes."""
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(raw, limit + 1)
    except zlib.error as error:
        raise Invalid("body_invalid", detail=str(error)) from error
    if len(body) > limit:
        raise TooLarge("body_too_large", limit=limit)
    if not inflate.eof:
        raise Invalid("body_invalid", detail="it ends too early")
    return body


def decode_body(raw: bytes, schema: type[T], lang: str = "en") -> T:
    try:
        return msgspec.json.decode(raw, type=schema)
    except msgspec.ValidationError as error:
        detail = _validation_errors.explain(error, lambda: msgspec.json.decode(raw), schema, lang)
        raise Invalid("body_invalid", detail=detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("body_invalid", detail=str(error)) from error


def decode_query(pairs: Sequence[tuple[str, str]], schema: type[T], lang: str = "en") -> T:
    """A parameter that is given twice is refused: a signature does not cover their order."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        detail = render("field_twice", {"field": twice[:50]}, lang)
        raise Invalid("query_invalid", detail=detail)
    try:
        return msgspec.convert(found, type=schema, strict=False)
    except msgspec.ValidationError as error:
        given = _validation_errors.query_values(found, schema)
        detail = _validation_errors.explain(error, lambda: given, schema, lang)
        raise Invalid("query_invalid", detail=detail) from error


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
