"""A WebSocket (RFC 6455) of the client or the agent: messages over a connection that left HTTP.

Never blocks: the owner polls `fileno`, calls `receive` when it can be read and `flush` when it can
be written. Only what a tunnel needs: bytes in binary messages, JSON in text messages, heartbeats.
The server's side is `server/http/tunnel_relay.py`.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from socket import SHUT_WR
from time import monotonic

from paddlecloud.model.errors import Unreachable
from paddlecloud.model.protocol.bce_auth import CONTENT_SHA256
from paddlecloud.model.protocol.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NO_MASK,
    PING,
    PONG,
    TEXT,
    accept_key,
    frame_head,
    masked,
    read_head,
)
from paddlecloud.net._sockets import READ, WRITE, poll
from paddlecloud.net.endpoint import EMPTY_SHA256, sign_request
from paddlecloud.net.http1 import Connection
from paddlecloud.net.proxy import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.net.endpoint import Endpoint
    from paddlecloud.net.http1 import Response
    from paddlecloud.net.proxy import Proxy

#: Bytes of one message that we send.
MESSAGE = 64 * 1024
#: Bytes of one system call, and of one call of `receive`.
_BLOCK = 256 * 1024
_NORMAL = (1000).to_bytes(2, "big")
_CLOSE_SECONDS = 2.0


def connect(
    endpoint: Endpoint, target: str, *, proxy: Proxy | None, lang: str = "en", timeout: float
) -> Response:
    """Ask for a WebSocket by a signed request; status 101 if the server agreed, else its error."""
    from base64 import b64encode  # noqa: PLC0415 - few commands open one

    key = b64encode(os.urandom(16)).decode()
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key,
        "accept-language": lang,
        CONTENT_SHA256: EMPTY_SHA256,
    }
    sign_request(endpoint, endpoint.authority, "GET", target, headers)
    connection = Connection(
        endpoint.host, endpoint.port, endpoint.tls, timeout, proxy=proxy, switches=True
    )
    response = connection.request("GET", target, headers)
    if response.status != 101:
        response.on_finish = connection.close
        if response.finished:
            connection.close()
    elif response.headers.get("sec-websocket-accept") != accept_key(key):
        connection.close()
        raise Unreachable(
            "server_malformed", address=endpoint.authority, detail="another WebSocket key"
        )
    return response


class WebSocket:
    """One end of an open connection. Belongs to one thread."""

    def __init__(self, response: Response, endpoint: Endpoint) -> None:
        self._socket, self._again, self._rest = response.take_stream().take_socket()
        self._early = bool(self._rest)
        """Frames have come together with the response."""
        # Masks keep hostile pages from speaking to proxies in the name of a browser. Nothing
        # between us and the server can read TLS or loopback, and masking costs most of the CPU.
        self._masks = not endpoint.tls and not is_loopback(endpoint.host)
        self._out: deque[memoryview] = deque()
        self.unsent = 0
        """Bytes that wait for the socket."""
        self._kind = BINARY
        self._text = b""
        self.ended = False
        """No further message comes: the other end closed it, or the connection broke."""
        self.ended_in_order = False
        self.sent_at = self.received_at = monotonic()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """Whether there is something to receive that polling the socket does not show."""
        pending = getattr(self._socket, "pending", None)  # of TLS only
        return not self.ended and (self._early or (pending is not None and pending() > 0))

    def send(self, data: bytes | bytearray, kind: int = BINARY) -> None:
        """Queue a message, and send as much as the socket takes."""
        key = os.urandom(4) if self._masks else NO_MASK
        head = frame_head(kind, len(data), key)
        self._queue(head + masked(data, key))
        self.flush()

    def beat(self) -> None:
        """Show the other end of the connection that this one is alive."""
        self.send(b"", PONG)

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self._out:
            view = self._out[0]
            try:
                sent = self._socket.send(view)
            except self._again:
                return
            except OSError:
                self.ended = True
                self._out.clear()
                self.unsent = 0
                return
            self.sent_at = monotonic()
            self.unsent -= sent
            if sent == len(view):
                self._out.popleft()
            else:
                self._out[0] = view[sent:]

    def receive(self) -> list[tuple[int, bytes]]:
        """The messages that have arrived, as pairs of BINARY or TEXT and bytes. A long binary one
        may come in several."""
        self._early = False
        blocks, size = [self._rest], 0
        while size < _BLOCK and not self.ended:
            try:
                data = self._socket.recv(_BLOCK)
            except self._again:
                break
            except OSError:
                data = b""
            if not data:
                self.ended = True
                break
            self.received_at = monotonic()
            blocks.append(data)
            size += len(data)
            if len(data) < _BLOCK and not hasattr(self._socket, "pending"):
                break
        data = b"".join(blocks) if self._rest or len(blocks) > 2 else blocks[-1]
        return self._messages(data)

    def close(self) -> None:
        """Close it. What is unsent gets a moment to be sent, and the other end to close its side: a
        socket that is closed with unread bytes may lose what it has sent."""
        if not self.ended:
            self.send(_NORMAL, CLOSE)
            deadline = monotonic() + _CLOSE_SECONDS
            with suppress(OSError):
                while self.unsent and self._wait(WRITE, deadline):
                    self.flush()
                self._socket.shutdown(SHUT_WR)
                while self._wait(READ, deadline) and self._socket.recv(_BLOCK):
                    pass
        self._socket.close()
        self.ended = True

    def _wait(self, what: int, deadline: float) -> bool:
        return poll(self.fileno(), what, max(0.0, deadline - monotonic()))

    def _queue(self, frame: bytes) -> None:
        self._out.append(memoryview(frame))
        self.unsent += len(frame)

    def _messages(self, data: bytes) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        at = 0
        while (head := read_head(data, at)) is not None:
            begin, end = head.end, head.end + head.size
            if head.too_long or head.key is not None:
                self.ended = True
                break
            if end > len(data):
                break
            at = end
            payload = data[begin:end]
            if head.kind == PING:
                self.send(payload, PONG)
            elif head.kind == CLOSE:
                self.ended = True
                self.ended_in_order = payload[:2] == _NORMAL
                break
            elif head.kind in (BINARY, TEXT, CONTINUATION):
                self._kind = head.kind or self._kind
                if self._kind == BINARY:
                    found.append((BINARY, payload))
                    continue
                self._text += payload
                if head.last:
                    found.append((TEXT, self._text))
                    self._text = b""
        self._rest = data[at:]
        return found
