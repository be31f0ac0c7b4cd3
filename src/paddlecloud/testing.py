"""Builders and fakes for tests, ours and those of users.

A builder makes a complete value; a test states only what matters to it. `SignedCaller` sends signed
HTTP requests without retries; `ScriptedAgent` is an agent without processes that reports what the
test asks for, so that a job can pass through all its states. `paddlecloud.backends.scripted` and
`paddlecloud.stores.memory` complement them.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from paddlecloud import __version__
from paddlecloud.model.errors import from_wire
from paddlecloud.model.files.layout import replica_id, worker_name
from paddlecloud.model.jobs.job import (
    Attempt,
    Job,
    JobSpec,
    JobType,
    Replica,
    ReplicaGroup,
    Resources,
    Role,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.protocol import bce_auth

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""The default time of all values."""


def a_spec(*, cpu: float = 1.0, memory: int = 0, gpu: int = 0, **changes: Any) -> JobSpec:
    """A job of one trainer with the command `echo hi`."""
    resources = Resources(cpu=cpu, memory=memory, gpu=gpu)
    plain: dict[str, Any] = {
        "start_cmd": "echo hi",
        "groups": (ReplicaGroup(role=Role.TRAINER, count=1, resources=resources),),
        "job_type": JobType.GPU if gpu else JobType.CPU,
    }
    return JobSpec(**(plain | changes))


def a_job(*, spec: JobSpec | None = None, **changes: Any) -> Job:
    """A job that waits to be placed for the first time."""
    plain: dict[str, Any] = {
        "id": f"job-{secrets.token_hex(16)}",
        "number": 1,
        "owner": "someone",
        "spec": spec or a_spec(),
        "state": JobState.SCHEDULE,
        "version": 1,
        "created_at": NOON,
        "waiting_since": NOON,
    }
    return Job(**(plain | changes))


def a_replica(job_id: str, attempt: int = 1, *, rank: int = 0, **changes: Any) -> Replica:
    """One trainer on the node `node-0`."""
    plain: dict[str, Any] = {
        "id": replica_id(job_id, attempt, worker_name(Role.TRAINER, rank)),
        "role": Role.TRAINER,
        "rank": rank,
        "node": "node-0",
        "resources": Resources(),
    }
    return Replica(**(plain | changes))


def an_attempt(job: Job | None = None, *, number: int = 1, **changes: Any) -> Attempt:
    """The first attempt of `job`: one trainer, ordered, without a report."""
    job_id = (job or a_job()).id
    plain: dict[str, Any] = {
        "job_id": job_id,
        "number": number,
        "fence": number,
        "pool": "local",
        "replicas": (a_replica(job_id, number),),
        "created_at": NOON,
    }
    return Attempt(**(plain | changes))


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value, or the error that it carries, raised as its own class."""
        value = json.loads(self.body)
        if self.status >= 400:
            raise from_wire(self.status, value["error"])
        return value

    @property
    def code(self) -> str:
        """The code of the error that it carries; empty for none."""
        return str(json.loads(self.body)["error"]["code"]) if self.status >= 400 else ""


@dataclass(frozen=True, kw_only=True)
class SignedCaller:
    """Signs requests with one pair of keys; each call has a connection of its own."""

    host: str
    port: int
    ak: str
    sk: str
    clock: Callable[[], float] = time.time
    check: Callable[[str, str, Reply], None] | None = None
    """Sees method, path and reply of every call: a place for rules that all answers obey."""
    timeout: float = 30.0

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request; a body that is not bytes goes as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        raw_path, pairs = bce_auth.quote(path, "/"), encode_query(query or {})
        signed = self.headers(method, raw_path, pairs, data) | dict(headers or {})
        target = f"{raw_path}?{pairs}" if pairs else raw_path
        reply = exchange(self.host, self.port, method, target, signed, data, self.timeout)
        if self.check is not None:
            self.check(method, path, reply)
        return reply

    def headers(self, method: str, raw_path: str, query_string: str, body: bytes) -> dict[str, str]:
        """The headers of a request that a server will believe, once."""
        now = int(self.clock())
        found = {
            "host": f"{self.host}:{self.port}",
            "x-bce-date": bce_auth.format_time(now),
            bce_auth.CONTENT_SHA256: hashlib.sha256(body).hexdigest(),
            bce_auth.NONCE: secrets.token_hex(16),
        }
        found["authorization"] = bce_auth.sign(
            self.ak, self.sk, method, raw_path, query_string, found, now
        )
        return found

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query).json()

    def post(self, path: str, body: object = b"") -> Any:
        return self.call("POST", path, body=body).json()


def encode_query(query: Mapping[str, object]) -> str:
    """A query string; a value of None is left out."""
    pairs = [(name, str(value)) for name, value in query.items() if value is not None]
    return "&".join(f"{bce_auth.quote(name)}={bce_auth.quote(value)}" for name, value in pairs)


def exchange(
    host: str,
    port: int,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    timeout: float = 30.0,
) -> Reply:
    """Exactly this request and its answer, on a connection of its own."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value.encode("utf-8", "surrogateescape"))
        if body or method in ("POST", "PUT"):
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(status=answer.status, headers=found, body=answer.read())
    finally:
        connection.close()


Order = Mapping[str, Any]
"""One order as a poll answers it."""


@dataclass(kw_only=True)
class ScriptedAgent:
    """An agent without processes: the test calls `poll` and decides what it reports."""

    caller: SignedCaller
    name: str
    boot: str = field(default_factory=lambda: secrets.token_hex(8))
    version: str = __version__
    cursor: int = 0
    seq: int = 0

    def poll(self, wait: float = 0.0) -> list[dict[str, Any]]:
        """The orders since the last poll, in their order."""
        body = {
            "agent": self.name,
            "boot": self.boot,
            "version": self.version,
            "cursor": self.cursor,
            "wait": wait,
            "capacity": {"cpu": 4.0, "memory": 8 * 2**30, "gpu": 0},
            "enforces": {"cpu": False, "memory": False, "pids": False},
        }
        answer = self.caller.post("/api/v1/agent/poll", body)
        self.cursor = answer["cursor"]
        orders: list[dict[str, Any]] = answer["orders"]
        return orders

    def order(self, job_id: str, want: str = "run", wait: float = 0.0) -> dict[str, Any]:
        """The order of this kind for this job, which must be among the next ones."""
        found = [o for o in self.poll(wait) if o["job"] == job_id and o["want"] == want]
        assert len(found) == 1, f"{len(found)} orders {want} for {job_id}"
        return found[0]

    def report(self, *items: Mapping[str, Any], log: bytes = b"", clock: int | None = None) -> Any:
        """Send these items; `log` holds the bytes of all of them, in their order. `clock` is the
        agent's own, in milliseconds."""
        return self.send(*items, log=log, clock=clock).json()

    def send(self, *items: Mapping[str, Any], log: bytes = b"", clock: int | None = None) -> Reply:
        """The same, with the answer as it is."""
        self.seq += 1
        note = {"agent": self.name, "boot": self.boot, "seq": self.seq, "items": items}
        note |= {"clock": clock}
        head = json.dumps(note).encode()
        body = len(head).to_bytes(4, "big") + head + log
        return self.caller.call("POST", "/api/v1/agent/report", body=body)

    def start(self, order: Order, pid: int = 4711) -> Any:
        return self.report(item(order, started={"pid": pid, "at": self.caller.clock()}))

    def log(self, order: Order, offset: int, data: bytes) -> int:
        """Send a chunk of the log; returns the size of the log at the server."""
        answer = self.report(item(order, log={"offset": offset, "length": len(data)}), log=data)
        return int(answer["acks"][0]["log_size"])

    def exit(self, order: Order, exit_code: int | None = 0, **record: Any) -> Any:
        """Report the exit; `log_size` and other fields of the exit record may be given."""
        now = self.caller.clock()
        plain = {"cause": "exit", "log_size": 0, "started_at": now, "finished_at": now}
        return self.report(item(order, exited=plain | {"exit_code": exit_code} | record))

    def run(self, order: Order, log: bytes = b"", exit_code: int = 0) -> Any:
        """Start, write `log` and exit."""
        self.start(order)
        self.log(order, 0, log)
        return self.exit(order, exit_code, log_size=len(log))

    def upload(
        self, order: Order, path: str, data: bytes, *, area: str = "output", **query: object
    ) -> Reply:
        """Upload one output file."""
        place = f"/api/v1/agent/replicas/{order['replica']}/files/{area}/{path}"
        return self.caller.call("PUT", place, {"fence": order["fence"]} | query, data)


def item(order: Order, **notes: Any) -> dict[str, Any]:
    """An item of a report about the replica of this order."""
    return {"replica": order["replica"], "fence": order["fence"]} | notes
