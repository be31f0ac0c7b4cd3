"""Hosts with addresses of their own on this machine: network namespaces that a bridge connects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
WAIT = 60.0
PORT = 8080
PROGRAM = str(Path(sys.executable).parent / "paddlecloud")


def is_possible() -> bool:
    """Whether namespaces and bridges can be made here: Linux, root, iproute2."""
    name = f"pc{os.getpid()}-try"
    if os.geteuid() != 0 or sys.platform != "linux":
        return False
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
        if made.returncode == 0:
            subprocess.run(["ip", "netns", "del", name], check=True)
    except OSError:
        return False
    return made.returncode == 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def until(condition: Callable[[], T], what: str, seconds: float = WAIT) -> T:
    """What `condition` returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)
    return found


class Host:
    """One namespace with an address, and a home of its own."""

    def __init__(self, prefix: str, number: int, directory: Path) -> None:
        self.number = number
        self.name = f"{prefix}-h{number}"
        self.address = f"10.77.0.{number}"
        self.home = directory / f"host-{number}"
        self.home.mkdir()
        self._running: list[subprocess.Popen[bytes]] = []

    def words(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *command]

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PADDLECLOUD_HOME": str(self.home / "pc"),
            "PADDLECLOUD_LANG": "en",
        }

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.words(*command),
            env=self.environ,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def client(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(PROGRAM, *words, check=check)

    def json(self, *words: str) -> Any:
        return json.loads(self.client(*words, "--json").stdout)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A process that goes on; its output is in `said.log`."""
        with (self.home / "said.log").open("ab") as output:
            process = subprocess.Popen(
                self.words(*command), env=self.environ, cwd=self.home, stdout=output, stderr=output
            )
        self._running.append(process)
        return process

    @property
    def output(self) -> str:
        path = self.home / "said.log"
        return path.read_text() if path.exists() else ""

    def cut(self) -> None:
        """Pull the cable."""
        ip("-n", self.name, "link", "set", "eth0", "down")

    def repair(self) -> None:
        ip("-n", self.name, "link", "set", "eth0", "up")

    def close_processes(self) -> None:
        """Kill everything on this host."""
        for process in self._running:
            process.kill()
            process.wait(WAIT)
        self._running.clear()

        def gone() -> bool:
            pids = subprocess.run(
                ["ip", "netns", "pids", self.name], capture_output=True, check=True
            )
            for pid in pids.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            return not pids.stdout.split()

        until(gone, f"the end of {self.name}")

    def close(self) -> None:
        self.close_processes()
        ip("netns", "del", self.name)


@contextmanager
def network(directory: Path, count: int) -> Iterator[list[Host]]:
    """So many hosts, which reach each other."""
    prefix = f"pc{os.getpid()}"
    switch = f"{prefix}-sw"
    ip("netns", "add", switch)
    hosts = []
    try:
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for number in range(1, count + 1):
            host = Host(prefix, number, directory)
            ip("netns", "add", host.name)
            hosts.append(host)
            port = f"p{number}"
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0",
               "netns", host.name)  # fmt: skip
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            host.close()
        ip("netns", "del", switch)
