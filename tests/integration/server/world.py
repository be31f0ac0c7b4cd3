"""A whole server in the test process: real database, real files, real HTTP on a loopback socket.

Only the backend is scripted and the clock is moved by the test; the loops are run by hand (`plan`,
`Watch.tick`), so that nothing happens that the test did not ask for. One uvicorn serves the whole
session and each test gives it its own app, because starting and ending uvicorn costs more than
most tests.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from paddlecloud.backends.scripted import Script, Scripted
from paddlecloud.client.scan.walk import Scan, scan
from paddlecloud.client.transport import Transport
from paddlecloud.client.upload.local_handoff import LocalHandoff
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agent_keys, jobs, tokens, users
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.jobs.job import Job, JobType
from paddlecloud.model.policy.pool import Pool
from paddlecloud.net.endpoint import Endpoint
from paddlecloud.server.bootstrap import forward_notification
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.app import App
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.http.connection_limits import Connection
from paddlecloud.server.loops.schedule import Schedule
from paddlecloud.server.services.placement import release
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import Store
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore
from paddlecloud.testing import Reply, ScriptedAgent, SignedCaller
from tests.integration.server.openapi_contract import check_reply
from tests.sqlite import open_with_tables

NODE = "node-0"


class Stage(uvicorn.Server):
    """The uvicorn of the session, in a thread; `app` answers."""

    def __init__(self) -> None:
        config = uvicorn.Config(
            self._dispatch,
            port=0,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
        )
        super().__init__(config)
        self.app: ASGIApp | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self.run, name="uvicorn", daemon=True)

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self._ready.set()

    def open(self) -> Stage:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def close(self) -> None:
        self.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **step: float) -> datetime:
        self.now += timedelta(**step)
        return self.now


def close_buckets(deps: Deps) -> None:
    for bucket in deps.caches.open_buckets.clear():
        bucket.close()


class World:
    """One server with its pools, its users and its agents."""

    def __init__(
        self,
        stage: Stage,
        home: Path,
        *,
        pools: Mapping[str, Mapping[str, str]] | None = None,
        change: Callable[[Settings], Settings] = lambda settings: settings,
        store: Callable[[Path], Store] = DirectoryStore,
    ) -> None:
        self.stage = stage
        self.clock = Clock()
        asked = pools or {"local": {"node": "node", "cpu": "1"}}
        self.backends = {name: scripted(**values) for name, values in asked.items()}
        server_dir = home / "server"
        server_dir.mkdir(parents=True, exist_ok=True)
        settings = change(Settings(home=home, time_zone="Asia/Shanghai"))
        self.deps = Deps(
            settings=settings,
            db=open_with_tables(server_dir / "paddlecloud.db", now=self.clock()),
            store=store(settings.store_dir),
            logs=LogStore(settings.store_dir),
            pools={name: _pool(name, backend) for name, backend in self.backends.items()},
            backends=self.backends,
            server_key=b"k" * 32,
            boot=secrets.token_hex(8),
            clock=self.clock,
        )
        self.schedule = Schedule()
        self.deps.db.subscribe(partial(forward_notification, self.deps))
        assert stage.loop is not None
        self.deps.hub.attach(stage.loop)
        self.app = App(self.deps)
        self._transports: list[Transport] = []
        self.enter()
        self.user = self.caller("someone")
        self.agent = self.agent_of(NODE)

    def enter(self) -> World:
        """From now on this world answers."""
        self.stage.app = self.app
        return self

    def close(self) -> None:
        while self._transports:
            self._transports.pop().close()
        self.deps.hub.close()
        self.stage.app = None
        self.app.close()
        self.deps.db.close()
        self.deps.logs.close()

    def caller(self, user_id: str, role: UserRole = UserRole.USER) -> SignedCaller:
        """A new pair of keys of this user, who is made if need be."""
        ak = secrets.token_hex(16)

        def create(tx: Tx) -> None:
            users.create_user(tx, User(id=user_id, role=role), self.clock())
            tokens.create_token(tx, ak, user_id, self.clock())

        self.deps.db.write(create)
        return self.signed(ak)

    def agent_caller(self, node: str, pool: str = "") -> SignedCaller:
        """A new pair of keys of the agent of this machine."""
        agent = AgentIdentity(ak=secrets.token_hex(16), agent_id=node, node=node, pool=pool)
        self.deps.db.write(lambda tx: agent_keys.create_key(tx, agent, self.clock()))
        return self.signed(agent.ak)

    def signed(self, ak: str) -> SignedCaller:
        return SignedCaller(
            host="127.0.0.1",
            port=self.stage.port,
            ak=ak,
            sk=secret_of(self.deps.server_key, ak),
            clock=lambda: self.clock().timestamp(),
            check=check_reply,
        )

    def transport(self, url: str = "") -> Transport:
        """The real client's line of `someone`, straight or by way of `url`; it ends with us."""
        url = url or f"http://127.0.0.1:{self.stage.port}"
        endpoint = Endpoint(url, self.user.ak, self.user.sk)
        self._transports.append(Transport(lambda failed, wake: endpoint))
        return self._transports[-1]

    def blob(self, data: bytes) -> Path:
        """Where the store keeps a file of `someone` with this content."""
        digest = hashlib.sha256(data).hexdigest()
        blobs = self.deps.settings.store_dir / "users" / "someone" / "blobs"
        return blobs / digest[:2] / digest

    def agent_of(self, node: str) -> ScriptedAgent:
        return ScriptedAgent(caller=self.agent_caller(node), name=node)

    def snapshot(
        self,
        files: Mapping[str, bytes],
        caller: SignedCaller | None = None,
        others: Sequence[list[Any]] = (),
    ) -> str:
        """Upload these files and name them, with entries of other kinds."""
        caller = caller or self.user
        entries = [
            [path, "file", len(data), hashlib.sha256(data).hexdigest(), 0, ""]
            for path, data in files.items()
        ]
        entries += others
        answer = caller.post("/api/v1/snapshots", {"entries": entries})
        if answer["missing"]:
            caller.post("/api/v1/blobs", b"".join(map(packed, files.values())))
            answer = caller.post("/api/v1/snapshots", {"entries": entries})
        assert answer["missing"] == []
        return str(answer["id"])

    def spec(self, caller: SignedCaller | None = None, **changes: Any) -> dict[str, Any]:
        """A wire spec whose files are here."""
        files = self.snapshot({"run.sh": b"echo hi\n"}, caller)
        return {"start_cmd": "sh run.sh", "snapshot": files, "directory": "job"} | changes

    def submit(self, caller: SignedCaller | None = None, **changes: Any) -> str:
        """The id of a new job."""
        body = a_submit(self.spec(caller, **changes))
        answer = (caller or self.user).post("/api/v1/jobs", body)
        return str(answer["job"]["job_id"])

    def plan(self) -> None:
        """One tick of the schedule loop."""
        self.schedule.tick(self.deps, self.clock())

    def release(self) -> int:
        """What the watch loop does about attempts that are over; how many there were."""
        return release.release_ended(self.deps)

    def placed(self, **changes: Any) -> tuple[str, dict[str, Any]]:
        """A job that got its place, and the order to run it."""
        job_id = self.submit(**changes)
        self.plan()
        return job_id, self.agent.order(job_id)

    def look(self, job_id: str, **query: object) -> dict[str, Any]:
        view: dict[str, Any] = self.user.get(f"/api/v1/jobs/{job_id}", **query)
        return view

    def state(self, job_id: str) -> str:
        return str(self.look(job_id)["job_status"])

    def job(self, job_id: str) -> Job:
        job = self.deps.db.read(lambda tx: jobs.get_job(tx, job_id))
        assert job is not None
        return job

    def count(self, table: str) -> int:
        row = self.deps.db.read(lambda tx: tx.one(f"select count(*) from {table}"))
        assert row is not None
        return int(row[0])

    def log(self, job_id: str, **query: object) -> bytes:
        return self.raw(f"/api/v1/jobs/{job_id}/logs", **query).body

    def raw(self, path: str, **query: object) -> Reply:
        reply = self.user.call("GET", path, query)
        assert reply.status == 200, reply.body
        return reply

    def with_clock(self, now: datetime) -> Deps:
        """The same world at another time, for what takes Deps and no `now`."""
        return replace(self.deps, clock=lambda: now)


def scripted(**values: str) -> Scripted:
    """A backend whose script is given as texts."""
    defaults = Script()
    typed = {key: type(getattr(defaults, key))(value) for key, value in values.items()}
    return Scripted(Script(**typed))


def a_submit(spec: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
    return {"spec": dict(spec), "idempotency_key": key or secrets.token_hex(16)}


def a_directory(root: Path, handoff: LocalHandoff | None = None, **contents: bytes) -> Scan:
    """A directory to submit with these files, read long after they were written."""
    root.mkdir(exist_ok=True)
    for name, data in contents.items():
        (root / name).write_bytes(data)
    return scan(str(root), now=4e9, handoff=handoff)


def packed(data: bytes) -> bytes:
    """One file of a pack stream."""
    return hashlib.sha256(data).digest() + len(data).to_bytes(8, "big") + data


def _pool(name: str, backend: Scripted) -> Pool:
    gpus = bool(backend.script.gpu)
    types = frozenset(JobType) if gpus else frozenset({JobType.CPU})
    return Pool(name=name, backend="scripted", private=True, job_types=types)


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for another thread or process to do its part; fail when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
