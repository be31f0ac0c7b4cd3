"""The agent beside the users' processes: takes orders, runs replicas, brings logs and files back.

This module puts the parts together and ends them. The parts, each a thread or a few: `polling`
(orders), `starting` (files and processes), `reporting` (starts, logs, ends), `shipping` (outputs),
`care` (adoption, ends, deletion), `sampling` (what is used), `commands` (those that people run
beside replicas). None of them keeps the only copy of anything, so the agent may be killed at any
moment; the next one adopts what runs.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud import __version__
from paddlecloud.agent.config import read_config
from paddlecloud.agent.context import Site
from paddlecloud.agent.exec.commands import Commands
from paddlecloud.agent.log import Journal
from paddlecloud.agent.outputs.shipper import Shippers
from paddlecloud.agent.replica.lifecycle import Care, Janitor
from paddlecloud.agent.replica.start import Starters
from paddlecloud.agent.server_link.poll import Poller
from paddlecloud.agent.server_link.report import Reporter
from paddlecloud.agent.usage.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from paddlecloud.agent.supervisor.zygote import Spawner

_STARTERS = 4
#: Whoever has to fetch something before it starts is one of so many, and takes no starter.
_FETCHERS = 4
#: How long the work under way may take when the agent is asked to end, in seconds.
_LAST_WORK = 2.0
_LOCK_TRIES = 20
_ENDING = (signal.SIGTERM, signal.SIGINT)
_STACK = 256 * 1024
_M_ARENA_MAX = -8


class Agent:
    """All parts of one agent."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._shippers = Shippers(site)
        self._janitor = Janitor(site, self._shippers)
        self._starters = Starters(site)
        care = Care(site, self._starters, self._shippers, self._janitor)
        adopted = care.adopt()
        site.journal.info(f"version {__version__} begins, pid {os.getpid()}, adopted {adopted}")
        self._sampler = Sampler(site)
        self._commands = Commands(site)
        self._reporter = Reporter(site, care, self._sampler)
        self._poller = Poller(site, care, self._commands)
        site.link.on_return = self._hurry
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to work."""
        threading.stack_size(_STACK)
        _share_one_heap()
        gc.collect()
        gc.freeze()
        bodies: list[tuple[str, Callable[[], None]]] = [
            ("reporter", self._reporter.work),
            ("poller", self._poller.work),
            ("janitor", self._janitor.work),
            ("sampler", self._sampler.work),
            ("commands", self._commands.work),
            *[("starter", self._starters.work)] * _STARTERS,
            *[("fetcher", self._starters.fetch)] * _FETCHERS,
            ("tidier", self._starters.tidy),
            *[("shipper", body) for body in self._shippers.bodies()],
        ]
        # A signal that another thread takes does not wake the main one, which waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        for name, body in bodies:
            thread = threading.Thread(target=body, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    def finish(self, seconds: float) -> None:
        """Let each part end what it is doing, for so long at most. Replicas go on."""
        self._site.stop()
        self._shippers.close()
        self._janitor.close()
        self._starters.close()
        self._sampler.close()
        self._commands.close()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.name != "poller":
                thread.join(max(0.0, deadline - time.monotonic()))
        self._site.spawner.close()
        self._site.journal.info("ends; replicas go on")

    def _hurry(self) -> None:
        """The server is back: try everything again that waits for it."""
        self._site.wake_reporter()
        self._starters.hurry()
        self._shippers.hurry()


def run(
    config_path: Path,
    spawner: Spawner,
    say: Callable[[str], object],
    environ: Mapping[str, str],
) -> int:
    """The life of the agent; its exit code. `spawner` was started before there was any thread."""
    config = read_config(config_path)
    lock = take_lock(config.directory / "lock")
    if lock is None:
        say(f"another agent already serves {config.directory}")
        return 0
    site = Site(config, Journal(config.directory / "agent.log"), spawner, environ)
    for number in _ENDING:
        signal.signal(number, lambda *_: site.stopping.set())
    try:
        agent = Agent(site)
        agent.start()
    except Exception:
        site.journal.failure("cannot begin")
        raise
    site.stopping.wait()
    agent.finish(_LAST_WORK)
    return 0


def _share_one_heap() -> None:
    """Keep the C library from making a heap for each of our threads, a megabyte or more in all."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def take_lock(path: Path) -> int | None:
    """Hold the lock for the life of this process; None when another agent holds it.

    Whoever asks whether an agent lives holds the lock for an instant, so one refusal is no proof.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            return fd
    os.close(fd)
    return None
