"""The agent's way to its server: signed calls, and the knowledge whether the server is there.

A `Link` is shared by all threads; each thread has a `Channel` of its own, which is one kept-alive
connection. The server may be away for as long as it likes: a call then raises `Unreachable`, and
`Link.on_return` is called when somebody reaches the server again. What a call means is the caller's
business. Where several servers do as well, a call goes to another one when nobody answers at the
last: any of them knows everything, so which one it is matters to nobody. The client's `Transport`
is not used whole: it looks for another server and asks again by itself, while here an answer that
is not our server's must never end a job.
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
    sound_urls,
    write_peers,
)
from paddlecloud.agent.inotify import CREATE, MODIFY, MOVED_TO, open_watcher
from paddlecloud.model.errors import (
    ConfigError,
    Internal,
    PaddleCloudError,
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

TIMEOUT = 30.0
#: Seconds to wait for a connection where another server could be asked instead.
CONNECT = 5.0
OWN = ""
SERVER_HEADER = "x-paddlecloud-server"
_MISTAKE = "internal"
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, kw_only=True)
class FileBody:
    """A body that is read from a file while it is sent; its digest has to be known before."""

    file: IO[bytes]
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PartBody:
    """A part of a file of which the server compares the digest in the end: signed by its CRC-32."""

    data: bytes


Body = bytes | FileBody | PartBody


class Backoff:
    """How long to wait before the next try: doubling, up to a limit."""

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
        """Grows whenever the server is reached again after it was lost."""
        self.on_return: Callable[[], object] = lambda: None
        self.peers = read_peers(config)
        """Addresses of servers that do as well as our own."""
        self.route = OWN
        """Which of them is asked now; `OWN`: the server of our configuration."""
        self._lock = threading.Lock()
        self._up = False
        self._reached_at = time.monotonic()

    def channel(self) -> Channel:
        """A connection for the calling thread."""
        return Channel(self)

    def endpoint(self, route: str = OWN) -> Endpoint:
        """Where the server is said to be now."""
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

    def reached(self) -> None:
        with self._lock:
            self._reached_at = time.monotonic()
            if self._up:
                return
            self._up = True
            self.generation += 1
        self.on_return()

    def lost(self, route: str = OWN) -> None:
        """Nobody answers there: the next connection goes to the next server, if one is known."""
        with self._lock:
            self._up = False
            if route == self.route:
                routes = [OWN, *self.peers]
                place = routes.index(route) if route in routes else -1
                self.route = routes[(place + 1) % len(routes)]

    def learn(self, told: Sequence[object]) -> None:
        """Remember the servers that one of them named, beyond our own death too."""
        peers = sound_urls(told)
        if peers != self.peers:
            self.peers = peers
            write_peers(self.config, peers)

    def away_for(self, now: float) -> float:
        """Seconds since the server answered last (`now` is monotonic)."""
        return 0.0 if self._up else now - self._reached_at

    def wait_for_endpoint(self, known: Endpoint | None, seconds: float) -> None:
        """Sleep so long, or until an embedded server writes another address than `known`."""
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
        """Read the keys again after they were refused; whether they are other ones now."""
        try:
            fresh = read_config(self.config.path)
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
        """Where the last connection led, or was to lead."""
        self._route = OWN
        self.boot = ""
        """The mark of its start that the server put on its last answer."""

    def json(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        timeout: float = TIMEOUT,
    ) -> dict[str, Any]:
        """Call a route that speaks JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        return self.parsed(self.call(method, path, data, query, timeout=timeout))

    def parsed(self, answer: bytes) -> dict[str, Any]:
        """An answer that has to be JSON: what is not comes from somebody who has the server's
        address."""
        try:
            value = json.loads(answer or b"{}")
        except ValueError as error:
            stranger = self._stranger("its answer is no JSON")
            self._leave()
            raise stranger from error
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
        """The body of a good answer (given to `sink` piece by piece if there is one).

        Every route of the agent may be called twice, so a connection that the server closed just
        when we used it is replaced once; the second request is signed anew, because its nonce
        would be taken for a replay.
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
            target = target_of(path, query)
            headers = self._headers(connection, method, target, body)
            content: bytes | IO[bytes]
            if isinstance(body, FileBody):
                content = body.file
            else:
                content = body.data if isinstance(body, PartBody) else body
            response = connection.request(method, target, headers, content, timeout=timeout)
            return self._read(response, sink)
        except Unauthenticated:
            # The next call takes the keys that the configuration has by then.
            self.close()
            raise
        except Unreachable:
            self._leave()
            raise

    def _leave(self) -> None:
        """Who is there is not our server: the next call looks for it anew."""
        self.close()
        self._link.lost(self._route)

    def _connected(self) -> Connection:
        if self._connection is None:
            self.endpoint = None
            self._route = self._link.route
            self.endpoint = found = self._link.endpoint(self._route)
            patience = CONNECT if self._link.peers else TIMEOUT
            self._connection = Connection(found.host, found.port, found.tls, patience)
        return self._connection

    def _headers(
        self, connection: Connection, method: str, target: str, body: Body
    ) -> dict[str, str]:
        assert self.endpoint is not None
        headers = {CONTENT_SHA256: _digest(body)}
        if isinstance(body, PartBody):
            headers[CONTENT_CRC32] = f"{crc32(body.data):08x}"
        if isinstance(body, FileBody):
            headers["content-length"] = str(body.size)
        sign_request(self.endpoint, connection.authority, method, target, headers)
        return headers

    def _read(self, response: Response, sink: Callable[[bytes], object] | None) -> bytes:
        self.boot = response.headers.get(SERVER_HEADER, "")
        expected = self.endpoint.boot if self.endpoint else ""
        if expected and self.boot != expected:
            raise self._stranger("its start mark is another one")
        good = 200 <= response.status < 300
        if good and response.headers.get("content-type", "").startswith("text/html"):
            # A page for people: of a proxy, or of whoever has the server's address now.
            raise self._stranger("a page instead of an answer")
        if good and sink is not None:
            for piece in response.iter_chunks():
                sink(piece)
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
            # Not our server's way to say no: somebody else has its port, or a proxy speaks.
            return self._stranger(f"status {response.status} without a reason")
        self._link.reached()
        return refusal_of(response.status, error)

    def _stranger(self, detail: str) -> Unreachable:
        address = self._connection.authority if self._connection else "?"
        return Unreachable("server_malformed", address=address, detail=detail)


def refusal_of(status: int, error: Mapping[str, Any]) -> PaddleCloudError:
    """Why the server said no, in terms of what the agent can do about it."""
    refusal = from_wire(status, error)
    if isinstance(refusal, Unreachable):
        # It is the server that cannot reach somebody: that is no reason to look for another.
        refusal = Retry(refusal.code, **refusal.params)
    elif isinstance(refusal, Internal) and refusal.code == _MISTAKE:
        # Nobody foresaw it there. What the server says itself with another code stays so.
        refusal = Retry(refusal.code, **refusal.params)
    refusal.add_note(f"request {error.get('request_id', '?')}")
    return refusal


def is_stumble(error: Exception) -> bool:
    """Whether the server made a mistake, or its disk did: the same may work later. It answers, so
    whoever has something else to ask goes on with that, and nobody asks the same without an end."""
    return isinstance(error, Retry) and error.code == _MISTAKE


def _digest(body: Body) -> str:
    if isinstance(body, FileBody):
        return body.sha256
    if isinstance(body, PartBody):
        return UNSIGNED
    return hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256


def _is_same(one: Endpoint | None, other: Endpoint | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.url, one.boot) == (other.url, other.boot)
