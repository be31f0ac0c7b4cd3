"""Copies bytes between a WebSocket and something local: a TCP connection, or a terminal.

One call of `Relay.run` serves one tunnel, in one thread, in both directions. Each direction has one
buffer of bounded size: while it is full, nothing more is read, so the sender at the other end of
the tunnel is slowed down by TCP. The end of one direction is a text message, `{"end": true}`.
"""

from __future__ import annotations

import json
import os
import socket
from errno import EIO
from time import monotonic

from paddlecloud.model.protocol.websocket import BINARY, TEXT
from paddlecloud.net._sockets import READ, WRITE, poll_all
from paddlecloud.net.websocket import MESSAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paddlecloud.net.websocket import WebSocket

#: Bytes of one direction that wait for a slow receiver.
BUFFER = 4 * MESSAGE
#: Seconds between two signs of life, and without one of the server after which it is gone.
BEAT, SILENCE = 15.0, 60.0
_END = json.dumps({"end": True}).encode()


class SocketEnd:
    """A TCP connection as the local end of a tunnel."""

    #: The other direction may go on after one has ended.
    both = True

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self.reader = self.writer = sock.fileno()

    def read(self) -> bytes:
        return self._socket.recv(MESSAGE)

    def write(self, data: memoryview) -> int:
        return self._socket.send(data)

    def finish(self) -> None:
        """No further bytes come through the tunnel."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class FileEnd:
    """A terminal as the local end: the master of a pty, or the stdin and stdout of a client."""

    both = False
    #: A blocking descriptor that can be written takes at least so much.
    _SAFE = 4096

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def read(self) -> bytes:
        try:
            return os.read(self.reader, MESSAGE)
        except OSError as error:
            if error.errno == EIO:  # all programs at the other side of the pty have ended
                return b""
            raise

    def write(self, data: memoryview) -> int:
        return os.write(self.writer, data[: self._SAFE])

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


class Relay:
    """One tunnel. `on_control` gets the JSON objects that the other end sends with `control`."""

    def __init__(
        self,
        websocket: WebSocket,
        local: SocketEnd | FileEnd,
        *,
        on_control: Callable[[dict[str, Any]], object] = lambda _: None,
        wake: tuple[int, Callable[[], object]] | None = None,
    ) -> None:
        """`wake`: a descriptor to watch too, and what to call when it can be read."""
        self._websocket = websocket
        self._local = local
        self._on_control = on_control
        self._wake = wake
        self._incoming = bytearray()
        #: Local bytes come, bytes of the tunnel come.
        self._reads = self._receives = True
        self._finished = False

    def control(self, value: dict[str, Any]) -> None:
        """Send an object to the other end, between the bytes."""
        self._websocket.send(json.dumps(value).encode(), TEXT)

    def run(self) -> bool:
        """Copy until both directions have ended, or one end is gone; whether the tunnel was closed
        in order. Both ends are closed then."""
        try:
            while not self._is_over():
                self._turn()
        except (OSError, ValueError):  # the local end is gone; or the other one sent no JSON
            pass
        finally:
            in_order = self._websocket.ended_in_order or not self._websocket.ended
            self._websocket.close()
            self._local.close()
        return in_order

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        websocket, local = self._websocket, self._local
        ready = poll_all(self._wanted(), 0.0 if websocket.has_more else BEAT)
        events = ready.get(websocket.fileno(), 0)
        if events & WRITE:
            websocket.flush()
        if self._can_receive and (events & READ or websocket.has_more):
            self._receive()
        if self._can_read and ready.get(local.reader, 0) & READ:
            self._read()
        if self._incoming:
            self._write()
        if self._wake is not None and self._wake[0] in ready:
            self._wake[1]()

    @property
    def _can_read(self) -> bool:
        return self._reads and self._websocket.unsent < BUFFER

    @property
    def _can_receive(self) -> bool:
        return len(self._incoming) < BUFFER

    def _wanted(self) -> dict[int, int]:
        """What to wait for, by descriptor."""
        tunnel = (READ if self._can_receive else 0) | (WRITE if self._websocket.unsent else 0)
        wanted = {self._websocket.fileno(): tunnel}
        if self._can_read:
            wanted[self._local.reader] = READ
        if self._incoming:
            wanted[self._local.writer] = wanted.get(self._local.writer, 0) | WRITE
        if self._wake is not None:
            wanted[self._wake[0]] = READ
        return wanted

    def _receive(self) -> None:
        for kind, data in self._websocket.receive():
            if kind == BINARY:
                self._incoming += data
                continue
            value = json.loads(data)
            if isinstance(value, dict) and value.get("end"):
                self._receives = False
            elif isinstance(value, dict):
                self._on_control(value)

    def _read(self) -> None:
        try:
            data = self._local.read()
        except (BlockingIOError, InterruptedError):
            return
        if data:
            self._websocket.send(data)
        else:
            self._reads = False
            self._websocket.send(_END, TEXT)

    def _write(self) -> None:
        done = 0
        try:
            with memoryview(self._incoming) as view:
                done = self._local.write(view)
        except (BlockingIOError, InterruptedError):
            return
        del self._incoming[:done]

    def _is_over(self) -> bool:
        websocket, now = self._websocket, monotonic()
        if now - websocket.sent_at >= BEAT and not websocket.unsent:
            websocket.beat()
        if websocket.ended:
            self._receives = False
        elif self._can_receive and now - websocket.received_at > SILENCE:
            websocket.ended = True
        if not self._receives and not self._incoming and not self._finished:
            self._finished = True
            self._local.finish()
        if websocket.ended:
            return not self._incoming
        one_way = self._finished if self._local.both else True
        return one_way and not self._reads and not websocket.unsent
