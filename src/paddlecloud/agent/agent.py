"""The agent: wires its parts together, runs their threads, and ends them.

The path of one replica through the parts:

    server_link/poll       gets the order
    replica/lifecycle      applies it
    replica/start          fetches and creates its files, starts a supervisor
    supervisor/            runs the command, and records its exit
    replica/lifecycle      reads the records, when a notice of the supervisor wakes the reporter
    outputs/shipper        sends its output files, while it runs and at its end
    server_link/report     sends its start, log and end
    replica/cleanup        deletes it when the server needs it no more

Beside it: `usage/sampler`, `exec/commands` and `exec/tunnels`. No part keeps the only copy of
anything, so the agent may be killed at any moment; the next one adopts what runs.
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
from paddlecloud.agent import upgrade
from paddlecloud.agent.config import read_config
from paddlecloud.agent.context import Context
from paddlecloud.agent.exec.commands import Commands
from paddlecloud.agent.exec.tunnels import Tunnels
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs.shipper import Shippers
from paddlecloud.agent.replica.cleanup import Cleanup
from paddlecloud.agent.replica.lifecycle import Lifecycle
from paddlecloud.agent.replica.start import Starters
from paddlecloud.agent.server_link.poll import Poller
from paddlecloud.agent.server_link.report import Reporter
from paddlecloud.agent.usage.sampler import Sampler
from paddlecloud.net.proxy import from_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from paddlecloud.agent.supervisor.zygote import Spawner

_STARTERS = 4
#: Threads for replicas that have to fetch something before they start.
_FETCHERS = 4
#: Seconds for the work under way when the agent has to end.
_STOP_SECONDS = 2.0
_LOCK_TRIES = 20
_ENDING = (signal.SIGTERM, signal.SIGINT)
_STACK = 256 * 1024
_M_ARENA_MAX = -8


class Agent:
    """All parts of one agent."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shippers = Shippers(context)
        self._cleanup = Cleanup(context, self._shippers)
        self._starters = Starters(context)
        lifecycle = Lifecycle(context, self._starters, self._shippers, self._cleanup)
        adopted = lifecycle.adopt()
        context.log.info(f"version {__version__} started, pid {os.getpid()}, adopted {adopted}")
        self._sampler = Sampler(context)
        self._commands = Commands(context)
        self._reporter = Reporter(context, lifecycle, self._sampler)
        tunnels = Tunnels(context, self._commands)
        self._poller = Poller(context, lifecycle, self._commands, tunnels)
        context.link.on_return = self._hurry
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        threading.stack_size(_STACK)
        # Keep the C library from allocating a heap per thread, a megabyte or more in all.
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
        gc.collect()
        gc.freeze()
        bodies: list[tuple[str, Callable[[], None]]] = [
            ("reporter", self._reporter.work),
            ("poller", self._poller.work),
            ("cleanup", self._cleanup.work),
            ("sampler", self._sampler.work),
            ("commands", self._commands.work),
            *[("starter", self._starters.run_starter)] * _STARTERS,
            *[("fetcher", self._starters.run_fetcher)] * _FETCHERS,
            ("pruner", self._starters.run_pruner),
            *[("shipper", body) for body in self._shippers.bodies()],
        ]
        # A signal that another thread handles does not wake the main one, which waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        for name, body in bodies:
            thread = threading.Thread(target=body, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    def finish(self, seconds: float) -> None:
        """Let each part finish what it is doing, for `seconds` at most. Replicas continue."""
        self._context.stop()
        self._shippers.close()
        self._cleanup.close()
        self._starters.close()
        self._sampler.close()
        self._commands.close()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.name != "poller":
                thread.join(max(0.0, deadline - time.monotonic()))
        self._context.spawner.close()
        self._context.log.info("stopped; replicas continue")

    def _hurry(self) -> None:
        """The server is back: try everything that waits for it."""
        self._context.wake_reporter()
        self._starters.hurry()
        self._shippers.hurry()


def run(
    config_path: Path,
    spawner: Spawner,
    say: Callable[[str], object],
    environ: Mapping[str, str],
) -> int:
    """Run the agent; its exit code. `spawner` was started before there was any thread."""
    config = read_config(config_path, from_environment(environ))
    lock = take_lock(config.directory / "lock")
    if lock is None:
        say(f"another agent already serves {config.directory}")
        return 0
    context = Context(config, AgentLog(config.directory / "agent.log"), spawner, environ)
    for number in _ENDING:
        signal.signal(number, lambda *_: context.stopping.set())
    try:
        agent = Agent(context)
        agent.start()
    except Exception:
        context.log.failure("cannot start")
        raise
    context.stopping.wait()
    agent.finish(_STOP_SECONDS)
    if context.next_program is not None:
        upgrade.go_on_as(context.next_program, config.path)
    return 0


def take_lock(path: Path) -> int | None:
    """Hold the lock until this process ends; None when another agent holds it.

    A process that tests whether an agent runs holds the lock for an instant, so it is tried again.
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
