"""Backups of real servers: under load, killed in the middle, on PostgreSQL as in the guide."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paddlecloud.testing import SignedCaller
from tests.docs.pages import DOCS, blocks
from tests.integration.server.process import ServerProcess
from tests.integration.server.several_servers import SETTINGS, Replica
from tests.integration.server.world import a_submit, eventually, packed
from tests.ports import free_port
from tests.postgres import fresh_database

RATE = 50
"""Submits a second."""


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def a_server(home: Path, started: ExitStack) -> ServerProcess:
    server = ServerProcess(home)
    started.callback(server.close)
    server.start()
    return server


def command(home: Path, *words: str) -> list[str]:
    environ = [f"PADDLECLOUD_HOME={home}", "PADDLECLOUD_LANG=en"]
    return ["env", *environ, sys.executable, "-P", "-m", "paddlecloud", *words]


def run(home: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(command(home, *words, "--json"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def submit(caller: SignedCaller, data: bytes, command: str = "true") -> str:
    """Its blob is its own."""
    caller.post("/api/v1/blobs", packed(data))
    entry = ["data", "file", len(data), hashlib.sha256(data).hexdigest(), 0, ""]
    files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    body = a_submit({"start_cmd": command, "snapshot": files})
    return str(caller.post("/api/v1/jobs", body)["job"]["job_id"])


class Submitters:
    """Submit at a rate until they are stopped; `acknowledged` has when each job was."""

    def __init__(self, caller: SignedCaller) -> None:
        self.acknowledged: dict[str, float] = {}
        self._caller = caller
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(2)]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int) -> None:
        began = time.monotonic()
        for count in range(10_000):
            due = began + count * len(self._threads) / RATE
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            job_id = submit(self._caller, f"{number} {count}".encode())
            self.acknowledged[job_id] = time.time()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.slow(seconds=8)
def test_a_backup_under_load_has_every_acknowledged_job(tmp_path: Path, started: ExitStack) -> None:
    home, other, target = tmp_path / "home", tmp_path / "other", tmp_path / "backup"
    home.mkdir()
    (home / "server.toml").write_text("[local_pool]\ncpu = 1\n")
    server = a_server(home, started)
    caller = server.caller()
    running = submit(caller, b"first", "sleep 1000")
    eventually(lambda: caller.get(f"/api/v1/jobs/{running}")["job_status"] == "running")
    submitters = Submitters(caller)
    try:
        eventually(lambda: len(submitters.acknowledged) >= RATE)
        before = len(submitters.acknowledged)
        asked_at = time.time()
        run(home, "admin", "backup", str(target))
        seconds = time.time() - asked_at
        during = len(submitters.acknowledged) - before
    finally:
        submitters.stop()
    assert during >= seconds * RATE / 5, "the backup held up the server"
    manifest = json.loads((target / "manifest.json").read_text())
    found = run(other, "admin", "restore", str(target))
    assert found["lost"] == 1
    restored = a_server(other, started)
    old_keys = SignedCaller(host="127.0.0.1", port=restored.port, ak=caller.ak, sk=caller.sk)
    due = {job for job, at in submitters.acknowledged.items() if at <= asked_at}
    assert len(due) >= RATE
    for job_id in due:
        assert old_keys.get(f"/api/v1/jobs/{job_id}")["job_id"] == job_id
    assert old_keys.get(f"/api/v1/jobs/{running}")["job_status"] == "failed"
    verified = run(other, "admin", "verify")
    assert (verified["damaged_files"], verified["missing_files"]) == (0, 0)
    assert verified["files"] >= len(due)
    assert manifest["database"] == "sqlite"


@pytest.mark.slow(seconds=5)
def test_a_backup_that_is_killed_is_no_backup(tmp_path: Path, started: ExitStack) -> None:
    home, other, target = tmp_path / "home", tmp_path / "other", tmp_path / "backup"
    partial = tmp_path / "backup.partial"
    server = a_server(home, started)
    set_secret = command(home, "secret", "set", "HF_TOKEN")
    subprocess.run(set_secret, input=b"from the backup", check=True, capture_output=True)
    job_id = server.waiting_job()
    large = home / "store" / "users" / "ann" / "output" / job_id / "rank-0" / "large"
    large.parent.mkdir(parents=True)
    with large.open("wb") as file:
        file.truncate(2 * 2**30)  # sparse: it takes seconds to read and no space
    for seconds in (0.0, 0.1):
        process = subprocess.Popen(
            command(home, "admin", "backup", str(target)), start_new_session=True
        )
        eventually(lambda: any(partial.glob("store/users/ann/output/*/*/large")))
        time.sleep(seconds)  # another moment each time
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not target.exists()
        refused = subprocess.run(
            command(other, "admin", "restore", str(partial)), capture_output=True, text=True
        )
        assert refused.returncode == 1
        assert "is not a complete backup: manifest.json is missing" in refused.stderr
        assert not other.exists()
    os.truncate(large, 1000)
    assert run(home, "admin", "backup", str(target))["files"] >= 4
    assert not partial.exists()
    assert run(other, "admin", "restore", str(target))["jobs"] == 1
    assert len(list(other.glob("store/users/*/output/*/rank-0/large"))) == 1
    a_server(other, started)
    shows = ("--start_cmd=cat $PADDLECLOUD_SECRETS/HF_TOKEN", "--secret=HF_TOKEN")
    (tmp_path / "job").mkdir()
    words = ("submit_job", f"--files={tmp_path / 'job'}", *shows, "--watch_mode=1")
    done = subprocess.run(command(other, *words), capture_output=True, text=True)
    assert (done.returncode, "from the backup" in done.stdout) == (0, True), done.stderr


def postgres_block() -> str:
    """The commands of the guide for a server on PostgreSQL."""
    page = (DOCS / "how-to" / "back-up-a-server.md").read_text("utf-8")
    (found,) = [block.text for block in blocks(page) if "createdb" in block.text]
    return found


@pytest.mark.slow(seconds=6)
def test_the_guide_for_postgresql(tmp_path: Path) -> None:
    url = fresh_database()
    work = tmp_path / "work"
    old = Replica(tmp_path / "old", url, tmp_path / "store", "node", running_jobs=9)
    address = psycopg.conninfo.conninfo_to_dict(url)
    (tmp_path / "backups").mkdir()
    work.mkdir()
    name = f"{address['dbname']}_new"
    new_url = url.replace(f"/{address['dbname']}?", f"/{name}?")
    assert new_url != url
    port = free_port()
    values = {"key": old.settings.read_text().split('key = "')[1][:64], "port": port}
    values |= {"store": tmp_path / "new-store", "node": "node", "agent": "false"}
    more = {"url": new_url, "cpu": 1, "running_jobs": 9}
    (work / "server.toml").write_text(old.settings.read_text())
    (work / "restored.toml").write_text(SETTINGS.format(**values, **more))
    for file in work.iterdir():
        file.chmod(0o600)
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PADDLECLOUD_HOME": str(old.home),
        "PGHOST": str(address["host"]),
        "PGUSER": str(address["user"]),
        "PGPASSWORD": str(address["password"]),
    }
    text = postgres_block()
    text = text.replace("/mnt/backup", str(tmp_path / "backups"))
    text = text.replace("/srv/restored", str(tmp_path / "restored"))
    text = text.replace("paddlecloud_restored", name)
    assert text.count(name) == 1
    try:
        old.start()
        caller = old.caller()
        jobs = [submit(caller, f"{number}".encode(), "sleep 1000") for number in range(3)]
        done = subprocess.run(
            ["sh", "-ec", text], cwd=work, env=environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        with psycopg.connect(new_url) as connection:
            assert connection.execute("select count(*) from jobs").fetchone() == (len(jobs),)
            running = "select count(*) from replicas where state in ('ordered', 'running')"
            assert connection.execute(running).fetchone() == (0,)
        blobs = list((tmp_path / "new-store").glob("users/admin/blobs/*/*"))
        assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in blobs} == {
            path.name for path in blobs
        }
        assert len(blobs) == len(jobs)
        third = work / "restored.toml"
        third.write_text(third.read_text().replace("new-store", "third-store"))
        refused = subprocess.run(
            command(tmp_path / "third", "admin", "restore", str(tmp_path / "backups" / "tuesday"),
                    "--config", str(third)),
            capture_output=True, text=True,
        )  # fmt: skip
        assert refused.returncode == 1
        assert "has tables already" in refused.stderr
        assert str(address["password"]) not in refused.stderr + done.stderr
    finally:
        old.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)")
