"""JSON schemas of commands next to a worker (exec)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from paddlecloud.server.schemas.base import Answer, Flag, Natural, Request

TerminalSize = Annotated[int, Meta(ge=0, le=10_000)]
Signed32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class TerminalRequest(Request, frozen=True, kw_only=True):
    """The client's terminal: the command gets one like it."""

    term: Annotated[str, Meta(max_length=100)] = ""
    """TERM."""
    rows: TerminalSize
    columns: TerminalSize


class CommandRequest(Request, frozen=True, kw_only=True):
    argv: list[str]
    """The program and its words; no shell reads them."""
    worker: str | None = None
    timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    stdin: bytes = b""
    """In base64."""
    terminal: TerminalRequest | None = None
    """Without one the command has pipes."""


class CommandView(Answer, frozen=True, kw_only=True):
    id: str
    job_id: str
    worker: str
    argv: list[str]
    created_at: str
    ended_at: str | None
    exit_code: int | None
    """As in a shell: 128 + n for signal n. None while it runs, or if unknown."""
    cause: str
    """Who ended it: exit, stopped, left, timeout, replica_over, failed; empty while it runs."""
    message: str


class TunnelQuery(Request, frozen=True, kw_only=True):
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """0 is refused, after the job was found."""
    worker: str | None = None


class PortForwardQuery(Request, frozen=True, kw_only=True):
    worker: str | None = None


class PortForwardAnswer(Answer, frozen=True, kw_only=True):
    """Where tunnels of a port forward lead now."""

    job_id: str
    worker: str


class OutputQuery(Request, frozen=True, kw_only=True):
    out: Natural = 0
    err: Natural = 0
    follow: Flag = 0


class StreamQuery(Request, frozen=True, kw_only=True):
    stream: Literal["out", "err"] = "out"
    offset: Natural = 0


class StreamAnswer(Answer, frozen=True, kw_only=True):
    size: int
    """Bytes of the stream that were received."""
    window: int = field(name="room")
    """Bytes that may be sent next; 0 until the client has read some."""
    left: bool
    """The client has left: what exceeds the window need not be sent."""


class CommandEnd(Request, frozen=True, kw_only=True):
    cause: str
    exit_code: Signed32 | None = None
    message: str = ""
    out_size: Natural = 0
    err_size: Natural = 0


class EndAnswer(Answer, frozen=True, kw_only=True):
    ended: bool
