"""What all JSON schemas share: bases of requests and responses, common types, errors."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Key = Annotated[str, Meta(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]

Flag = Annotated[int, Meta(ge=0, le=1)]

Natural = Annotated[int, Meta(ge=0, le=2**53)]
"""As far as every JSON reader counts exactly, and no file or column overflows."""

MAX_KEY = 4096
"""Characters of a key of a cloud, or of the token of temporary ones."""

Epoch = Annotated[float, Meta(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the end of year 9999."""


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what clients send."""


class Answer(Struct, frozen=True, kw_only=True):
    """Base of what the server sends; clients must tolerate new keys."""


class ErrorBody(Answer, frozen=True, kw_only=True):
    kind: str
    code: str
    message: str
    params: dict[str, str | int | float | None]
    request_id: str


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    error: ErrorBody
