"""A private home with real processes in it: how tests run commands there, find, kill and await.

A process belongs to a home when the home's path is in its command line or its environment: that
holds for the server, the agent, its zygote, the supervisors and every process of a job.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from paddlecloud.client import local_server

WAIT = 30.0
"""Seconds in which anything of these tests happens many times over, on a busy machine too."""


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.environ = {**os.environ, "PADDLECLOUD_HOME": str(path)}

    def start(self, *words: str, **how: Any) -> subprocess.Popen[str]:
        """A command of the command line, under way; its output is read by the caller."""
        program = [sys.executable, "-m", "paddlecloud", *words]
        return subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ,
            **how,
        )

    def run(self, *words: str, timeout: float = 2 * WAIT) -> subprocess.CompletedProcess[str]:
        """A command of the command line, to its end."""
        with self.start(*words) as process:
            try:
                out, told = process.communicate(timeout=timeout)
            finally:
                process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, told)

    def processes(self) -> dict[int, str]:
        """What runs for this home: pid and what it is: server, agent, zygote, spare, supervisor
        (names that they give themselves) or job. Commands of the person are left out."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                kind = self._kind(entry)
                if kind is not None:
                    found[int(entry.name)] = kind
        return found

    def of_kind(self, *kinds: str) -> list[int]:
        return [pid for pid, kind in self.processes().items() if kind in kinds]

    def kill(self, *kinds: str) -> dict[int, str]:
        """SIGKILL to all of these kinds at once; whom it was sent to."""
        found = {pid: kind for pid, kind in self.processes().items() if kind in kinds}
        for pid, kind in found.items():
            # Looked at again: what was a spare of the zygote may be a supervisor by now.
            if self._kind(Path(f"/proc/{pid}")) == kind:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return found

    def kill_and_await(self, *kinds: str) -> None:
        killed = self.kill(*kinds)
        assert killed, f"no {kinds} to kill"
        until(lambda: not killed.keys() & self.processes().keys(), f"the end of {kinds}")

    def clear(self) -> None:
        """End everything; the server first, or it would start another agent."""
        for kinds in (("server",), ("agent", "zygote", "spare"), ("supervisor", "job")):
            deadline = time.monotonic() + WAIT
            while self.kill(*kinds):
                assert time.monotonic() < deadline, f"{kinds} cannot be killed"
                time.sleep(0.01)
        local_server.stop(str(self.path))  # it also buries a server that this very process started

    def _kind(self, entry: Path) -> str | None:
        try:
            command = (entry / "cmdline").read_bytes()
            name = (entry / "comm").read_text().strip()
            environ = (entry / "environ").read_bytes()
        except OSError:
            return None
        here = os.fsencode(self.path)
        if not command or not (here in command or here in environ):
            return None
        if name.startswith("pc-"):
            return name.removeprefix("pc-")
        for module, kind in ((b"paddlecloud.server", "server"), (b"paddlecloud.agent", "agent")):
            if module in command:
                return kind
        return "job" if b"PADDLECLOUD_REPLICA=" in environ else None


def until(condition: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    """Wait for something that real processes do; a test that hangs says what it hangs on."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.01)


def job_id_of(output: str) -> str:
    """The id in the first line of what submit_job printed."""
    return output.partition("\n")[0].removeprefix("job_id: ")
