"""What the threads of the agent share, and nothing that they do: its parts, wake-ups, queues."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inotify import MODIFY, open_watcher
from paddlecloud.agent.registry import Book
from paddlecloud.agent.replica.records import STDOUT
from paddlecloud.agent.server_link.channel import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddlecloud.agent.config import AgentConfig
    from paddlecloud.agent.log import Journal
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.supervisor.zygote import Spawner


class Site:
    def __init__(
        self,
        config: AgentConfig,
        journal: Journal,
        spawner: Spawner,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.environ = environ or {}
        """The agent's own environment variables, for installs of its own user."""
        self.directory = config.directory
        self.journal = journal
        self.spawner = spawner
        self.link = Link(config)
        self.boot = os.urandom(8).hex()
        """Tells one run of this agent from the next."""
        self.book = Book(self.directory / "replicas")
        self.watcher = open_watcher()
        self.ship_interval = 10.0
        """Seconds; the server says it in each answer to a poll."""
        self.grace = 40.0
        """Seconds between SIGTERM and SIGKILL where no stop says another; said there, too."""
        self.cache_limit = config.cache_bytes
        """Bytes of fetched files; said there, too, unless it is fixed for this machine. None until
        then."""
        self.untidy = threading.Event()
        """The cache may be above its limit."""
        self.cache_spent = False
        """The disk is nearly full, and nothing that is cached here can make room any more."""
        self.separates: bool | None = None
        """Whether each user's replicas can have a uid of their own; None until a server asks."""
        self.stopping = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    @property
    def enforces(self) -> dict[str, bool]:
        """What replicas can be held to here: limits, and to be kept apart from other users'."""
        known = self.spawner.enforces
        return known if self.separates is None else {**known, "uid": self.separates}

    @property
    def notices(self) -> str:
        """The socket on which monitors say that something happened to their replica."""
        return str(self.directory / "notify.sock")

    @property
    def wake_reader(self) -> int:
        return self._wake_reader

    def watch(self, tracked: Tracked) -> None:
        """Hear of new log bytes of this replica from now on; its log is made if it is not there."""
        log = tracked.place(STDOUT)
        os.close(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if self.watcher is not None and tracked.watch is None:
            tracked.watch = self.watcher.add(log, MODIFY)
        if tracked.watch is not None:
            self.book.watched[tracked.watch] = tracked

    def unwatch(self, tracked: Tracked) -> None:
        """It is about to be deleted, which ends the watch; before that it would be one more event,
        and so one more wake-up for each job."""
        watch, tracked.watch = tracked.watch, None
        if watch is not None:
            self.book.watched.pop(watch, None)

    def wake_reporter(self) -> None:
        """Let the reporter look at what changed."""
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b"!")

    def stop(self) -> None:
        """Ask every thread to end after what it is doing."""
        self.stopping.set()
        self.wake_reporter()

    def guarded(self, name: str, turn: Callable[[], object]) -> None:
        """Repeat `turn` until the agent stops, whatever goes wrong in it."""
        while not self.stopping.is_set():
            try:
                turn()
            except Exception:  # noqa: BLE001 - one mistake must not end the agent; it is logged
                self.journal.failure(f"{name} stumbled and goes on")
                self.stopping.wait(1.0)
