"""Local processes as a pool: one agent on this machine serves every attempt placed here.

The agent runs detached and outlives the server. It holds a lock file while it lives, which shows
whether it runs: unlike a pid, a lock is never stale. The agent has its key from a file that the
server wrote (`agent.json`, mode 0600) and polls for orders, so starting an attempt costs nothing
while it runs. All users of a team share the machine, so each user's processes get a uid of their
own, counted from `uid_base`.

The capacity of the machine is read here instead of from the agent's first report, so the first job
does not wait for that. The agent is a child of the server and lives under the same control groups.

Where several servers share a database (`joins`), each keeps the agent of its own machine (`node`;
empty: it has none), and the pool has the machines of all of them. Agents of other machines fetch
their orders themselves; the status of these is not known here, and the reconcile loop notices when
they fall silent.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from paddlecloud.backends.base import (
    AgentState,
    AgentStatus,
    Credentials,
    Handle,
    ServerContext,
    named,
)
from paddlecloud.model import cgroup_limits
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import Node
from paddlecloud.model.setting_types import Size

READ_EVERY = 30.0
"""Seconds between two reads of the machine's capacity; the agent reads it as often."""
UID_BASE = 200_000
"""Above the uids of the machine's own users and of most containers."""


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """What a local pool gives of each of its machines."""

    cpu: float | None = None
    """CPUs of each machine; default: that of [local_pool]."""
    memory: Size | None = None
    """Memory of each machine; default: that of [local_pool]."""
    gpu: int | None = None
    """GPUs of each machine; default: that of [local_pool]."""
    uid_base: int = UID_BASE
    """The first uid that is assigned to a user of a team server."""


class Local:
    settings: ClassVar[type] = LocalSettings
    needs_credentials = False

    def __init__(self, settings: LocalSettings, server: ServerContext) -> None:
        self.uid_base = settings.uid_base
        self._limits = settings
        self._node = server.node
        self._joins = server.shared
        self._config = server.agent_config
        self._cpu = server.cpu if settings.cpu is None else settings.cpu
        self._memory = server.memory if settings.memory is None else settings.memory
        gpu = server.gpu if settings.gpu is None else settings.gpu
        self._gpus = cards() if gpu is None else gpu
        self._own: tuple[Node, ...] = ()
        self._read_at = 0.0
        self._starting = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def capacity(self, owner: str) -> tuple[Node, ...]:
        now = time.monotonic()
        if self._node and now >= self._read_at:
            total = self._total()
            self._own, self._read_at = (Node(id=self._node, total=total),), now + READ_EVERY
        return self._own

    def joined(self, node: str, has: Resources, host: str) -> Node:
        limits = self._limits
        total = Resources(
            cpu=limits.cpu or has.cpu,
            memory=limits.memory or has.memory,
            gpu=has.gpu if limits.gpu is None else limits.gpu,
        )
        return Node(id=node, total=total, host=host)

    def handle(self, attempt: Attempt) -> Handle:
        nodes = sorted({replica.node for replica in attempt.replicas})
        return named(attempt, node=",".join(nodes) if self._joins else self._node)

    def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
        if not self._joins or any(replica.node == self._node for replica in attempt.replicas):
            self.ensure_agent()

    def status(self, handle: Handle) -> AgentStatus:
        nodes = handle.get("node", "").split(",")
        if self._node in nodes:
            return AgentStatus(state=AgentState.UP if self._alive() else AgentState.STARTING)
        if self._joins:
            return AgentStatus(state=AgentState.UP, detail="on another machine")
        return AgentStatus(state=AgentState.GONE, detail=f"no node {handle.get('node')}")

    def stop(self, handle: Handle, grace: timedelta) -> None:
        """Does nothing: the agent serves other attempts too, and gets an order for each stop."""

    def ensure_agent(self) -> None:
        """Start the agent unless one holds the lock. Safe for several threads and servers."""
        if not self._node:
            return
        with self._starting:
            child_runs = self._child is not None and self._child.poll() is None
            if child_runs or self._alive():
                return
            self._config.parent.mkdir(parents=True, exist_ok=True)
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "paddlecloud.agent", "--config", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )

    def end_agent(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()  # it may be starting, and not have polled yet
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
        while self._node and self._alive() and time.monotonic() < until:
            time.sleep(0.01)

    def _total(self) -> Resources:
        """The values of the settings, and otherwise what the control groups allow."""
        above = ceiling() if None in (self._cpu, self._memory) else (None, None)
        cpus, memory = cgroup_limits.left(float(_cpus()), _memory(), above)
        return Resources(
            cpu=self._cpu or cpus,
            memory=self._memory or memory,
            gpu=self._gpus,
        )

    def _alive(self) -> bool:
        try:
            lock = os.open(self._config.parent / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False


def ceiling(proc: Path = Path("/proc/self")) -> tuple[float | None, int | None]:
    """CPUs and bytes that the control groups of this process allow; None: no limit."""
    return cgroup_limits.ceiling(_text, str(proc))


def _text(file: str) -> str:
    with suppress(OSError, ValueError):
        return Path(file).read_text()
    return ""


def cards() -> int:
    """How many GPUs the driver of this machine reports; 0 without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return 0
        count = ctypes.c_uint(0)
        failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return 0
    return 0 if failed else count.value


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


BACKEND = Local
