"""A server that speaks the agent's routes over real HTTP and misbehaves when told to.

It checks every signature, keeps what it stored across its own restarts (each on another port), and
can lose answers after storing, refuse for a while, or call a replica stale.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.files.snapshot import Entry, snapshot_of
from paddlecloud.model.protocol.bce_auth import check_body, header_map, parse, verify
from tests.unit.agent.runs import said

AK, SK = "agent-ak", "agent-secret-key"
PREFIX = "/api/v1/agent"
_REFUSALS = {
    "401": ("Unauthenticated", "scripted"),
    "500": ("Internal", "internal"),
    "503": ("Retry", "scripted"),
    "507": ("StorageFull", "storage_full"),
}


class Stored:
    """What the server knows of one replica."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.log = bytearray()
        self.started: list[dict[str, Any]] = []
        self.held: list[dict[str, Any]] = []
        self.exited: dict[str, Any] | None = None
        self.lost = False
        self.all_ended: bool | None = None
        self.files: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.sent = 0
        """Bytes of files that came, each time that they came."""
        self.listing: dict[str, str] = {}
        """By name the digest that its agent gave at the end."""

    @property
    def over(self) -> bool:
        return self.exited is not None or self.lost


class FakeServer:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.endpoint_file = home / "server" / "server.json"
        self.endpoint_file.parent.mkdir(parents=True, exist_ok=True)
        self.changed = threading.Condition()
        self.replicas: dict[str, Stored] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.seq = 0
        self.blobs: dict[str, bytes] = {}
        self.snapshots: dict[str, list[list[object]]] = {}
        self.settings = {"ship_interval": 10.0, "grace": 5.0}
        self.restart = False
        self.calls: list[str] = []
        self.polls: list[dict[str, Any]] = []
        self.faults: list[tuple[str, str]] = []
        """(part of a path, what happens): each is used up by one request."""
        self.sent = 0
        """Bytes of answers."""
        self.refused = 0
        self.boots = 0
        self._http: _Server | None = None
        self.start()

    def start(self) -> None:
        self.boots += 1
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self._http.boot = f"boot-{self.boots}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        port = self._http.server_address[1]
        facts = {"url": f"http://127.0.0.1:{port}", "boot": self._http.boot, "pid": os.getpid()}
        aside = self.endpoint_file.with_suffix(".tmp")
        aside.write_text(json.dumps(facts))
        aside.replace(self.endpoint_file)

    def stop(self) -> None:
        """As a kill -9 would: every connection ends at once."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.cut_off()
            with self.changed:
                self.changed.notify_all()
        self._http = None

    def cut_off(self) -> None:
        """End every connection; the server goes on."""
        if self._http is not None:
            self._http.cut_off()

    def files(self, contents: dict[str, bytes], *, executable: Iterable[str] = ()) -> str:
        """Store a snapshot of these files; its id."""
        entries = []
        for path, content in contents.items():
            digest = hashlib.sha256(content).hexdigest()
            self.blobs[digest] = content
            run = path in executable
            entries.append(Entry(path=path, size=len(content), sha256=digest, executable=run))
        snapshot = snapshot_of(entries)
        self.snapshots[snapshot.id] = [
            [e.path, e.kind.value, e.size, e.sha256, int(e.executable), e.target]
            for e in snapshot.entries
        ]
        return snapshot.id

    def run(self, replica: str, command: str, *, fence: int = 1, **run: Any) -> None:
        self.replicas.setdefault(replica, Stored(fence))
        self.order(replica, "run", run={"command": command, **run})

    def order(self, replica: str, want: str, **fields: Any) -> None:
        with self.changed:
            self.seq += 1
            before = self.orders.get(replica, {})
            run = said(env={"PATH": os.defpath})
            run |= before.get("run") or {}
            run |= fields.pop("run", {})
            stored = self.replicas.get(replica)
            self.orders[replica] = {
                "seq": self.seq, "replica": replica, "job": replica.split(".")[0], "attempt": 1,
                "fence": stored.fence if stored else 1, "want": want, "grace": 5.0,
                "cause": "stopped", "run": run,
            } | fields  # fmt: skip
            self.changed.notify_all()

    def fault(self, path: str, what: str, times: int = 1) -> None:
        self.faults += [(path, what)] * times

    def wait(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Until `condition` is true; fails the test otherwise."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, "this did not become true in time"
                self.changed.wait(min(left, 0.05))

    def count(self, path: str) -> int:
        return sum(path in call for call in self.calls)

    def take_fault(self, path: str) -> str:
        for index, (part, what) in enumerate(self.faults):
            if part in path:
                del self.faults[index]
                return what
        return ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeServer
    boot: str

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.sockets: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.sockets.add(request)
        super().process_request(request, client_address)

    def cut_off(self) -> None:
        for connection in list(self.sockets):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection cut off by `stop` is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("content-length", "0"))))

    do_PUT = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _serve(self, body: bytes) -> None:
        fake = self.server.fake
        parts = urlsplit(self.path)
        try:
            self._check(parts.path, parts.query, body)
        except Unauthenticated as error:
            fake.refused += 1
            self._answer(401, {"error": error.to_wire("en")})
            return
        with fake.changed:
            fake.calls.append(f"{self.command} {parts.path}")
            fault = fake.take_fault(parts.path)
        if fault.isdigit():
            kind, code = _REFUSALS.get(fault, ("Invalid", "scripted"))
            self._answer(int(fault), {"error": {"kind": kind, "code": code, "message": code}})
            return
        status, answer = self._route(parts.path, parse_qs(parts.query), body)
        answer = b"damaged" if fault == "damage" else answer
        with fake.changed:
            fake.changed.notify_all()
        if fault == "lose the answer" or self.server is not fake._http:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(status, answer, cut=fault == "cut the answer")

    def _check(self, path: str, query: str, body: bytes) -> None:
        headers = header_map([(k.encode(), v.encode()) for k, v in self.headers.items()])
        required = ("host", "x-bce-content-sha256", "x-bce-nonce")
        auth = parse(headers.get("authorization"))
        assert auth.ak == AK
        verify(auth, SK, self.command, path, query, headers, time.time(), required)
        check_body(headers, hashlib.sha256(body).hexdigest())

    def _answer(self, status: int, answer: object, *, cut: bool = False) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("x-paddlecloud-server", self.server.boot)
        self.end_headers()
        self.close_connection = self.close_connection or cut
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.wfile.flush()
        self.server.fake.sent += len(data) // 2 if cut else len(data)

    def _route(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, object]:
        fake = self.server.fake
        what, _, rest = path.removeprefix(PREFIX + "/").partition("/")
        if what == "poll":
            return 200, self._poll(json.loads(body))
        with fake.changed:
            if what == "report":
                return 200, self._report(body)
            if what == "snapshots":
                return 200, {"entries": fake.snapshots[unquote(rest)]}
            if what == "blobs":
                return 200, fake.blobs[rest][int(query.get("offset", ["0"])[0]) :]
            assert what == "replicas"
            replica, _, name = unquote(rest).partition("/")
            stored = fake.replicas[replica]
            assert int(query["fence"][0]) == stored.fence
            if name == "bundle":
                return self._bundle(path.removesuffix("bundle"), stored, body)
            if name == "listing":
                return 200, {"missing": _missing(stored, json.loads(body)["files"])}
            return _take(stored, name.removeprefix("files/"), body, query)

    def _bundle(self, base: str, stored: Stored, body: bytes) -> tuple[int, object]:
        """Those that have a fault before them have to come by themselves."""
        head, _, data = body.partition(b"\n")
        missing = []
        for name, size, _mtime in json.loads(head)["files"]:
            piece, data = data[:size], data[size:]
            if any(part in f"{base}files/{quote(name)}" for part, _ in self.server.fake.faults):
                missing.append(name)
            else:
                _take(stored, name, piece, {})
        return 200, {"missing": missing}

    def _poll(self, asked: dict[str, Any]) -> object:
        fake = self.server.fake
        deadline = time.monotonic() + asked["wait"]
        with fake.changed:
            fake.polls.append(asked)
            while True:
                new = [o for o in fake.orders.values() if o["seq"] > asked["cursor"]]
                left = deadline - time.monotonic()
                if new or fake.restart or left <= 0 or self.server is not fake._http:
                    break
                fake.changed.wait(left)
            return {
                "cursor": max([o["seq"] for o in new], default=asked["cursor"]),
                "orders": sorted(new, key=lambda o: int(o["seq"])),
                "settings": fake.settings,
                "restart": fake.restart,
            }

    def _report(self, body: bytes) -> object:
        fake = self.server.fake
        (length,) = struct.unpack(">I", body[:4])
        said = json.loads(body[4 : 4 + length])
        rest = body[4 + length :]
        acks, stale = [], []
        for item in said["items"]:
            log = item.get("log") or {"offset": 0, "length": 0}
            piece, rest = rest[: log["length"]], rest[log["length"] :]
            stored = fake.replicas.get(item["replica"])
            if stored is None or item["fence"] < stored.fence:
                stale.append(item["replica"])
                continue
            _store(stored, item, log["offset"], piece)
            acks.append(
                {"replica": item["replica"], "log_size": len(stored.log), "exited": stored.over}
            )
        assert not rest
        return {"acks": acks, "stale": stale}


def _missing(stored: Stored, rows: list[list[Any]]) -> list[str]:
    stored.listing = {row[0]: row[3] for row in rows}
    sizes = {name: len(content) for name, content in stored.files.items()}
    return [row[0] for row in rows if sizes.get(row[0]) != row[1]]


def _take(
    stored: Stored, name: str, body: bytes, query: dict[str, list[str]]
) -> tuple[int, object]:
    """A whole file, or what it grew by."""
    offset = int(query.get("offset", ["0"])[0])
    if offset != (len(stored.files.get(name, b"")) if offset else 0):
        error = {"kind": "Conflict", "code": "output_gap", "message": "a gap"}
        return 409, {"error": error}
    stored.files[name] = stored.files[name][:offset] + body if offset else body
    stored.puts.append(name)
    stored.sent += len(body)
    return 200, {"size": len(stored.files[name])}


def _store(stored: Stored, item: dict[str, Any], offset: int, piece: bytes) -> None:
    if offset <= len(stored.log):
        assert stored.log[offset : offset + len(piece)] == piece[: len(stored.log) - offset]
        stored.log += piece[len(stored.log) - offset :]
    if "started" in item:
        stored.started.append(item["started"])
    if "held" in item:
        stored.held.append(item["held"])
    if "exited" in item and item["exited"]["log_size"] <= len(stored.log):
        stored.exited = stored.exited or item["exited"]
    if item.get("lost"):
        stored.lost, stored.all_ended = True, item.get("all_ended")
