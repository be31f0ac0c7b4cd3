"""JSON schemas of logs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from paddlecloud.server.schemas.base import Flag, Natural, Request


class LogsQuery(Request, frozen=True, kw_only=True):
    worker: str | None = None
    offset: Natural = 0
    follow: Flag = 0
    tail: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    attempt: Natural | None = None
    since: str | None = None
    """A duration (10m) or a time; in the server's time zone if it has none."""
    merge: Literal["0", "1", "auto"] = "0"
    """All workers, line by line; auto: if the job has several and none is named."""
    failed: Flag = 0
    """The worker that failed first, in the newest attempt that failed."""
    grep: str | None = None
    complete: Flag = 0
    """With grep: omit the last line while it is unfinished."""
    times: Flag = 0
    """Before each line the time when it was written."""
    frames: Flag = 0
    """With merge, grep or times: frames (worker, next offset, length, time) instead of text."""
    at: str | None = None
    """With frames: the offset to resume each worker at, `trainer-0:120,trainer-1:98`."""
