"""The poller thread: gets orders from the server by long polls.

The first poll after the server was away does not wait for an order: its response lets all threads
know that the server is back. The server repeats orders until they are superseded, so a poll from
the beginning (cursor 0) is always safe; it is made once after each start of either side. It begins
a round, which a response without orders ends: a replica that was not listed in it is not wanted any
more, because an earlier agent that was killed got the order to delete it.

The agent that a server keeps on its own machine ends when that server stops and nothing runs, or
when it is gone for a while and nothing runs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud import __version__
from paddlecloud.agent import upgrade
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.server_link.channel import Backoff
from paddlecloud.model import cgroup_limits
from paddlecloud.model.errors import PaddleCloudError, Unauthenticated, Unreachable

if TYPE_CHECKING:
    from paddlecloud.agent.context import Context
    from paddlecloud.agent.exec.commands import Commands
    from paddlecloud.agent.exec.tunnels import Tunnels
    from paddlecloud.agent.replica.lifecycle import Lifecycle

WAIT = 30.0
#: Seconds; beyond `WAIT`, so that only a dead connection runs into the timeout.
_SLACK = 15.0
REMOVED_AFTER = 600.0
"""Seconds for which a key is refused before its machine counts as removed: a server may run with a
wrong key by mistake, and jobs survive that."""


class Poller:
    def __init__(
        self,
        context: Context,
        lifecycle: Lifecycle,
        commands: Commands | None = None,
        tunnels: Tunnels | None = None,
    ) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._commands = commands
        self._tunnels = tunnels
        self._channel = context.link.channel()
        self._backoff = Backoff()
        self._cursor = 0
        self._boot = ""
        self._wait = 0.0
        self._in_round = False
        self._refused_at: float | None = None
        """Since when the server refuses the key of this agent (monotonic)."""
        self._lock_file = _file_id(context.directory / "lock")
        self._capacity: dict[str, float] = {}
        self._capacity_at = 0.0

    def work(self) -> None:
        """The body of the thread."""
        self._context.guarded("the poll for orders", self._turn)

    def _turn(self) -> None:
        try:
            answer = self._poll()
        except PaddleCloudError as error:
            if not self._lost_directory():
                self._failed(error)
            return
        if self._lost_directory():
            return
        self._backoff.reset()
        self._refused_at = None
        if self._channel.boot != self._boot:
            self._boot = self._channel.boot
            self._context.log.info(f"connected to the server (boot {self._boot or 'unknown'})")
            if self._cursor:
                self._cursor = 0
                self._wait = 0.0
                return
        self._apply(answer)
        self._wait = 0.0 if self._in_round else WAIT
        isolate = (answer.get("settings") or {}).get("separate")
        if isolate and self._context.separates is None:
            # Tried once, and reported to the server with the next poll, at once.
            self._context.separates = self._context.spawner.can_isolate()
            able = "are" if self._context.separates else "cannot be"
            self._context.log.info(f"the replicas of different users {able} isolated here")
            self._wait = 0.0

    def _lost_directory(self) -> bool:
        """End if our directory was deleted: at once if another agent has one there now, whose keys
        and orders are not ours; else as soon as nothing runs."""
        found = _file_id(self._context.directory / "lock")
        if found == self._lock_file or (found is None and self._context.registry.busy()):
            return False
        self._context.log.info("the directory of this agent is gone")
        self._context.stop()
        return True

    def _poll(self) -> dict[str, Any]:
        config = self._context.config
        if not self._capacity or time.monotonic() - self._capacity_at > WAIT:
            # Limits of a pod may change while it runs; a busy agent polls many times a second.
            self._capacity, self._capacity_at = capacity(), time.monotonic()
        request = {
            "agent": config.agent_id,
            "boot": self._context.boot,
            "version": __version__,
            "cursor": self._cursor,
            "wait": self._wait,
            "capacity": {**self._capacity, **config.capacity},
            "enforces": self._context.enforces,
            "host": config.host,
            "commands": {} if self._commands is None else self._commands.known(),
        }
        tunnels = [] if self._tunnels is None else self._tunnels.known()
        if tunnels:  # an older server does not know the key
            request["tunnels"] = tunnels
        return self._channel.json("POST", "/agent/poll", request, timeout=self._wait + _SLACK)

    def _apply_settings(self, settings: dict[str, Any]) -> None:
        context = self._context
        context.ship_interval = float(settings.get("ship_interval", context.ship_interval))
        context.grace = float(settings.get("grace", context.grace))
        limit = settings.get("cache_limit")
        fixed = context.config.cache_bytes is not None
        if isinstance(limit, int) and not fixed and limit != context.cache_limit:
            context.cache_limit = limit
            context.prune_due.set()

    def _apply(self, answer: dict[str, Any]) -> None:
        context = self._context
        self._apply_settings(answer.get("settings") or {})
        if isinstance(answer.get("peers"), list):
            self._context.link.set_peers(answer["peers"])
        if answer.get("restart"):
            self._context.log.info("the server asks for another version; replicas go on")
            self._context.stop()
            return
        if answer.get("package") and self._upgrade(str(answer["package"])):
            return
        orders = answer.get("orders", [])
        if not self._cursor:
            self._in_round = True
            self._lifecycle.begin_round()
        for order in orders:
            try:
                self._lifecycle.apply(order)
            except Exception:  # noqa: BLE001 - one bad order must not hide the ones behind it
                self._context.log.failure("an order could not be applied", str(order)[:500])
        self._cursor = int(answer.get("cursor", self._cursor))
        if self._commands is not None and self._tunnels is not None:
            self._commands.apply(answer.get("commands", []))
            self._tunnels.apply(answer.get("tunnels", []), self._channel.endpoint)
        if self._in_round and not orders:
            self._in_round = False
            self._lifecycle.end_round()
        if answer.get("stopping") and context.config.endpoint_file and not context.registry.runs():
            context.log.info("the server stops and nothing runs")
            context.stop()

    def _upgrade(self, sha256: str) -> bool:
        """Fetch the agent of the server's version and go on as that. Replicas continue."""
        context = self._context
        try:
            context.next_program = upgrade.fetch(self._channel, context.directory, sha256)
        except (PaddleCloudError, OSError) as error:
            context.log.warning(f"cannot upgrade: {error}")
            return False
        context.log.info(f"goes on as {context.next_program.name}")
        context.stop()
        return True

    def _failed(self, error: PaddleCloudError) -> None:
        self._wait = 0.0
        pause = self._backoff.next()
        if isinstance(error, Unauthenticated) and self._context.link.renew_keys():
            return
        if pause < 0.1 or not isinstance(error, Unreachable):
            self._context.log.warning(f"cannot poll: {error}")
        if not isinstance(error, Unauthenticated):
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = time.monotonic()
        if self._is_removed():
            self._end_all()
        if self._is_pointless():
            self._context.stop()
        elif isinstance(error, Unreachable):
            self._context.link.wait_for_endpoint(self._channel.endpoint, pause)
        else:
            self._context.stopping.wait(pause)

    def _is_removed(self) -> bool:
        """Whether this machine left its pool, or its key is refused for so long that it was removed
        from it. Its jobs run elsewhere then."""
        config = self._context.config
        if config.endpoint_file is not None or self._refused_at is None:
            return False
        return not config.path.exists() or time.monotonic() - self._refused_at > REMOVED_AFTER

    def _end_all(self) -> None:
        """Kill every replica; the agent ends when none is left."""
        for tracked in self._context.registry.all():
            self._lifecycle.expel(tracked)
        if not self._context.registry.runs():
            self._context.log.info("this machine was removed from its pool")
            self._context.stop()

    def _is_pointless(self) -> bool:
        """Whether the embedded server is gone and nothing runs: the next server starts an agent
        that reports what ran."""
        if not self._context.directory.is_dir():
            return True
        config = self._context.config
        away = self._context.link.away_for(time.monotonic())
        if config.endpoint_file is None or away < config.linger or self._context.registry.runs():
            return False
        self._context.log.info(f"the server is gone for {away:.0f} s and nothing runs")
        return True


def _file_id(path: Path) -> tuple[int, int] | None:
    """Device and inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def capacity(*, proc: Path = Path("/proc/self")) -> dict[str, float]:
    """What all replicas together may use: this machine, or the pod or slice that the agent runs in.
    GPUs are not offered: nothing here assigns cards to replicas yet."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    cpus = affine or os.cpu_count() or 1
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu, memory = cgroup_limits.left(float(cpus), total, cgroups.ceiling(proc=proc))
    return {"cpu": cpu, "memory": memory, "gpu": 0}
