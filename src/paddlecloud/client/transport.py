"""Signed calls to one server, over connections that are kept open.

Every attempt at a request has its own nonce and its own signature: a server that already worked on
the first copy would refuse a second one with the same nonce. Where the server lives is somebody
else's knowledge: `find` says it, and is asked again when nobody answers there or when the one who
answers is another. Threads may share a Transport; each call has a connection of its own while it
lasts, so nothing here needs a lock.
"""

from __future__ import annotations

import hashlib
import os
from time import perf_counter

from paddlecloud.client.response_checks import check, keys, refuse
from paddlecloud.model.errors import (
    Internal,
    PaddleCloudError,
    Retry,
    Unauthenticated,
    Unreachable,
    from_wire,
)
from paddlecloud.model.protocol.bce_auth import (
    CONTENT_CRC32,
    CONTENT_SHA256,
    UNSIGNED,
)
from paddlecloud.net.endpoint import EMPTY_SHA256, Endpoint, sign_request, target_of
from paddlecloud.net.fast_json import loads
from paddlecloud.net.http1 import TIMEOUT, Connection, Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from paddlecloud.client.response_checks import Schema

    T = TypeVar("T")
    Find = Callable[["Endpoint | None", bool], "Endpoint"]
    Trace = Callable[[str], None]
    Answer = dict[str, Any]
    """A JSON object: no route of ours answers with anything else."""

#: A JSON object of which nothing is read.
DONE = keys({})

#: An error answer has at most this many bytes; more than that is not from our server.
MAX_ERROR = 1024 * 1024

#: Bytes of a JSON answer; of one that lists all files of a job; and, of such a long one, those that
#: each list or object in it has at least: what a server sends takes several times as much here.
MAX_ANSWER, MAX_LISTING, LEAST_ROW = 16 * 1024 * 1024, 128 * 1024 * 1024, 16

#: What a request is refused with whose body does not have the signed digest.
_BODY_CHANGED = "auth_body_hash"

#: What an answer is that did not come as it was sent.
_CUT_OR_DAMAGED = ("answer_damaged", "server_closed")

#: Rows of one page when all are wanted, and of all pages: more are not from our server.
PAGE, MOST_ROWS = 1000, 1_000_000


class Transport:
    """`find(None, wake)` gives the endpoint, `find(endpoint, wake)` one after that one failed;
    without `wake` a server that somebody stopped is not to be started."""

    def __init__(self, find: Find, lang: str = "en", trace: Trace | None = None) -> None:
        self.lang = lang
        self._find = find
        self._trace = trace
        self._endpoint: Endpoint | None = None
        #: Whether a server has ever answered.
        self.answered = False
        #: Open connections that nobody uses now.
        self._idle: list[tuple[Endpoint, int, Connection]] = []

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = self._find(None, True)
        return self._endpoint

    def get(
        self, path: str, query: Mapping[str, object] | None = None, *, schema: Schema, **how: Any
    ) -> Answer:
        """The JSON object that the server gives for `path`, checked by `schema`; `most` are the
        bytes that it may have, MAX_ANSWER unless given."""
        return self._json("GET", path, query, schema, **how)

    def post(self, path: str, value: object, *, schema: Schema, **how: Any) -> Answer:
        """The JSON answer to the JSON `value`, which may be bytes already; `again=True` if the
        request is idempotent. `sent` is called whenever it is about to go out."""
        if not isinstance(value, bytes):
            from json import dumps  # noqa: PLC0415 - reading commands never write JSON

            value = dumps(value).encode()
        return self._json("POST", path, None, schema, body=value, **how)

    def send(self, path: str, data: bytes, sha256: str) -> Answer:
        """The JSON answer to bytes, which are not sent again when the connection breaks: part of
        them may have arrived, and whoever asks for that has less to send."""
        return self._json("POST", path, None, DONE, body=memoryview(data), sha256=sha256)

    def put(self, path: str, data: memoryview, crc32: str) -> Answer:
        """The JSON answer to a part of something whose digest is known to the server: these bytes
        are signed by their CRC-32 alone."""
        return self._json("PUT", path, None, DONE, body=data, crc32=crc32, again=True)

    def open(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        timeout: float = TIMEOUT,
        wake: bool = True,
    ) -> Stream:
        """A raw answer whose body is still to be read."""
        return self._ask("GET", target_of(path, query), timeout=timeout, wake=wake)

    def pages(
        self,
        path: str,
        key: str,
        cursor: str,
        query: Mapping[str, object],
        limit: int | None,
        *,
        schema: Schema,
    ) -> list[Answer]:
        """The first `limit` rows (None: all) of a list that is given page by page: `key` is what
        it is called in an answer, `cursor` what `next` of one page is called in the question."""
        found: list[Answer] = []
        at = None
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self.get(path, {**query, "limit": size, cursor: at}, schema=schema)
            rows = page[key]
            if len(rows) > size:
                refuse(key, rows, "response_at_most", most=size)
            found += rows
            if len(found) > MOST_ROWS:
                raise Internal("response_large", limit=MOST_ROWS)
            before, at = at, page["next"]
            if at is None:
                break
            if not rows or at == before:
                refuse("next", at, "response_null")
        return found

    def close(self) -> None:
        """Close the connections that are idle; a later call opens new ones."""
        while (kept := taken(self._idle)) is not None:
            kept[2].close()

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        schema: Schema,
        *,
        most: int = MAX_ANSWER,
        **how: Any,
    ) -> Answer:
        """One that was damaged or cut on its way is asked for again, if nothing is done twice by
        that."""
        repeatable = method == "GET" or how.get("again")
        for tries_left in (2, 1, 0):
            stream = self._ask(method, target_of(path, query), **how)
            try:
                with stream:
                    answer = _object(stream.whole(most), stream)
                check(answer, schema)
                return answer
            except Retry as error:
                if not tries_left or not repeatable or error.code not in _CUT_OR_DAMAGED:
                    raise
        raise AssertionError("the last try returns or raises")

    def _ask(self, method: str, target: str, **how: Any) -> Stream:
        """What the server answers. Nothing was done with a body that was changed on the way: it is
        sent again, whatever it asks for."""
        for tries_left in (2, 1, 0):
            try:
                return _checked(self._answer(method, target, **how))
            except Unauthenticated as error:
                if not tries_left or error.code != _BODY_CHANGED:
                    raise
        raise AssertionError("the last try returns or raises")

    def _answer(
        self, method: str, target: str, *, again: bool = False, wake: bool = True, **how: Any
    ) -> Stream:
        """Send, and send again where that is safe: on a refusal to connect nothing was sent; a
        GET, or a request that says so, may be repeated when the connection broke.

        A server that dies over a request needs three: the second try learns that it is gone.
        """
        repeatable = again or method == "GET"
        for tries_left in (2, 1, 0):
            endpoint = self.endpoint
            try:
                stream = self._send(endpoint, method, target, **how)
            except Unreachable as error:
                if not tries_left or not self._may_repeat(error, endpoint, repeatable, wake):
                    raise
                continue
            if not tries_left or not endpoint.boot or stream.boot == endpoint.boot:
                break
            # Another program, or a later start of ours, has the address by now.
            self._endpoint = self._find(endpoint, wake)
            if stream.boot == self._endpoint.boot:
                break
            stream.close()
        return stream

    def _may_repeat(
        self, error: Unreachable, endpoint: Endpoint, repeatable: bool, wake: bool
    ) -> bool:
        if error.code != "server_unreachable":
            return repeatable and error.code == "server_closed"
        self._endpoint = self._find(endpoint, wake)
        return self._endpoint is not endpoint

    def _send(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        *,
        timeout: float = TIMEOUT,
        sent: Callable[[], None] | None = None,
        **how: Any,
    ) -> Stream:
        connection = self._connection(endpoint)
        body, headers = _content(**how)
        headers["accept-language"] = self.lang
        sign_request(endpoint, connection.authority, method, target, headers)
        began = perf_counter()
        try:
            if sent is not None:
                connection.open()
                sent()
            response = connection.request(method, target, headers, body, timeout=timeout)
        except PaddleCloudError as error:
            self._say(method, target, error.code, began)
            raise
        self._say(method, target, response.status, began)
        self.answered = True
        entry = (endpoint, os.getpid(), connection)
        return Stream(response, lambda: self._idle.append(entry))

    def _connection(self, endpoint: Endpoint) -> Connection:
        """An idle connection to the endpoint of this process, or a new one."""
        while (kept := taken(self._idle)) is not None:
            owner, pid, connection = kept
            if owner is endpoint and pid == os.getpid():
                return connection
            connection.close()
        return Connection(endpoint.host, endpoint.port, endpoint.tls)

    def _say(self, method: str, target: str, outcome: object, began: float) -> None:
        if self._trace is not None:
            spent = (perf_counter() - began) * 1000
            self._trace(f"{method} {target} {outcome} {spent:.1f} ms")


class Stream:
    """An answer with its body; reading to the end, or leaving `with`, frees its connection."""

    def __init__(self, response: Response, release: Callable[[], None]) -> None:
        self._response = response
        self._release: Callable[[], None] | None = release
        self.status = response.status
        self.headers = response.headers
        self.boot = response.headers.get("x-paddlecloud-server", "")

    def read(self, size: int = -1) -> bytes:
        """All that is left; or up to `size` bytes as soon as there are some."""
        piece = self._response.read(size)
        if self._response.finished:
            self.close()
        return piece

    def take(self, size: int) -> bytes:
        """So many bytes; fewer, or none, where the answer ends before."""
        pieces, left = [], size
        while left and (piece := self.read(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def whole(self, most: int) -> bytes:
        """All that is left; Internal if that is more than so many bytes."""
        found = self.take(most + 1)
        if len(found) > most:
            raise Internal("response_large", limit=most)
        return found

    def close(self) -> None:
        """Give the connection back, or give it up if there is still something to read on it."""
        self._response.close()
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def taken(idle: list[T]) -> T | None:
    """One of the connections that nobody uses now, if there is any: list.pop and append are atomic,
    so no two threads get the same, but a look before would be no promise."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _content(
    body: bytes | memoryview = b"", sha256: str = UNSIGNED, crc32: str = "", encoding: str = ""
) -> tuple[bytes | memoryview, dict[str, str]]:
    """The body and what is said of it: bytes are JSON, a view is anything else."""
    if isinstance(body, bytes):
        if not body:
            return b"", {CONTENT_SHA256: EMPTY_SHA256}
        digest = hashlib.sha256(body).hexdigest()
        headers = {CONTENT_SHA256: digest, "content-type": "application/json"}
        return body, headers | ({"content-encoding": encoding} if encoding else {})
    kind = "application/octet-stream"
    headers = {CONTENT_SHA256: sha256, "content-type": kind, "content-length": str(len(body))}
    return body, headers | ({CONTENT_CRC32: crc32} if crc32 else {})


def _object(body: bytes, stream: Stream) -> Answer:
    """A whole answer, read; Retry: it was meant to be JSON and is none."""
    if len(body) > MAX_ANSWER and body.count(b"[") + body.count(b"{") > len(body) // LEAST_ROW:
        raise Internal("response_large", limit=MAX_ANSWER)
    try:
        answer = loads(body)
    except ValueError:
        if stream.headers.get("content-type", "").startswith("application/json"):
            raise Retry("answer_damaged", size=len(body)) from None
        answer = None
    if not isinstance(answer, dict):
        raise _not_ours(stream.status)
    return answer


def _checked(stream: Stream) -> Stream:
    if stream.status < 400:
        return stream
    with stream:
        raise _error(stream)


def _error(stream: Stream) -> PaddleCloudError:
    try:
        error = loads(stream.take(MAX_ERROR))["error"]
        if not isinstance(error, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        return _not_ours(stream.status)
    return from_wire(stream.status, error)


def _not_ours(status: int) -> PaddleCloudError:
    """An answer that is not from our server: most often a proxy's page while it restarts."""
    kind = Retry if status in (502, 503, 504) else Internal
    return kind("unknown_answer", status=status)
