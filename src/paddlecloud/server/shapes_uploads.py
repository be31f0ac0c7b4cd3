"""Shapes of uploads in parts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from paddlecloud.server.shapes import Answer, Natural, Request

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class PartsRequest(Request, frozen=True, kw_only=True):
    sha256: Digest
    size: Annotated[int, Meta(ge=1, le=2**53)]
    direct: bool = False
    """Whether the caller would send parts to addresses of the store itself."""
    allocated: Natural | None = None
    """How many bytes the file takes on the caller's disk, where it has holes."""
    handed: Annotated[str, Meta(pattern=r"^([0-9a-f]{24})?\Z")] = ""
    """The name of a place of this server in which the file lies."""


class PlaceRequest(Request, frozen=True, kw_only=True):
    pass


class PlaceAnswer(Answer, frozen=True, kw_only=True):
    name: str = ""
    path: str = ""
    """A directory of this machine into which big files may be copied, each under its sha256. Empty
    from any server but a private one."""


class PartsAnswer(Answer, frozen=True, kw_only=True):
    stored: bool
    """Nothing has to be sent."""
    part_size: Natural = 0
    """Bytes of every part but the last."""
    parts: list[int] = field(default_factory=list)
    """Numbers of the parts that are there; the first part is 1."""
    urls: list[tuple[int, str]] = field(default_factory=list)
    """Where to PUT the next missing parts, if not to the server."""


class PartAnswer(Answer, frozen=True, kw_only=True):
    number: int


class FinishRequest(Request, frozen=True, kw_only=True):
    pass


class FinishAnswer(Answer, frozen=True, kw_only=True):
    stored: bool
    """False: the check goes on; ask again."""
