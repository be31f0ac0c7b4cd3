"""JSON schemas of logs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from paddlecloud.server.schemas.base import Flag, Natural, Request


class LogsQuery(Request, frozen=True, kw_only=True):
    worker: str | None = None
    offset: Natural = 0
    follow: Flag = 0
    tail: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    attempt: Natural | None = None
    since: str | None = None
    """A span (10m) or a time; without a zone it is the server's."""
    merge: Flag = 0
    """All workers, line by line."""
    failed: Flag = 0
    """The worker that failed first, in the newest attempt that failed."""
    grep: str | None = None
    complete: Flag = 0
    """With grep: not the last line while it has no end."""
    frames: Flag = 0
    """With merge or grep: frames (worker, next offset, length) instead of text."""
    at: str | None = None
    """With merge or grep: where each worker's log was left, `trainer-0:120,trainer-1:98`."""
