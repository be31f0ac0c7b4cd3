"""Several real servers on one PostgreSQL and one store: how tests start, kill and ask them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from paddlecloud.testing import SignedCaller
from tests.integration.server.process import ServerProcess
from tests.integration.server.world import a_submit, packed
from tests.ports import free_port

KEY = "0123456789abcdef" * 4
SETTINGS = """
team = true
key = "{key}"
[http]
host = "127.0.0.1"
port = {port}
[database]
url = "{url}"
[store]
root = "{store}"
[replica]
node = "{node}"
agent = {agent}
[local_pool]
cpu = {cpu}
[[pools]]
name = "local"
users = ["admin"]
[plans.free]
running_jobs = {running_jobs}
minutes_a_day = 100000
minutes_a_job = 60
waiting_jobs = 10000
cpu = 64
[running]
grace = "2s"
"""


class Replica(ServerProcess):
    """One of the servers; `node` is the name of its machine, empty if it runs no jobs there."""

    def __init__(self, home: Path, url: str, store: Path, node: str, **settings: Any) -> None:
        super().__init__(home)
        self.own_port = free_port()
        self.program = [sys.executable, "-P", "-m", "paddlecloud.server"]
        values: dict[str, Any] = {
            "key": KEY,
            "port": self.own_port,
            "url": url,
            "store": store,
            "node": node,
            "agent": "true" if node else "false",
            "cpu": 4,
            "running_jobs": 100,
        }
        home.mkdir(parents=True)
        self.settings = home / "server.toml"
        self.settings.write_text(SETTINGS.format(**(values | settings)))
        self.settings.chmod(0o600)

    def spawn(self) -> subprocess.Popen[bytes]:
        where = ["--home", str(self.home), "--settings", str(self.settings)]
        process = subprocess.Popen(
            [*self.program, *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._started[-1]

    def caller(self) -> SignedCaller:
        """As the admin; also for a server that is down."""
        keys = json.loads((self.home / "server" / "credentials.json").read_text())
        return SignedCaller(host="127.0.0.1", port=self.own_port, ak=keys["ak"], sk=keys["sk"])

    def log(self) -> str:
        return (self.home / "server" / "server.log").read_text()


@contextlib.contextmanager
def replicas(
    folder: Path, url: str, nodes: Sequence[str], **settings: Any
) -> Iterator[list[Replica]]:
    """A server for each of these nodes, not started; all of them are ended."""
    store = folder / "store"
    made = [
        Replica(folder / f"home-{number}", url, store, node, **settings)
        for number, node in enumerate(nodes)
    ]
    try:
        yield made
    finally:
        for replica in made:
            for process in replica._started:
                process.kill()
        for replica in made:
            replica.close()


def submit(caller: SignedCaller, script: str, **spec: Any) -> str:
    """The id of a new job that runs this script."""
    data = script.encode()
    caller.post("/api/v1/blobs", packed(data))
    entry = ["run.sh", "file", len(data), packed(data)[:32].hex(), 0, ""]
    files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    body = a_submit({"start_cmd": "sh run.sh", "snapshot": files, "cpu": 0.1} | spec)
    return str(caller.post("/api/v1/jobs", body)["job"]["job_id"])


def waited(caller: SignedCaller, job_id: str, seconds: float = 25.0) -> dict[str, Any]:
    """The job when it has ended, or after so long."""
    view: dict[str, Any] = caller.get(f"/api/v1/jobs/{job_id}", wait=seconds)
    return view


def holders(url: str) -> Mapping[str, str]:
    """Which start of which server holds the lease of each loop."""
    with psycopg.connect(url) as connection:
        return dict(connection.execute("select name, holder from leases").fetchall())
