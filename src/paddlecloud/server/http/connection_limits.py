"""Limits of connections: size of the headers, pipelined requests, silence, slowness, number.

uvicorn limits only the pause between two requests. A request costs one addition per chunk that
arrives; everything else is found by a sweep over all connections every few seconds, which compares
their state with that of the previous sweep. Protects against slowloris and similar attacks.
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
from paddlecloud.server.http._request_parser import RequestParser
from paddlecloud.server.settings import Http

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from paddlecloud.server.http.tunnel_relay import TunnelEnd

log = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024
"""Bytes of the request line and all headers together, including the empty line at their end."""
MAX_PIPELINED = 64
"""Pipelined requests of one connection: uvicorn itself queues any number. Our client sends none."""
LEAST_PROGRESS = 4096
"""Bytes of a body that have to arrive within `body_timeout`."""
SPARE_FILES = 256
"""File descriptors that are reserved for the database, the store and the agent."""

_BEHIND = "paddlecloud.connection"
"""The key of the connection in a request's scope."""

Mark = tuple[object, object, int]
"""The progress of a connection: its phase, the request, and the bytes so far."""


class Connection(HttpToolsProtocol):
    """A connection that is refused if there are too many, or if its headers are too long."""

    max_connections = 20_000
    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    """The request in progress, or the last one; None before the first."""
    taken = 0
    """Bytes of request bodies that have arrived."""
    head = 0
    """Bytes of headers that have not ended yet."""
    mark: Mark | None = None
    marked_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.max_connections:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self.parser = RequestParser(self)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        wanted = self.scope["method"] == "PUT" or self.scope["path"].endswith("/logs")
        if wanted or self.parser.should_upgrade():
            # For `socket_body`, `push` and `hand_over`; weak, to avoid a reference cycle.
            self.scope["extensions"] = {_BEHIND: weakref.ref(self)}  # type: ignore[dict-item]
        if len(self.pipeline) > MAX_PIPELINED:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse no more than the headers may still have, so that larger ones are never complete."""
        rest = memoryview(data) if len(data) > MAX_HEAD - self.head else data
        while rest and not self.transport.is_closing():
            part = rest if self._in_body() else rest[: MAX_HEAD - self.head]
            self._take(bytes(part))
            rest = rest[len(part) :]

    def push(self, chunk: bytes) -> bool:
        """Send a chunk of the response in progress, encoded by the caller; False if it has to go
        the usual way, or the client reads too slowly."""
        cycle, transport = self.cycle, self.transport
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return False
        if not cycle.chunked_encoding or self.flow.write_paused or transport.is_closing():
            return False
        transport.write(chunk)
        return True

    def hand_over(self, end: TunnelEnd, head: bytes) -> None:
        """Leave HTTP with the head of a response: from now on the connection is `end`'s."""
        if self.cycle is not None:
            self.cycle.response_started = self.cycle.response_complete = True
        if self.transport.is_closing():
            return
        self.connections.discard(self)
        self.transport.write(head)
        end.take(self.transport, self.connections)

    def _in_body(self) -> bool:
        return self.cycle is not None and self.cycle.scope is self.scope and self.cycle.more_body

    def _take(self, data: bytes) -> None:
        cycle, in_body = self.cycle, self._in_body()
        super().data_received(data)
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.taken += len(data)
            self.head = 0
        elif in_body or self.cycle is not cycle:
            # The headers begin behind another request in this chunk, at an unknown offset.
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
    """The connection of a request, for routes that may use it directly."""
    behind = scope.get("extensions", {}).get(_BEHIND)
    found = behind() if behind is not None else None
    return found if isinstance(found, Connection) else None


def connection_class(http: Http, files: int) -> type[Connection]:
    """The protocol class for uvicorn, with as many connections as `files` descriptors allow."""
    most = max(16, min(http.max_connections, files - SPARE_FILES))
    return type("Connection", (Connection,), {"max_connections": most})


def raise_file_limit(wanted: int) -> int:
    """Raise the limit of open files if the system allows it; returns the present limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


class Sweeper:
    """Aborts connections without progress."""

    def __init__(self, connections: Iterable[object], http: Http) -> None:
        self._connections = connections
        self._head_limit = http.header_timeout.total_seconds()
        self._body_limit = http.body_timeout.total_seconds()
        self._pause = min(self._head_limit, self._body_limit) / 4
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Sweep periodically in the running event loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        cut = self.sweep(asyncio.get_running_loop().time())
        if cut:
            log.info("aborted %d connections without progress", cut)
        self.start()

    def sweep(self, now: float) -> int:
        """Abort what is overdue at `now`; returns how many."""
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
    """What is expected of the client; None if nothing is."""
    cycle = connection.cycle
    transport = connection.transport
    unsent = transport.get_write_buffer_size()
    if unsent:  # the client may not read the response
        stuck = connection.flow.write_paused or transport.is_closing()
        return ("answer", cycle, unsent) if stuck else None
    if transport.is_closing():
        return ("answer", cycle, 0)
    if cycle is None or cycle.response_complete:
        # uvicorn's own timer runs while nothing of the next request is here.
        return None if connection.timeout_keep_alive_task else ("head", cycle, 0)
    if cycle.more_body and not connection.flow.read_paused:
        # A client that gets its response during the request may pause, but not for ever.
        phase = "exchange" if cycle.response_started else "body"
        return (phase, cycle, connection.taken)
    return None


def _stands_still(before: Mark | None, now: Mark) -> bool:
    """A few bytes more of a body are no progress; any change of what is unsent is."""
    if before is None or before[:2] != now[:2]:
        return False
    if now[0] == "body":
        return now[2] - before[2] < LEAST_PROGRESS
    return now[2] == before[2]
