"""A team server as a process of its own, with people, a machine and a running job to attack.

The agent that the server brings along is halted and its keys are used by the test instead, so that
a test may say anything in an agent's name and nothing moves that the test did not move.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from paddlecloud import __version__
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.services.data_tasks import digest
from paddlecloud.testing import Reply, ScriptedAgent, SignedCaller, exchange
from tests.integration.server.process import ServerProcess, freeze_agents
from tests.integration.server.world import a_submit, packed
from tests.ports import free_port

HOST = "127.0.0.1"
MOVING = frozenset({"nonces", "leases", "servers"})
"""Tables that change by themselves: what keeps replays out, and who is alive."""
SETTINGS = """
team = true
{top}
[http]
port = {port}
[mail]
host = "127.0.0.1"
port = {mail_port}
security = "none"
sender = "cloud@example.com"
[tokens]
per_source = 100000
per_address = 100000
[running]
lost_after = "1h"
[local_pool]
cpu = 64
[replica]
node = "{node}"
[[pools]]
name = "local"
public = false
{rest}
"""


@dataclass(kw_only=True)
class TargetServer:
    """One server, everybody who calls it, and the things that they may name."""

    home: Path
    server: ServerProcess
    database: str
    people: dict[str, SignedCaller] = field(default_factory=dict)
    agent: ScriptedAgent | None = None
    things: dict[str, str] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How many rows each table has, but for those that change by themselves."""
        if not self._names:
            self._names = [name for name in self.tables() if name not in MOVING]
        each = (f"select '{name}', count(*) from \"{name}\"" for name in self._names)
        with self.rows() as ask:
            return {str(name): int(count) for name, count in ask(" union all ".join(each))}

    def tables(self) -> list[str]:
        question = "select name from sqlite_master where type = 'table'"
        if self.database:
            question = "select tablename from pg_tables where schemaname = 'public'"
        with self.rows() as ask:
            return sorted(str(row[0]) for row in ask(question))

    @contextlib.contextmanager
    def rows(self) -> Iterator[Any]:
        """A function that answers SQL, past the server."""
        if self.database:
            with psycopg.connect(self.database, autocommit=True) as connection:
                yield lambda sql: connection.execute(sql).fetchall()
            return
        path = self.home / "server" / "paddlecloud.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as lite:
            yield lambda sql: lite.execute(sql).fetchall()

    def journal(self) -> str:
        return (self.home / "server" / "server.log").read_text("utf-8", "replace")

    def raw(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """A request that nobody signed."""
        port = self.server.port
        return exchange(
            HOST, port, method, target, {"host": f"{HOST}:{port}"} | (headers or {}), body
        )

    def settle(self) -> None:
        """Come back when the server has written what it does not wait for."""
        for caller in self.people.values():
            assert caller.call("GET", "/api/v1/whoami").status in (200, 401)


@contextlib.contextmanager
def target_server(
    home: Path, *, database: str = "", mail_port: int = 9, top: str = "", rest: str = ""
) -> Iterator[TargetServer]:
    """Started, with alice and bob, an admin, an agent, and a job of alice that runs."""
    site = prepared(home, database=database, mail_port=mail_port, top=top, rest=rest)
    try:
        site.server.start()
        _fill(site)
        yield site
    finally:
        site.server.close()


def prepared(
    home: Path, *, database: str = "", mail_port: int = 9, top: str = "", rest: str = ""
) -> TargetServer:
    """The same before anything is started."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if database:
        rest = f'{rest}\n[database]\nurl = "{database}"\n'
    if os.geteuid() != 0:  # then a local pool serves one user only
        rest = f'users = ["alice"]\n{rest}\n[[pools]]\nname = "bobs"\nbackend = "scripted"\n'
    text = SETTINGS.format(
        port=free_port(), mail_port=mail_port, node=f"node-{home.name}", top=top, rest=rest
    )
    (home / "server.toml").write_text(text)
    (home / "server.toml").chmod(0o600)
    return TargetServer(home=home, server=ServerProcess(home), database=database)


def caller_of(site: TargetServer, keys: dict[str, str]) -> SignedCaller:
    return SignedCaller(host=HOST, port=site.server.port, ak=keys["ak"], sk=keys["sk"])


def _fill(site: TargetServer) -> None:
    admin = site.server.caller()
    site.people["admin"] = admin
    for name in ("alice", "bob"):
        admin.post("/api/v1/admin/users", {"user_id": name, "email": f"{name}@example.com"})
        keys = admin.post(f"/api/v1/admin/users/{name}/tokens", {"name": "laptop"})
        site.people[name] = caller_of(site, keys)
    config = site.home / "agent" / "agent.json"
    freeze_agents(config)
    keys = json.loads(config.read_text())
    site.people["agent"] = caller_of(site, keys)
    site.agent = ScriptedAgent(caller=site.people["agent"], name=keys["agent_id"])
    job_id = a_job(site, "alice")
    site.order = site.agent.order(job_id, wait=30.0)
    site.agent.start(site.order)
    site.agent.log(site.order, 0, b"hello\n")
    assert site.agent.upload(site.order, "model", b"weights").status == 200
    keys = {"ak": site.order["replica"], "sk": site.order["run"]["secret"]}
    site.people["worker"] = caller_of(site, keys)
    tasks = ["one", "two"]
    wanted = {"digest": digest(1, 3, tasks), "tasks": tasks}
    site.people["worker"].post(f"/api/v1/jobs/{job_id}/tasks/train", wanted)
    site.people["alice"].post("/api/v1/secrets", {"name": "wandb", "value": "eA=="})
    asked = {"argv": ["cat"], "stdin": "aGVsbG8="}
    command = site.people["alice"].post(f"/api/v1/jobs/{job_id}/commands", asked)
    site.things = {
        "job_id": job_id,
        "command_id": command["id"],
        "ak": site.people["alice"].ak,
        "user_id": "alice",
        "replica": site.order["replica"],
        "snapshot_id": site.order["run"]["snapshot"],
        "sha256": packed(b"echo hi\n")[:32].hex(),
        "area": "output",
        "path": "run.sh",
        "name": "train",
        "secret": "wandb",
        "tunnel_id": "0" * 32,
        "version": __version__,
    }


def a_job(site: TargetServer, who: str, **changes: Any) -> str:
    """The id of a new job."""
    caller, data = site.people[who], b"echo hi\n"
    caller.post("/api/v1/blobs", packed(data))
    entry = ["run.sh", "file", len(data), packed(data)[:32].hex(), 0, ""]
    files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    spec = {"start_cmd": "sh run.sh", "snapshot": files} | changes
    return str(caller.post("/api/v1/jobs", a_submit(spec))["job"]["job_id"])


def send(
    caller: SignedCaller,
    method: str,
    raw_path: str,
    query: str = "",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    """Sign exactly this and send it; `headers` come on top, signed too where signatures cover."""
    now = int(caller.clock())
    found = caller.headers(method, raw_path, query, body) | (headers or {})
    del found["authorization"]
    found["authorization"] = bce_auth.sign(
        caller.ak, caller.sk, method, raw_path, query, found, now
    )
    target = f"{raw_path}?{query}" if query else raw_path
    return exchange(caller.host, caller.port, method, target, found, body)
