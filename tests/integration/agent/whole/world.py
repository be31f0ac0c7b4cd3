"""A real agent process, a fake server for it, and the proof at the end that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.fake_server import AK, SK, FakeServer, Stored

COMMAND = [sys.executable, "-m", "paddlecloud.agent"]


class World:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.server = FakeServer(home)
        self.directory = home / "agent"
        self.directory.mkdir(exist_ok=True)
        self.agent: subprocess.Popen[bytes] | None = None
        self.configure()

    def configure(self, **changes: Any) -> None:
        facts = {
            "agent_id": "local",
            "ak": AK,
            "sk": SK,
            "endpoint_file": str(self.server.endpoint_file),
        }
        (self.directory / "agent.json").write_text(json.dumps(facts | changes))

    def start_agent(self, *arguments: str) -> subprocess.Popen[bytes]:
        chosen = arguments or ("--config", str(self.directory / "agent.json"))
        self.agent = subprocess.Popen([*COMMAND, *chosen])
        return self.agent

    def kill_agent(self, number: int = signal.SIGKILL) -> int:
        assert self.agent is not None
        self.agent.send_signal(number)
        return self.agent.wait(60)

    def run(self, command: str, **run: Any) -> str:
        """Order a replica; its id, which no other test uses."""
        replica = f"job-{uuid.uuid4().hex}.1.trainer-0"
        self.server.run(replica, command, **run)
        return replica

    def stored(self, replica: str) -> Stored:
        return self.server.replicas[replica]

    def root(self, replica: str) -> Path:
        return self.directory / "replicas" / replica

    def ended(self, replica: str) -> dict[str, Any]:
        """How it ended, once the server knows."""
        self.server.wait(lambda: self.stored(replica).over)
        return self.stored(replica).exited or {}

    def running(self, replica: str) -> int:
        """The pid of its main process, once it runs."""
        return eventually(lambda: inspect.inspect(self.root(replica)).pid) or 0

    def text(self, replica: str) -> str:
        return self.stored(replica).log.decode()

    def says(self, replica: str, words: str) -> None:
        """Wait until the log at the server has these words."""
        self.server.wait(lambda: words in self.text(replica))

    def agent_log(self) -> str:
        path = self.directory / "agent.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            # A signal that comes before the agent listens ends it, too.
            assert self.kill_agent(signal.SIGTERM) in (0, -signal.SIGTERM)
        self.server.stop()
        found = [*self.directory.glob("replicas/*"), *self.directory.glob("cache/envs/*/*.tmp")]
        for root in sorted(path for path in found if path.is_dir()):
            _end(root)
        for replica in self.server.replicas:
            assert processes.marked(f"{records.MARKER}={replica}") == []


def _end(root: Path) -> None:
    inspect.request_stop(root, grace=0.0, now=time.time())
    eventually(lambda: records.lock_holder(root / records.LOCK) is None)
    inspect.reap_leftovers(root, None)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and processes.alive(pid)


def pids_of(replica: str) -> list[int]:
    found = processes.marked(f"{records.MARKER}={replica}")
    return [pid for pid in found if processes.alive(pid) and pid != os.getpid()]
