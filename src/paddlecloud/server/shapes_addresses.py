"""JSON shapes of what goes past the server: addresses in a bucket, for agents and for clients."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from paddlecloud.server.shapes import MAX_KEY, Answer, Epoch, Natural, Request

ContentRow = tuple[str, int, str, str]
"""Digest, size, address to GET it from ("": none), and tag ("": the digest is its sha256)."""
PrivateRow = tuple[str, Natural, str]
"""Path, size and tag of a file in a user's own bucket."""


class ContentsRequest(Request, frozen=True, kw_only=True):
    sha256: str
    """The content that is wanted next."""


class ContentsAnswer(Answer, frozen=True, kw_only=True):
    contents: list[ContentRow]
    """That one and those behind it in the list of the job's files."""


class OutputPartsRequest(Request, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=2**53)]
    mtime: Epoch | None = None


class OutputParts(Answer, frozen=True, kw_only=True):
    upload: str
    """Empty: this file has to be sent through the server."""
    part_size: int
    addresses: list[str]
    """Where to PUT each part."""


class JoinRequest(Request, frozen=True, kw_only=True):
    upload: Annotated[str, Meta(max_length=1024)]
    size: Natural


class PrivateFilesAnswer(Answer, frozen=True, kw_only=True):
    files: list[PrivateRow]


class PrivateAddressesRequest(Request, frozen=True, kw_only=True):
    bos_url: Annotated[str, Meta(max_length=1024)]
    bos_access_key: Annotated[str, Meta(max_length=MAX_KEY)]
    bos_secret_key: Annotated[str, Meta(max_length=MAX_KEY)]
    bos_session_token: Annotated[str, Meta(max_length=MAX_KEY)] = ""
    paths: Annotated[list[str], Meta(max_length=1000)]


class PrivateAddressesAnswer(Answer, frozen=True, kw_only=True):
    addresses: list[str]
    """Where to PUT each file."""
