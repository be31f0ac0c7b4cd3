"""A pool of kept-alive HTTP/1.1 connections to any number of servers, shared by threads.

Each request has a connection of its own until its response was read to the end or closed; then the
connection is kept for the next request to the same server. Retries are the caller's decision.
"""

from __future__ import annotations

import os
from functools import partial

from paddlecloud.net.endpoint import split_url, target_in
from paddlecloud.net.http1 import TIMEOUT, Connection
from paddlecloud.net.proxy import DIRECT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddlecloud.net._sockets import Tls
    from paddlecloud.net.http1 import Body, Response
    from paddlecloud.net.proxy import Proxies

    Origin = tuple[str, int, Tls]
    Timeout = float | tuple[float, float]

#: Seconds until a server accepts a connection.
CONNECT_TIMEOUT = 10.0
#: Idle connections that are kept to one server.
KEEP = 32


class Pool:
    def __init__(
        self,
        proxies: Proxies = DIRECT,
        *,
        timeout: float = TIMEOUT,
        connect_timeout: float = CONNECT_TIMEOUT,
        keep: int = KEEP,
    ) -> None:
        self.proxies = proxies
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._keep = keep
        self._closed = False
        self._pid = os.getpid()
        #: list.append and list.pop are atomic, so this needs no lock.
        self._idle: dict[Origin, list[Connection]] = {}

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        *,
        tls: Tls = True,
        idempotent: bool = False,
        timeout: Timeout | None = None,
        on_send: Callable[[], object] | None = None,
    ) -> Response:
        """Send a request to a URL; see `Connection.request`.

        `tls` is for https: the certificates to trust, the system's unless given. `timeout` is the
        longest silence, or a pair: for the connection, and the longest silence. `on_send` is called
        when a connection is open and the request is about to be sent.
        """
        scheme, host, port = split_url(url)
        origin: Origin = (host, port, tls if scheme == "https" else False)
        connection = self._idle_connection(origin)
        if connection is None:
            connection = Connection(*origin, proxy=self.proxies.proxy_for(scheme, host, port))
        given = self._timeout if timeout is None else timeout
        pair = given if isinstance(given, tuple) else (self._connect_timeout, given)
        connection.connect_timeout, silence = pair
        if on_send is not None:
            connection.open()
            on_send()
        response = connection.request(
            method, target_in(url), headers, body, idempotent=idempotent, timeout=silence
        )
        give_back = partial(self._give_back, origin, connection, response)
        if response.finished:
            give_back()
        else:
            response.on_finish = give_back
        return response

    def drop_idle(self) -> None:
        """Close the idle connections; the next requests open new ones."""
        for idle in [*self._idle.values()]:
            while idle:
                try:
                    idle.pop().close()
                except IndexError:  # another thread took the last one
                    break

    def close(self) -> None:
        """Close the idle connections and keep none any more; requests under way continue."""
        self._closed = True
        self.drop_idle()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _idle_connection(self, origin: Origin) -> Connection | None:
        if self._pid != os.getpid():  # the connections belong to the parent process
            self._pid = os.getpid()
            self._idle = {}
        try:
            return self._idle.setdefault(origin, []).pop()
        except IndexError:
            return None

    def _give_back(self, origin: Origin, connection: Connection, response: Response) -> None:
        idle = self._idle.setdefault(origin, [])
        if response.reusable and not self._closed and len(idle) < self._keep:
            idle.append(connection)
        else:
            connection.close()
