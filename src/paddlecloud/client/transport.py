"""Signed JSON requests to one server, over a pool of connections, with the retry policy applied.

Every attempt at a request has its own nonce and signature, because the server refuses a nonce that
it has seen. `find` returns where the server is, and is called again when the connection is refused
or another program has the address. Threads may share a Transport.
"""

from __future__ import annotations

import hashlib
import json
from time import perf_counter

from paddlecloud.client.response_checks import check, keys, parse, refuse, whole_number
from paddlecloud.model.errors import (
    Internal,
    Invalid,
    PaddleCloudError,
    Retry,
    Unreachable,
    from_wire,
)
from paddlecloud.model.protocol.bce_auth import (
    CONTENT_CRC32,
    CONTENT_SHA256,
    UNSIGNED,
)
from paddlecloud.net.connection_pool import Pool
from paddlecloud.net.endpoint import EMPTY_SHA256, Endpoint, sign_request, target_of
from paddlecloud.net.http1 import TIMEOUT
from paddlecloud.net.proxy import DIRECT
from paddlecloud.net.retry import BODY_CHANGED, IMMEDIATE, NOT_SENT, TRANSPORT, Retries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from paddlecloud.client.response_checks import Schema
    from paddlecloud.net.http1 import Response
    from paddlecloud.net.proxy import Proxies
    from paddlecloud.net.retry import RetryPolicy
    from paddlecloud.net.websocket import WebSocket

    T = TypeVar("T")
    Find = Callable[["Endpoint | None", bool], "Endpoint"]
    Trace = Callable[[str], None]
    Answer = dict[str, Any]
    """A JSON object: no route of ours answers with anything else."""

#: A JSON object of which nothing is read.
DONE = keys({})

#: Most bytes of an error response.
MAX_ERROR = 1024 * 1024

#: Bytes of a JSON answer; of one that lists all files of a job; and, of such a long one, those that
#: each list or object in it has at least: parsed JSON takes several times as much memory.
MAX_ANSWER, MAX_LISTING, LEAST_ROW = 16 * 1024 * 1024, 128 * 1024 * 1024, 16

#: Rows of one page when all are wanted, and of all pages: more are not from our server.
PAGE, MOST_ROWS = 1000, 1_000_000

#: How often one request searches for the server again.
_MOST_MOVES = 2


class Transport:
    """`find(None, wake)` returns the endpoint, `find(endpoint, wake)` one after that one failed;
    without `wake` it does not start a server that was stopped."""

    def __init__(
        self,
        find: Find,
        lang: str = "en",
        trace: Trace | None = None,
        proxies: Proxies = DIRECT,
    ) -> None:
        self.lang = lang
        self._find = find
        self._trace = trace
        self._endpoint: Endpoint | None = None
        #: Whether a server has ever answered.
        self.answered = False
        #: Also for presigned URLs of other servers.
        self.pool = Pool(proxies, connect_timeout=TIMEOUT)

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
        """The JSON answer to the JSON `value`, which may be encoded already; `idempotent=True` if
        the request may be repeated. `on_send` is called whenever it is about to be sent."""
        if not isinstance(value, bytes):
            try:
                value = json.dumps(value).encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise Invalid("argument_json", reason=str(error)) from None
        return self._json("POST", path, None, schema, body=value, **how)

    def send(self, path: str, data: bytes, sha256: str) -> Answer:
        """The JSON answer to bytes, which are not sent again when the connection breaks: the caller
        asks first which part of them has arrived."""
        return self._json("POST", path, None, DONE, body=memoryview(data), sha256=sha256)

    def put(self, path: str, data: memoryview, crc32: str) -> Answer:
        """The JSON answer to a part of a file whose digest the server knows: these bytes are signed
        by their CRC-32 alone."""
        return self._json("PUT", path, None, DONE, body=data, crc32=crc32, idempotent=True)

    def open(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        timeout: float = TIMEOUT,
        **how: Any,
    ) -> Response:
        """A response whose body is still to be read."""
        return self._request(
            "GET", target_of(path, query), lambda response: response, timeout=timeout, **how
        )

    def websocket(self, path: str, query: Mapping[str, object] | None, timeout: float) -> WebSocket:
        """A WebSocket to a route that offers one."""
        from paddlecloud.net.websocket import WebSocket  # noqa: PLC0415 - few commands open one

        def read(response: Response) -> WebSocket:
            if response.status != 101:
                response.close()
                raise _not_ours(response.status)
            return WebSocket(response, self.endpoint)

        how: dict[str, Any] = {"timeout": timeout, "switches": True, "policy": IMMEDIATE}
        return self._request("GET", target_of(path, query), read, **how)

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
        """The first `limit` rows (None: all) of a list that comes in pages: `key` is the list in an
        answer, `cursor` the parameter that takes `next` of the page before."""
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
        """Close the idle connections; a later call opens new ones."""
        self.pool.drop_idle()

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
        def read(response: Response) -> Answer:
            with response:
                body = response.take(most + 1)
            if len(body) > most:
                raise Internal("response_large", limit=most)
            answer = _object(body, response)
            check(answer, schema)
            return answer

        return self._request(method, target_of(path, query), read, **how)

    def _request(
        self,
        method: str,
        target: str,
        read: Callable[[Response], T],
        *,
        idempotent: bool = False,
        wake: bool = True,
        policy: RetryPolicy = TRANSPORT,
        **how: Any,
    ) -> T:
        """What `read` makes of the response, in one of the attempts that the policy allows.

        A request that is not idempotent is repeated only where the server did nothing with it.
        """
        retries, moves = Retries(policy), 0
        while True:
            endpoint = self.endpoint
            try:
                response = self._send(endpoint, method, target, **how)
                if moves < _MOST_MOVES and not self._is_ours(response, endpoint, wake):
                    moves += 1
                    response.close()
                    continue
                return read(_checked(response))
            except PaddleCloudError as error:
                if error.code in NOT_SENT:
                    self._endpoint = self._find(endpoint, wake)
                    if moves < _MOST_MOVES and self._endpoint is not endpoint:
                        moves += 1
                        continue
                    # A server that never answered is most likely not there.
                    may_repeat = self.answered
                else:
                    may_repeat = idempotent or method == "GET" or error.code == BODY_CHANGED
                if not self.answered:
                    error = self._explained(error, endpoint)
                if not may_repeat:
                    raise error
                retries.wait(error)

    def _explained(self, error: PaddleCloudError, endpoint: Endpoint) -> PaddleCloudError:
        """The same error, or a clearer one if `http://` was written instead of `https://`."""
        host, port = endpoint.host, endpoint.port
        plain = not endpoint.tls and self.pool.proxies.proxy_for("http", host, port) is None
        if not isinstance(error, Unreachable) or error.code != "server_closed" or not plain:
            return error
        from paddlecloud.net.tls import explained  # noqa: PLC0415 - 20 ms, after a failure only

        return explained(error, host, port)

    def _is_ours(self, response: Response, endpoint: Endpoint, wake: bool) -> bool:
        """Whether the embedded server answered that was meant, or a later start of it: another
        program may have its port by now."""
        boot = response.headers.get("x-paddlecloud-server", "")
        if not endpoint.boot or boot == endpoint.boot:
            return True
        self._endpoint = self._find(endpoint, wake)
        return boot == self._endpoint.boot

    def _send(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        *,
        timeout: float = TIMEOUT,
        on_send: Callable[[], object] | None = None,
        switches: bool = False,
        **how: Any,
    ) -> Response:
        if switches:
            return self._switch(endpoint, target, timeout)
        body, headers = _content(**how)
        headers["accept-language"] = self.lang
        sign_request(endpoint, endpoint.authority, method, target, headers)
        began = perf_counter()
        try:
            response = self.pool.request(
                method,
                endpoint.url + target,
                headers,
                body,
                tls=endpoint.tls,
                timeout=timeout,
                on_send=on_send,
            )
        except PaddleCloudError as error:
            self._log(method, target, error.code, began)
            raise
        self._log(method, target, response.status, began)
        self.answered = True
        return response

    def _switch(self, endpoint: Endpoint, target: str, timeout: float) -> Response:
        from paddlecloud.net import websocket  # noqa: PLC0415 - few commands open one

        scheme = "https" if endpoint.tls else "http"
        proxy = self.pool.proxies.proxy_for(scheme, endpoint.host, endpoint.port)
        began = perf_counter()
        response = websocket.connect(endpoint, target, proxy=proxy, lang=self.lang, timeout=timeout)
        self._log("GET", target, response.status, began)
        self.answered = True
        return response

    def _log(self, method: str, target: str, outcome: object, began: float) -> None:
        if self._trace is not None:
            spent = (perf_counter() - began) * 1000
            self._trace(f"{method} {target} {outcome} {spent:.1f} ms")


def _content(
    body: bytes | memoryview = b"", sha256: str = UNSIGNED, crc32: str = "", encoding: str = ""
) -> tuple[bytes | memoryview, dict[str, str]]:
    """The body and its headers: bytes are JSON, a view is anything else."""
    if isinstance(body, bytes):
        if not body:
            return b"", {CONTENT_SHA256: EMPTY_SHA256}
        digest = hashlib.sha256(body).hexdigest()
        headers = {CONTENT_SHA256: digest, "content-type": "application/json"}
        return body, headers | ({"content-encoding": encoding} if encoding else {})
    kind = "application/octet-stream"
    headers = {CONTENT_SHA256: sha256, "content-type": kind, "content-length": str(len(body))}
    return body, headers | ({CONTENT_CRC32: crc32} if crc32 else {})


def _object(body: bytes, response: Response) -> Answer:
    """The JSON object in a body; Retry if it was declared as JSON and is not."""
    if len(body) > MAX_ANSWER and body.count(b"[") + body.count(b"{") > len(body) // LEAST_ROW:
        raise Internal("response_large", limit=MAX_ANSWER)
    try:
        answer = parse(body)
    except ValueError:
        if response.headers.get("content-type", "").startswith("application/json"):
            raise Retry("answer_damaged", size=len(body)) from None
        answer = None
    if not isinstance(answer, dict):
        raise _not_ours(response.status)
    return answer


def _checked(response: Response) -> Response:
    if response.status < 400:
        return response
    with response:
        body = response.take(MAX_ERROR)
        try:
            wire = parse(body)["error"]
        except (ValueError, KeyError, TypeError):
            wire = None
            if response.status == 400 and any(words in body for words in _OF_TLS_PORTS):
                raise Unreachable("server_wants_tls", address=response.address) from None
        is_ours = isinstance(wire, dict)
        error = from_wire(response.status, wire) if is_ours else _not_ours(response.status)
        error.retry_after = float(whole_number(response.headers.get("retry-after", "")) or 0)
        raise error


#: What nginx, Apache, and servers written in Go answer to a plain request at a port with TLS.
_OF_TLS_PORTS = (b"to HTTPS port", b"SSL-enabled server port", b"to an HTTPS server")


def _not_ours(status: int) -> PaddleCloudError:
    """A response that is not from our server: most often a proxy's page while it restarts."""
    kind = Retry if status in (502, 503, 504) else Internal
    return kind("unknown_answer", status=status)
