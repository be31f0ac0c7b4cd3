"""Signed requests of the agent to its server, with failover between several servers.

A `Link` is shared by all threads; each thread has a `Channel` of its own, which is one kept-alive
connection. While the server is away a call raises `Unreachable`, and `Link.on_return` is called
when any thread reaches the server again. Where several servers share one database, the next call
goes to another one when a server does not respond. The client's `Transport` is not used here: it
retries by itself, while in the agent a response that is not from our server must never end a job.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from zlib import crc32

from paddlecloud.agent.config import (
    endpoint_at,
    find_endpoint,
    read_config,
    read_peers,
    valid_urls,
    write_peers,
)
from paddlecloud.agent.inotify import CREATE, MODIFY, MOVED_TO, open_watcher
from paddlecloud.model.errors import (
    ConfigError,
    Internal,
    PaddleCloudError,
    Refused,
    Retry,
    Unauthenticated,
    Unreachable,
    from_wire,
)
from paddlecloud.model.protocol.bce_auth import CONTENT_CRC32, CONTENT_SHA256, UNSIGNED
from paddlecloud.net.endpoint import EMPTY_SHA256, sign_request, target_of
from paddlecloud.net.http1 import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddlecloud.agent.config import AgentConfig
    from paddlecloud.net.endpoint import Endpoint
    from paddlecloud.net.http1 import Response
    from paddlecloud.net.proxy import Proxy

TIMEOUT = 30.0
#: Seconds to wait for a connection where another server can be tried instead.
CONNECT = 5.0
OWN = ""
SERVER_HEADER = "x-paddlecloud-server"
_INTERNAL_ERROR = "internal"
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, kw_only=True)
class FileBody:
    """A body that is read from a file while it is sent; its digest is known before."""

    file: IO[bytes]
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PartBody:
    """A part of a file whose digest the server compares in the end: signed by its CRC-32."""

    data: bytes | memoryview


Body = bytes | memoryview | FileBody | PartBody


class Backoff:
    """Seconds before the next try: doubling, up to a limit."""

    def __init__(self, first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        self._next = self._first


class Link:
    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.generation = 0
        """Incremented whenever the server is reached again after it was lost."""
        self.on_return: Callable[[], object] = lambda: None
        self.peers = read_peers(config)
        """URLs of the other servers on the same database."""
        self.route = OWN
        """The URL that is used now; `OWN`: the server of our configuration."""
        self._lock = threading.Lock()
        self._up = False
        self._reached_at = time.monotonic()

    def channel(self) -> Channel:
        """A connection for the calling thread."""
        return Channel(self)

    def endpoint(self, route: str = OWN) -> Endpoint:
        """The current address of the server."""
        if route != OWN:
            return endpoint_at(route, self.config)
        found = find_endpoint(self.config)
        if found is None:
            raise Unreachable(
                "server_unreachable",
                address=str(self.config.endpoint_file),
                reason="no server has written its address there",
            )
        return found

    def proxy_for(self, endpoint: Endpoint) -> Proxy | None:
        scheme = "https" if endpoint.tls else "http"
        return self.config.proxies.proxy_for(scheme, endpoint.host, endpoint.port)

    def request_once(
        self, endpoint: Endpoint, method: str, target: str, body: bytes, timeout: float
    ) -> Response:
        """The response of one particular server, on a connection of its own."""
        headers = {CONTENT_SHA256: hashlib.sha256(body).hexdigest()}
        sign_request(endpoint, endpoint.authority, method, target, headers)
        proxy = self.proxy_for(endpoint)
        connection = Connection(endpoint.host, endpoint.port, endpoint.tls, timeout, proxy=proxy)
        return connection.request(method, target, headers, body)

    def reached(self) -> None:
        with self._lock:
            self._reached_at = time.monotonic()
            if self._up:
                return
            self._up = True
            self.generation += 1
        self.on_return()

    def lost(self, route: str = OWN) -> None:
        """The server does not respond: the next connection goes to the next one, if any."""
        with self._lock:
            self._up = False
            if route == self.route:
                routes = [OWN, *self.peers]
                place = routes.index(route) if route in routes else -1
                self.route = routes[(place + 1) % len(routes)]

    def set_peers(self, urls: Sequence[object]) -> None:
        """Store the servers that a response lists, for the next agent too."""
        peers = valid_urls(urls)
        if peers != self.peers:
            self.peers = peers
            write_peers(self.config, peers)

    def away_for(self, now: float) -> float:
        """Seconds since the server responded last (`now` is monotonic)."""
        return 0.0 if self._up else now - self._reached_at

    def wait_for_endpoint(self, known: Endpoint | None, seconds: float) -> None:
        """Sleep, but only until an embedded server writes another address than `known`."""
        if self.peers:
            time.sleep(seconds)
            return
        file = self.config.endpoint_file
        watcher = open_watcher() if file is not None else None
        watch = None
        if watcher is not None and file is not None:
            watch = watcher.add(file.parent, MODIFY | MOVED_TO | CREATE)
        try:
            if watcher is None or watch is None:
                time.sleep(min(seconds, _FIRST_PAUSE))
                return
            deadline = time.monotonic() + seconds
            while _is_same(find_endpoint(self.config), known):
                if not watcher.wait(deadline - time.monotonic()):
                    return
                watcher.read()
        finally:
            if watcher is not None:
                watcher.close()

    def renew_keys(self) -> bool:
        """Read the keys again after they were refused; whether they have changed."""
        try:
            fresh = read_config(self.config.path, self.config.proxies)
        except ConfigError:
            return False
        changed = (fresh.ak, fresh.sk) != (self.config.ak, self.config.sk)
        self.config = fresh
        return changed


class Channel:
    """Signed calls over one connection. Belongs to one thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._connection: Connection | None = None
        self.endpoint: Endpoint | None = None
        """The address of the last connection."""
        self._route = OWN
        self._is_confidential = False
        self.boot = ""
        """The boot id of the server in its last response."""

    def json(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        timeout: float = TIMEOUT,
    ) -> dict[str, Any]:
        """Call a route that takes and returns JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        return self.parsed(self.call(method, path, data, query, timeout=timeout))

    def confidential(self, path: str) -> dict[str, Any]:
        """The response of a route that returns secrets; Refused before the request if it would
        travel unencrypted between machines."""
        self._is_confidential = True
        try:
            return self.json("GET", path)
        finally:
            self._is_confidential = False

    def parsed(self, answer: bytes) -> dict[str, Any]:
        """The JSON object of a response; one that is no JSON is not from our server."""
        try:
            value = json.loads(answer or b"{}")
        except ValueError as error:
            unexpected = self._unexpected_response("its answer is no JSON")
            self._leave()
            raise unexpected from error
        return value if isinstance(value, dict) else {}

    def call(
        self,
        method: str,
        path: str,
        body: Body = b"",
        query: Mapping[str, object] | None = None,
        *,
        timeout: float = TIMEOUT,
        sink: Callable[[bytes], object] | None = None,
    ) -> bytes:
        """The body of a successful response (passed to `sink` in chunks if there is one).

        Every route of the agent is idempotent, so a connection that the server closed just when it
        was used is replaced once; the second request is signed again, because a nonce is good once.
        """
        used = self._connection is not None
        try:
            return self._once(method, path, body, query, timeout, sink)
        except Unreachable as error:
            if not used or error.code != "server_closed" or sink is not None:
                raise
        if isinstance(body, FileBody):
            body.file.seek(0)
        return self._once(method, path, body, query, timeout, sink)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _once(
        self,
        method: str,
        path: str,
        body: Body,
        query: Mapping[str, object] | None,
        timeout: float,
        sink: Callable[[bytes], object] | None,
    ) -> bytes:
        try:
            connection = self._connected()
            assert self.endpoint is not None
            if self._is_confidential and not self.endpoint.is_confidential:
                raise Refused("secrets_plain", url=self.endpoint.url)
            target = target_of(path, query)
            headers = self._headers(connection, method, target, body)
            content: bytes | memoryview | IO[bytes]
            if isinstance(body, FileBody):
                content = body.file
            else:
                content = body.data if isinstance(body, PartBody) else body
            response = connection.request(method, target, headers, content, timeout=timeout)
            return self._read(response, sink)
        except Unauthenticated:
            # The next call uses the keys of the configuration by then.
            self.close()
            raise
        except Unreachable as error:
            self._leave()
            found = self.endpoint
            if self._link.generation or found is None or found.tls or self._link.proxy_for(found):
                raise
            from paddlecloud.net.tls import explained  # noqa: PLC0415 - 4 MB that most agents never need

            raise explained(error, found.host, found.port) from error

    def _leave(self) -> None:
        """Close the connection; the next call finds the server again."""
        self.close()
        self._link.lost(self._route)

    def _connected(self) -> Connection:
        if self._connection is None:
            self.endpoint = None
            self._route = self._link.route
            self.endpoint = found = self._link.endpoint(self._route)
            timeout = CONNECT if self._link.peers else TIMEOUT
            proxy = self._link.proxy_for(found)
            self._connection = Connection(found.host, found.port, found.tls, timeout, proxy=proxy)
        return self._connection

    def _headers(
        self, connection: Connection, method: str, target: str, body: Body
    ) -> dict[str, str]:
        assert self.endpoint is not None
        if isinstance(body, PartBody):
            headers = {CONTENT_SHA256: UNSIGNED, CONTENT_CRC32: f"{crc32(body.data):08x}"}
        elif isinstance(body, FileBody):
            headers = {CONTENT_SHA256: body.sha256, "content-length": str(body.size)}
        else:
            headers = {CONTENT_SHA256: hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256}
        sign_request(self.endpoint, connection.authority, method, target, headers)
        return headers

    def _read(self, response: Response, sink: Callable[[bytes], object] | None) -> bytes:
        self.boot = response.headers.get(SERVER_HEADER, "")
        expected = self.endpoint.boot if self.endpoint else ""
        if expected and self.boot != expected:
            raise self._unexpected_response("its start mark is another one")
        good = 200 <= response.status < 300
        if good and response.headers.get("content-type", "").startswith("text/html"):
            # A web page: of a proxy, or of another server at this address.
            raise self._unexpected_response("a page instead of an answer")
        if good and sink is not None:
            for chunk in response.iter_chunks():
                sink(chunk)
            self._link.reached()
            return b""
        answer = response.read()
        if not good:
            raise self._refusal(response, answer)
        self._link.reached()
        return answer

    def _refusal(self, response: Response, answer: bytes) -> PaddleCloudError:
        error = None
        with suppress(ValueError, AttributeError):
            error = json.loads(answer).get("error")
        if not isinstance(error, dict):
            # Not an error response of our server: another server at its port, or a proxy.
            return self._unexpected_response(f"status {response.status} without a reason")
        self._link.reached()
        found = from_wire(response.status, error)
        # The server cannot reach another one, which is no reason to leave it; or it had an
        # unexpected error. Errors that the server raises itself have other codes.
        internal = isinstance(found, Internal) and found.code == _INTERNAL_ERROR
        if isinstance(found, Unreachable) or internal:
            found = Retry(found.code, **found.params)
        found.add_note(f"request {error.get('request_id', '?')}")
        return found

    def _unexpected_response(self, detail: str) -> Unreachable:
        address = self._connection.authority if self._connection else "?"
        return Unreachable("server_malformed", address=address, detail=detail)


def is_internal_error(error: Exception) -> bool:
    """Whether the server had an unexpected error (500). It may work later, but not without end; and
    the server responds, so other requests go on."""
    return isinstance(error, Retry) and error.code == _INTERNAL_ERROR


def _is_same(one: Endpoint | None, other: Endpoint | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.url, one.boot) == (other.url, other.boot)
