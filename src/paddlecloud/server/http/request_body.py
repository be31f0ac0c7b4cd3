"""Reads request bodies up to a limit, checks their signature, and decodes bodies and queries."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from paddlecloud.messages import render
from paddlecloud.model.errors import Invalid, Retry, TooLarge
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.http import _validation_errors

T = TypeVar("T")
MAX_UNSIGNED = 16 * 1024
"""Bytes of an unsigned body."""
BATCH = 1024 * 1024


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
