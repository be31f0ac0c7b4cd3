"""What a route is, and what it is given. Routes are values, so the OpenAPI document, the router
and the tests that walk every route all read the same table."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paddlecloud.messages import render
from paddlecloud.model.errors import Invalid, Retry, TooLarge
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import validation_errors
from paddlecloud.server.http.auth import Caller

T = TypeVar("T")
MAX_UNSIGNED = 16 * 1024
"""Bytes of a body that nobody signed."""
BATCH = 1024 * 1024
BYTES = "application/octet-stream"


class Access(StrEnum):
    OPEN = "open"
    USER = "user"
    AGENT = "agent"
    JOB = "job"
    """A worker of a job, for what is its own job's."""


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
"""Runs in a thread; returns a shape, or a Response."""
Streaming = Callable[[Deps, Call, Request], Awaitable[object]]
"""Runs in the event loop and must not block; reads its own body."""


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
    """None: not of a shape; `media` says what it is."""
    media: str = "application/json"
    admin: bool = False
    """Only for a user whose role is admin."""
    status: int = 200
    """Of an answer that is no error."""
    long: bool = False
    """A plain one that may take as long as a disk does: it gets a thread from the other pool."""

    @property
    def writes(self) -> bool:
        """Whether it may change anything; who may only look may not call it."""
        return self.method != "GET"


class Cut(Exception):
    """Ends an answer that has begun, and its connection: an orderly end would tell the reader that
    this was all. Nobody made a mistake."""


async def signed_body(request: Request, headers: Mapping[str, str], limit: int) -> bytes:
    """The body of a request whole; raises if it is not the one that was signed."""
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge("body_too_large", limit=limit)
    raw = await read_body(request, limit)
    bce_auth.check_body(headers, hashlib.sha256(raw).hexdigest())
    return raw


async def signed_batches(request: Request, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body of a request, however long, in pieces of at least `BATCH` but for the last: few
    changes of thread. The last comes once all of it is known to be what was signed."""
    digest = hashlib.sha256()
    kept: list[bytes] = []
    length, yielded = 0, 0
    try:
        async for piece in request.stream():
            digest.update(piece)
            kept.append(piece)
            length += len(piece)
            if length >= BATCH:
                yield b"".join(kept)
                kept, length, yielded = [], 0, yielded + length
    except ClientDisconnect as error:
        raise Retry("body_cut", size=yielded + length) from error
    bce_auth.check_body(headers, digest.hexdigest())
    yield b"".join(kept)


async def read_body(request: Request, limit: int = MAX_UNSIGNED) -> bytes:
    """A short body whole, signed or not. Nearly every request comes this way, so it does without
    the generators that a long one is read with."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Retry("body_cut", size=size)
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise TooLarge("body_too_large", limit=limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def inflated(raw: bytes, limit: int) -> bytes:
    """A body that came compressed, as it was; never more than `limit` bytes of it."""
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


def decode_body(raw: bytes, shape: type[T], lang: str = "en") -> T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        detail = validation_errors.told(error, lambda: msgspec.json.decode(raw), shape, lang)
        raise Invalid("body_invalid", detail=detail) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("body_invalid", detail=str(error)) from error


def decode_query(pairs: Sequence[tuple[str, str]], shape: type[T], lang: str = "en") -> T:
    """A name that comes twice is refused: a signature does not tell which of them was the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        detail = render("field_twice", {"field": twice[:50]}, lang)
        raise Invalid("query_invalid", detail=detail)
    try:
        return msgspec.convert(found, type=shape, strict=False)
    except msgspec.ValidationError as error:
        detail = validation_errors.told(error, lambda: found, shape, lang)
        raise Invalid("query_invalid", detail=detail) from error


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
