"""What one connection may cost: the size of a head, requests that wait, silence, slowness, number.

uvicorn limits none of these but the pause between two requests. A request pays one addition per
piece that arrives; everything else is found by a sweep over all connections every few seconds,
which compares what it sees with what it saw before. Nothing here knows HTTP beyond the phases of a
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import weakref
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from paddlecloud.model.errors import TooLarge
from paddlecloud.server.settings import Http

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024
"""Bytes of the request line and all headers together, the empty line at their end included."""
MOST_AHEAD = 64
"""Requests of one connection that wait for the answer to an earlier one: uvicorn itself queues any
number. Our client sends none ahead."""
LEAST_PROGRESS = 4096
"""Bytes of a body that have to come within `body_timeout`: a trickle is no progress."""
SPARE_FILES = 256
"""Descriptors that are kept for the database, the store and the agent."""

_BEHIND = "paddlecloud.connection"
"""Where a request's scope tells its connection."""

Mark = tuple[object, object, int]
"""What a connection is doing: its phase, the request it is about, and how far it got."""


class Connection(HttpToolsProtocol):
    """A connection that is refused when there are too many, or when its head does not end."""

    max_connections = 20_000
    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    """The request that is worked on, or the last one; None before the first."""
    taken = 0
    """Bytes of bodies that have arrived."""
    head = 0
    """Bytes of a head that has not ended."""
    mark: Mark | None = None
    marked_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.max_connections:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["method"] == "PUT" or self.scope["path"].endswith("/logs"):
            # For who reads a big body, or writes many small pieces, by other means; weak, or each
            # would keep the other.
            self.scope["extensions"] = {_BEHIND: weakref.ref(self)}  # type: ignore[dict-item]
        if len(self.pipeline) > MOST_AHEAD:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse no more than the head may still have, so that no larger one is ever complete."""
        rest = memoryview(data) if len(data) > MAX_HEAD - self.head else data
        while rest and not self.transport.is_closing():
            piece = rest if self._in_body() else rest[: MAX_HEAD - self.head]
            self._take(bytes(piece))
            rest = rest[len(piece) :]

    def push(self, chunk: bytes) -> bool:
        """Send a piece of the answer that is under way, encoded as a chunk by the caller; False if
        it has to go the usual way, or the client has to be waited for."""
        cycle, transport = self.cycle, self.transport
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return False
        if not cycle.chunked_encoding or self.flow.write_paused or transport.is_closing():
            return False
        transport.write(chunk)
        return True

    def _in_body(self) -> bool:
        return self.cycle is not None and self.cycle.scope is self.scope and self.cycle.more_body

    def _take(self, data: bytes) -> None:
        cycle, in_body = self.cycle, self._in_body()
        super().data_received(data)
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.taken += len(data)
            self.head = 0
        elif in_body or self.cycle is not cycle:
            # It begins behind another request in this piece, and how far behind is not known.
            self.head = 0
        else:
            self.head += len(data)
            if self.head >= MAX_HEAD and not self.transport.is_closing():
                self._refuse_head()

    def _refuse_head(self) -> None:
        error = TooLarge("head_too_large", limit=MAX_HEAD)
        body = json.dumps({"error": error.to_wire("en")}).encode()
        lines = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[431] + lines % len(body) + body)
        self.transport.close()


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection behind a request that may use it."""
    behind = scope.get("extensions", {}).get(_BEHIND)
    found = behind() if behind is not None else None
    return found if isinstance(found, Connection) else None


def connection_class(http: Http, files: int) -> type[Connection]:
    """The protocol for uvicorn, with the number of connections that `files` descriptors allow."""
    most = max(16, min(http.max_connections, files - SPARE_FILES))
    return type("Connection", (Connection,), {"max_connections": most})


def raise_file_limit(wanted: int) -> int:
    """Allow this process more open files if the system lets it; the number it may open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


class Sweeper:
    """Cuts the connections that stand still for longer than they may."""

    def __init__(self, connections: Iterable[object], http: Http) -> None:
        self._connections = connections
        self._head_limit = http.header_timeout.total_seconds()
        self._body_limit = http.body_timeout.total_seconds()
        self._pause = min(self._head_limit, self._body_limit) / 4
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Sweep from now on, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        cut = self.sweep(asyncio.get_running_loop().time())
        if cut:
            log.info("cut %d connections that stood still", cut)
        self.start()

    def sweep(self, now: float) -> int:
        """Cut what is overdue at `now`; how many that were."""
        overdue = [
            connection
            for connection in list(self._connections)
            if isinstance(connection, Connection) and self._is_overdue(connection, now)
        ]
        for connection in overdue:
            connection.transport.abort()
        return len(overdue)

    def _is_overdue(self, connection: Connection, now: float) -> bool:
        mark = _mark(connection)
        if mark is None or not _stands_still(connection.mark, mark):
            connection.mark, connection.marked_at = mark, now
            return False
        limit = self._head_limit if mark[0] == "head" else self._body_limit
        return now - connection.marked_at >= limit


def _mark(connection: Connection) -> Mark | None:
    """What the client owes us; None when it is our turn, or when nothing is owed."""
    cycle = connection.cycle
    transport = connection.transport
    unsent = transport.get_write_buffer_size()
    if unsent:  # the client does not read what it asked for
        return ("answer", cycle, unsent) if _is_stuck(connection) else None
    if transport.is_closing():
        return ("answer", cycle, 0)
    if cycle is None or cycle.response_complete:
        # uvicorn's own timer runs while nothing of the next request is here.
        return None if connection.timeout_keep_alive_task else ("head", cycle, 0)
    if cycle.more_body and not connection.flow.read_paused:
        # Who is answered while it speaks may be silent at times, but not for ever.
        phase = "exchange" if cycle.response_started else "body"
        return (phase, cycle, connection.taken)
    return None


def _is_stuck(connection: Connection) -> bool:
    return connection.flow.write_paused or connection.transport.is_closing()


def _stands_still(before: Mark | None, now: Mark) -> bool:
    """A little more of a body is no progress; any change of what is unsent is."""
    if before is None or before[:2] != now[:2]:
        return False
    if now[0] == "body":
        return now[2] - before[2] < LEAST_PROGRESS
    return now[2] == before[2]
