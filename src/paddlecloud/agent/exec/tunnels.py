"""Opens tunnels: connects a port of a replica, or the terminal of a command, with a client.

The server offers tunnels in its responses to polls. Each gets a thread, which connects to the port
first, then to the server that made the offer, and copies bytes until either side ends. A tunnel is
opened only to a replica that runs here, and only to loopback; where users have uids of their own,
the port has to be one of the user's.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.config import endpoint_at
from paddlecloud.agent.exec._terminal import Terminal
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import records
from paddlecloud.agent.server_link.channel import SERVER_HEADER
from paddlecloud.model.errors import ConfigError, PaddleCloudError, Unreachable
from paddlecloud.net import websocket
from paddlecloud.net.endpoint import target_of
from paddlecloud.net.tunnel_end import FileEnd, Relay, SocketEnd
from paddlecloud.net.websocket import WebSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.exec.commands import Commands
    from paddlecloud.net.endpoint import Endpoint
    from paddlecloud.net.http1 import Response

#: Seconds in which an order may come again: until the server gives the offer up, and some more.
_KNOWN_SECONDS = 20.0
_CONNECT_SECONDS = 5.0
_SERVER_SECONDS = 10.0
#: Seconds to wait for the order of the command whose terminal is wanted.
_COMMAND_SECONDS = 10.0
#: Servers behind one address: so often another one may answer than that which is meant.
_TRIES = 8
_LISTEN = "0A"


class Refusal(Exception):
    """Why a tunnel is not opened: a word of the protocol, and details."""

    def __init__(self, cause: str, message: str = "") -> None:
        super().__init__(message or cause)
        self.cause = cause
        self.message = message


class Tunnels:
    def __init__(self, context: Context, commands: Commands) -> None:
        self._context = context
        self._commands = commands
        self._known: dict[str, float] = {}

    def known(self) -> list[str]:
        """The tunnels of recent orders."""
        since = time.monotonic() - _KNOWN_SECONDS
        self._known = {key: at for key, at in self._known.items() if at > since}
        return list(self._known)

    def apply(self, orders: Iterable[Mapping[str, Any]], polled: Endpoint | None) -> None:
        """Open the tunnels of a response to a poll of the server `polled`."""
        for order in orders:
            name = str(order["id"])
            if name not in self._known:
                self._known[name] = time.monotonic()
                arguments = (order, polled)
                threading.Thread(target=self._serve, args=arguments, daemon=True).start()

    def _serve(self, order: Mapping[str, Any], polled: Endpoint | None) -> None:
        """The body of the thread of one tunnel."""
        try:
            server = _Server(self._context, order, polled)
            try:
                if order.get("port"):
                    self._serve_port(order, server)
                else:
                    self._serve_terminal(order, server)
            except Refusal as error:
                server.refuse(error)
        except (PaddleCloudError, OSError) as error:
            self._context.log.warning(f"cannot open a tunnel: {error}", str(order["replica"]))
        except Exception:  # noqa: BLE001 - logged, because a thread has no other way to report it
            self._context.log.failure("unexpected error in a tunnel", str(order)[:500])

    def _serve_port(self, order: Mapping[str, Any], server: _Server) -> None:
        port = int(order["port"])
        self._check_port(str(order["replica"]), port)
        with _dial(port) as connection:
            tunnel = server.open()
            Relay(tunnel, SocketEnd(connection)).run()

    def _serve_terminal(self, order: Mapping[str, Any], server: _Server) -> None:
        size = self._commands.wants_terminal(str(order["command"]), _COMMAND_SECONDS)
        if size is None:
            raise Refusal("over")
        try:
            terminal = Terminal(*size)
        except OSError as error:
            raise Refusal("failed", str(error)) from error
        try:
            tunnel = server.open()
            self._commands.give_terminal(str(order["command"]), terminal)
            local = FileEnd(terminal.master, terminal.master)

            def resize(value: dict[str, Any]) -> None:
                rows, columns = value.get("resize", (0, 0))
                terminal.resize(int(rows), int(columns))

            Relay(tunnel, local, on_control=resize).run()
        finally:
            terminal.hang_up()
            if not self._commands.take_terminal_back(str(order["command"]), terminal):
                terminal.finish()

    def _check_port(self, replica: str, port: int) -> None:
        """Refusal unless that is a port of a replica that runs here."""
        tracked = self._context.registry.get(replica)
        if tracked is None or tracked.stage is not Stage.LAUNCHED or not tracked.started:
            raise Refusal("over")
        launch = records.read(tracked.root / records.ORDER) or {}
        uid = launch.get("uid")
        if uid is not None:
            owners = listeners(port)
            if owners and owners != {uid}:
                raise Refusal("foreign")


class _Server:
    """The server that waits for a tunnel."""

    def __init__(self, context: Context, order: Mapping[str, Any], polled: Endpoint | None) -> None:
        self._context = context
        self._path = f"/agent/tunnels/{order['id']}"
        self._boot = str(order.get("boot") or "")
        url = str(order.get("url") or "")
        # The order may be of another server than that which passed it on.
        self._endpoints = [endpoint_at(url, context.config)] if url else []
        if polled is not None:
            self._endpoints.insert(0, polled)

    def open(self) -> WebSocket:
        """A WebSocket to it."""
        target = target_of(self._path)

        def send(endpoint: Endpoint) -> Response:
            proxy = self._context.link.proxy_for(endpoint)
            return websocket.connect(endpoint, target, proxy=proxy, timeout=_SERVER_SECONDS)

        response, endpoint = self._reach(send)
        if response.status != 101:
            with response:
                raise Unreachable(
                    "server_malformed",
                    address=endpoint.authority,
                    detail=f"status {response.status} instead of a tunnel",
                )
        return WebSocket(response, endpoint)

    def refuse(self, why: Refusal) -> None:
        """Report why there is no tunnel."""
        body = json.dumps({"cause": why.cause, "message": why.message[:300]}).encode()
        target = target_of(f"{self._path}/refuse")

        def send(endpoint: Endpoint) -> Response:
            return self._context.link.request_once(endpoint, "POST", target, body, _SERVER_SECONDS)

        self._reach(send)[0].close()

    def _reach(self, send: Callable[[Endpoint], Response]) -> tuple[Response, Endpoint]:
        """The response of the server that is meant: several may share a URL."""
        failure: PaddleCloudError | None = None
        for attempt in range(_TRIES):
            endpoint = self._endpoints[attempt % len(self._endpoints)]
            try:
                response = send(endpoint)
            except PaddleCloudError as error:
                failure = error
                if attempt + 1 >= 2 * len(self._endpoints):
                    break
                continue
            if response.headers.get(SERVER_HEADER) == self._boot:
                return response, endpoint
            response.close()
        raise failure or ConfigError("tunnel_unknown", tunnel=self._path.rpartition("/")[2])


def _dial(port: int) -> socket.socket:
    """A connection to this port of this machine; Refusal if there is none."""
    for address in ("127.0.0.1", "::1"):
        with suppress(OSError):
            connection = socket.create_connection((address, port), _CONNECT_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise Refusal("closed")


def listeners(port: int, *, proc: Path = Path("/proc/self/net")) -> set[int]:
    """The uids of the sockets that listen on this port."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / name).read_text("ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(int(words[7]))
    return found
