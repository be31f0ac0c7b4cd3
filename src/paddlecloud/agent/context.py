"""What the threads of the agent share: configuration, link, registry, settings of the server."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inotify import MODIFY, open_watcher
from paddlecloud.agent.registry import Registry
from paddlecloud.agent.replica.records import STDOUT
from paddlecloud.agent.server_link.channel import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from paddlecloud.agent.config import AgentConfig
    from paddlecloud.agent.log import AgentLog
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.supervisor.zygote import Spawner


class Context:
    def __init__(
        self,
        config: AgentConfig,
        log: AgentLog,
        spawner: Spawner,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.environ = environ or {}
        """The agent's own environment variables, for installs of its own user."""
        self.directory = config.directory
        self.log = log
        self.spawner = spawner
        self.link = Link(config)
        self.boot = os.urandom(8).hex()
        """A new id for each run of this agent."""
        self.registry = Registry(self.directory / "replicas")
        self.watcher = open_watcher()
        self.ship_interval = 10.0
        """Seconds; in each response to a poll."""
        self.grace = 40.0
        """Seconds between SIGTERM and SIGKILL unless a stop has its own grace; the same."""
        self.cache_limit = config.cache_bytes
        """Bytes of the cache; the same, unless it is fixed for this machine. None until then."""
        self.prune_due = threading.Event()
        """The cache may be above its limit."""
        self.cache_spent = False
        """The disk is nearly full, and pruning the cache cannot free more."""
        self.separates: bool | None = None
        """Whether each user's replicas can have a uid of their own; None until that was tried."""
        self.next_program: Path | None = None
        """The packed agent that goes on after this one: an upgrade."""
        self.stopping = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    @property
    def enforces(self) -> dict[str, bool]:
        """Which limits this machine can enforce, and whether it can isolate users."""
        known = self.spawner.enforces
        return known if self.separates is None else {**known, "uid": self.separates}

    @property
    def notices(self) -> str:
        """The socket for notices of supervisors."""
        return str(self.directory / "notify.sock")

    @property
    def wake_reader(self) -> int:
        return self._wake_reader

    def watch(self, tracked: Tracked) -> None:
        """Watch the log of this replica, which is created if it is missing."""
        log = tracked.path(STDOUT)
        os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if self.watcher is not None and tracked.watch is None:
            tracked.watch = self.watcher.add(log, MODIFY)
        if tracked.watch is not None:
            self.registry.watched[tracked.watch] = tracked

    def unwatch(self, tracked: Tracked) -> None:
        """Deleting the log ends the watch; ending it before would be one more event, and so one
        more wake-up for each job."""
        watch, tracked.watch = tracked.watch, None
        if watch is not None:
            self.registry.watched.pop(watch, None)

    def wake_reporter(self) -> None:
        """Let the reporter check all replicas."""
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b"!")

    def stop(self) -> None:
        """Let every thread end after its current step."""
        self.stopping.set()
        self.wake_reporter()

    def guarded(self, name: str, turn: Callable[[], object]) -> None:
        """Repeat `turn` until the agent stops, whatever it raises."""
        while not self.stopping.is_set():
            try:
                turn()
            except Exception:  # noqa: BLE001 - an error must not end the agent; it is logged
                self.log.failure(f"unexpected error in {name}")
                self.stopping.wait(1.0)
