"""A server that checks signatures and nonces as the real one does, and answers what a test says.

The real server is tested elsewhere; this one exists to go wrong on demand: to drop a connection,
to answer slowly, to be another program on the same port.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paddlecloud.model.protocol import bce_auth

AK, SK = "ak-test", "sk-test"
#: Below this path it is a bucket, to whose addresses one needs no signature.
BUCKET = "/bucket/"
#: What anybody may ask.
OPEN = ("/healthz", "/api/v1/gen_token")
REQUIRED = ("host", bce_auth.CONTENT_SHA256, bce_auth.NONCE)


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What goes back; `drop` closes the connection after so many bytes of the body.

    `hold` sends the body and keeps the answer open until the client goes away; `chunk` sends it in
    pieces of that size.
    """

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: int | None = None
    hold: bool = False
    chunk: int = 0


def ok(value: object, **headers: str) -> Answer:
    return Answer(json.dumps(value).encode(), 200, headers)


def error(status: int, kind: str, code: str, message: str = "", **params: object) -> Answer:
    wire = {"kind": kind, "code": code, "message": message, "params": params, "request_id": "r"}
    return Answer(json.dumps({"error": wire}).encode(), status)


Route = Callable[[Seen], Answer]
VALIDATE = "POST /api/v1/jobs/validate"
VALID = ok({"has_files": True, "notes": []})
LACKING = ok({"has_files": False, "notes": []})


class FakeServer(ThreadingHTTPServer):
    """Routes by `METHOD /path`; a list of answers is used up one by one, the last one stays."""

    daemon_threads = True
    # A client that gave up may leave a request behind; nobody reads its answer.
    block_on_close = False

    def __init__(self, boot: str = "boot-1") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.boot = boot
        #: It has the files of every job, unless a test says otherwise.
        self.routes: dict[str, Route | list[Answer]] = {VALIDATE: [VALID]}
        self.seen: list[Seen] = []
        self.nonces: set[str] = set()
        self.connections = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, method: str, path: str) -> int:
        return sum(1 for seen in self.seen if (seen.method, seen.path) == (method, path))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


@contextmanager
def serving(boot: str = "boot-1") -> Iterator[FakeServer]:
    server = FakeServer(boot)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        raw_path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        pairs = dict(piece.split("=", 1) for piece in query.split("&") if piece)
        seen = Seen(self.command, raw_path, pairs, headers, body)
        if raw_path not in OPEN and not raw_path.startswith(BUCKET):
            self._check(headers, raw_path, query, body)
        with self.server.lock:
            self.server.seen.append(seen)
            answer = self._answer(seen)
        self._reply(answer)

    def _check(self, headers: dict[str, str], path: str, query: str, body: bytes) -> None:
        auth = bce_auth.parse(headers.get("authorization"))
        sk = SK if auth.ak == AK else None
        bce_auth.verify(auth, sk, self.command, path, query, headers, time.time(), REQUIRED)
        bce_auth.check_body(headers, hashlib.sha256(body).hexdigest())
        with self.server.lock:
            assert headers[bce_auth.NONCE] not in self.server.nonces, "a nonce was used twice"
            self.server.nonces.add(headers[bce_auth.NONCE])

    def _answer(self, seen: Seen) -> Answer:
        route = self.server.routes.get(f"{seen.method} {seen.path}")
        if route is None:
            return error(404, "NotFound", "route_unknown", "no such route")
        if isinstance(route, list):
            return route.pop(0) if len(route) > 1 else route[0]
        return route(seen)

    def _reply(self, answer: Answer) -> None:
        if answer.drop == 0:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name.replace("_", "-"), value)
        if self.server.boot:
            self.send_header("x-paddlecloud-server", self.server.boot)
        if answer.chunk:
            self._send_chunks(answer)
            return
        self.send_header("content-length", str(len(answer.body) + answer.hold))
        self.end_headers()
        self.wfile.write(answer.body[: answer.drop])
        if answer.hold:
            self.wfile.flush()
            self.rfile.read(1)
        if answer.drop is not None or answer.hold:
            self.close_connection = True

    def _send_chunks(self, answer: Answer) -> None:
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for start in range(0, len(answer.body), answer.chunk):
            piece = answer.body[start : start + answer.chunk]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
