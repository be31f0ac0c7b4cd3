"""The server as a process of its own, started and ended as a person's machine would."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddlecloud.testing import SignedCaller
from tests.integration.server.world import a_submit, eventually, packed


class ServerProcess:
    """`python -m paddlecloud.server` on one home; the agent it brings along is ended with it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def ready_file(self) -> Path:
        return self.home / "server" / "server.json"

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ready_file.read_text())
        return found

    @property
    def port(self) -> int:
        return int(self.facts()["url"].rpartition(":")[2])

    def start(self) -> subprocess.Popen[bytes]:
        """Start one and wait until it says that it is ready."""
        process = self.spawn()
        eventually(lambda: self._is_ready(process), 60)
        return process

    def spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "paddlecloud.server", "--home", str(self.home)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def caller(self) -> SignedCaller:
        keys = json.loads((self.home / "server" / "credentials.json").read_text())
        return SignedCaller(host="127.0.0.1", port=self.port, ak=keys["ak"], sk=keys["sk"])

    def waiting_job(self) -> str:
        """A job that nobody will start: the agent is frozen first."""
        freeze_agents(self.home / "agent" / "agent.json")
        caller, data = self.caller(), b"echo hi\n"
        caller.post("/api/v1/blobs", packed(data))
        entry = ["run.sh", "file", len(data), packed(data)[:32].hex(), 0, ""]
        files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
        body = a_submit({"start_cmd": "sh run.sh", "snapshot": files})
        return str(caller.post("/api/v1/jobs", body)["job"]["job_id"])

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(60)
            assert process.stderr is not None
            process.stderr.close()
        end_agents(self.home / "agent" / "agent.json")

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self._last_words(process)
        with contextlib.suppress(OSError, ValueError):
            return bool(self.facts()["pid"] == process.pid)
        return False

    def _last_words(self, ended: subprocess.Popen[bytes]) -> str:
        assert ended.stderr is not None
        log = (self.home / "server" / "server.log").read_text()
        return log + ended.stderr.read().decode(errors="replace")


def ended(process: subprocess.Popen[bytes], seconds: float = 60.0) -> tuple[int, str]:
    """Exit code and stderr of a process that ends by itself."""
    _, text = process.communicate(timeout=seconds)
    return process.returncode, text.decode()


def agents_of(config: Path) -> list[int]:
    """The processes whose command line names this agent configuration."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(config).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def freeze_agents(config: Path) -> None:
    """Come back when the agent and its zygote are stopped where they are.

    An agent that is starting forks twice and the process between is gone at once, so what was found
    counts only if it was still all there was after it had been stopped.
    """

    def are_frozen() -> bool:
        found = agents_of(config)
        with contextlib.suppress(ProcessLookupError):
            for pid in found:
                os.kill(pid, signal.SIGSTOP)
            return bool(found) and agents_of(config) == found
        return False

    eventually(are_frozen)


def end_agents(config: Path) -> None:
    """Kill it with its zygote; an agent has nothing to lose by that.

    Whoever was forked while the others were looked for is found the next time.
    """

    def are_gone() -> bool:
        found = agents_of(config)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    eventually(are_gone)


@contextlib.contextmanager
def asked(caller: SignedCaller, path: str, query: str) -> Iterator[http.client.HTTPConnection]:
    """A GET that the server has begun to work on; its answer is read by the test."""
    connection = http.client.HTTPConnection(caller.host, caller.port, timeout=60)
    headers = caller.headers("GET", path, query, b"")
    with contextlib.closing(connection):
        connection.request("GET", f"{path}?{query}", headers=headers)
        for _ in range(2):  # whatever came first is at work when the answer to a later one is here
            assert caller.get("/api/v1/whoami")
        yield connection
