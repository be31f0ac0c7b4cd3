"""Joins two connections that have left HTTP for a WebSocket: a client's and an agent's.

Frames are passed on as they come; only heartbeats and the end are handled here. Nothing is queued:
while one end does not read, reading from the other is paused, so a slow reader costs the two
buffers of its transports. The clients' side of the protocol is `net/websocket.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.protocol.websocket import (
    CLOSE,
    NO_MASK,
    PING,
    PONG,
    accept_key,
    frame_head,
    masked,
    read_head,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Notification
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.connection_limits import connection_of
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import Cut
from paddlecloud.server.http.token_recheck import KeyRecheck

BEAT = 15.0
"""Seconds between two pings: proxies close a connection that is idle for a minute."""
SILENCE = 60.0
"""Seconds without a byte after which an end that we read from is gone."""
HIGH_WATER = 128 * 1024
"""Bytes that wait for an end before the other one is paused."""
NORMAL, GOING_AWAY, PROTOCOL_ERROR, NO_RIGHT, LOST = 1000, 1001, 1002, 1008, 1011
"""Reasons of a close (RFC 6455, 7.4.1)."""


class TunnelEnd(asyncio.Protocol):
    """One of the two connections of a tunnel; paused until it is joined with the other one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: TunnelEnd | None = None
        self.on_lost: Callable[[], object] = lambda: None
        self.received_at = 0.0
        self.paused = True
        self._rest = b""
        self._connections: set[Any] = set()

    def take(self, transport: asyncio.Transport, connections: set[Any]) -> None:
        """Take over a connection; `connections` are those that end with the server."""
        self.transport = transport
        self._connections = connections
        connections.add(self)
        transport.set_protocol(self)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        transport.pause_reading()

    def join(self, peer: TunnelEnd) -> None:
        self.peer = peer
        self.received_at = asyncio.get_running_loop().time()
        self.resume()

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def pause(self) -> None:
        if self.transport is not None and self.is_open and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and self.is_open and self.paused:
            self.paused = False
            self.received_at = asyncio.get_running_loop().time()
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        if self.transport is not None and self.is_open:
            self.transport.write(data)

    def close(self, reason: int) -> None:
        """Close it once all that was written is sent."""
        if self.transport is not None and self.is_open:
            self.transport.write(frame_head(CLOSE, 2) + reason.to_bytes(2, "big"))
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops."""
        self.close(GOING_AWAY)

    def data_received(self, data: bytes) -> None:
        self.received_at = asyncio.get_running_loop().time()
        if self._rest:
            data = self._rest + data
        passed: list[bytes | bytearray] = []
        at, reason = 0, 0
        while not reason and (head := read_head(data, at)) is not None:
            end = head.end + head.size
            if head.too_long or head.key is None:
                reason = PROTOCOL_ERROR
            elif end > len(data):
                break
            elif head.kind == CLOSE:
                reason = NORMAL
            elif head.kind == PING:
                payload = masked(data[head.end : end], head.key)
                self.write(frame_head(PONG, head.size) + payload)
            elif head.kind != PONG:
                payload = data[head.end : end]
                passed.append(frame_head(head.kind, head.size, last=head.last))
                passed.append(payload if head.key == NO_MASK else masked(payload, head.key))
            at = end
        self._rest = data[at:]
        if passed and self.peer is not None:
            self.peer.write(b"".join(passed))
        if reason:
            self._close_both(reason)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.pause()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._close_both(LOST)
        self.on_lost()

    def _close_both(self, reason: int) -> None:
        self.close(reason)
        if self.peer is not None:
            self.peer.close(reason)


class Tunnel:
    """Two joined ends, until either is gone, or the key of either caller is revoked."""

    def __init__(
        self,
        deps: Deps,
        client: tuple[Caller, TunnelEnd],
        agent: tuple[Caller, TunnelEnd],
        *,
        command: str = "",
    ) -> None:
        self._ends = (client[1], agent[1])
        self._guards = [_Guard(deps, caller, self._key_changed) for caller, _ in (client, agent)]
        # A command is ended when nothing waits for it (`loops/exec_idle`).
        self._reader: AbstractContextManager[object]
        self._reader = deps.hub.waiter(("command", command)) if command else nullcontext()
        self._held = ExitStack()
        self._timer: asyncio.TimerHandle | None = None
        self._check: asyncio.Task[None] | None = None
        self._stale = False
        self.on_end: Callable[[], object] = lambda: None

    def start(self) -> None:
        first, second = self._ends
        for waiter in (*self._guards, self._reader):
            self._held.enter_context(waiter)
        for end in self._ends:
            end.on_lost = self._end_lost
        if not first.is_open or not second.is_open:
            self.close(LOST)
            self._end_lost()
            return
        first.join(second)
        second.join(first)
        self._beat_later()
        self._key_changed()  # it may have been, since the request was authenticated

    def close(self, reason: int) -> None:
        for end in self._ends:
            end.close(reason)

    def _end_lost(self) -> None:
        """Once, at the end of the first connection; the other one is closing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(BEAT, self._abort)
        self._held.close()
        on_end, self.on_end = self.on_end, lambda: None
        on_end()

    def _abort(self) -> None:
        """End what could not be closed in time, because its peer does not read."""
        for end in self._ends:
            if end.transport is not None:
                end.transport.abort()

    def _beat_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def _beat(self) -> None:
        now = asyncio.get_running_loop().time()
        for end in self._ends:
            if not end.paused and now - end.received_at > SILENCE:
                self.close(LOST)
            else:
                end.write(frame_head(PING, 0))
        self._beat_later()

    def _key_changed(self) -> None:
        self._stale = True
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().create_task(self._recheck())

    async def _recheck(self) -> None:
        try:
            while self._stale:
                self._stale = False
                for guard in self._guards:
                    await in_thread(guard.check)
        except Cut:
            self.close(NO_RIGHT)
        except PaddleCloudError:  # the database does not answer: the key may have been revoked
            self.close(GOING_AWAY)


class _Guard(KeyRecheck):
    """Calls back when the key of a caller may have changed."""

    __slots__ = ("_loop", "_on_change")

    def __init__(self, deps: Deps, caller: Caller, on_change: Callable[[], None]) -> None:
        super().__init__(deps, caller)
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change

    def deliver(self, notification: Notification) -> None:
        super().deliver(notification)
        self._loop.call_soon_threadsafe(self._on_change)


def websocket_key(headers: Mapping[str, str], scope: Scope) -> str:
    """The key of a request for a WebSocket; empty if it is no such request."""
    offered = headers.get("upgrade", "").lower() == "websocket"
    known = headers.get("sec-websocket-version") == "13" and connection_of(scope) is not None
    return headers.get("sec-websocket-key", "") if offered and known else ""


def is_gone(scope: Scope) -> bool:
    """Whether the client of a waiting request has left."""
    connection = connection_of(scope)
    return connection is None or connection.transport.is_closing()


class SwitchToTunnel(Response):
    """The response 101: the connection becomes `end`, and `on_open` is called."""

    def __init__(self, key: str, end: TunnelEnd, on_open: Callable[[], object]) -> None:
        headers = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-accept": accept_key(key),
        }
        super().__init__(None, 101, headers)
        self._end, self._on_open = end, on_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if connection is not None:
            lines = [b"HTTP/1.1 101 Switching Protocols"]
            lines += [b"%b: %b" % header for header in self.raw_headers]
            connection.hand_over(self._end, b"\r\n".join([*lines, b"", b""]))
        self._on_open()
