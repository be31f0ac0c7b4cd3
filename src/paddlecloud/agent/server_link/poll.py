"""Asks the server for orders, by a long poll, and knows when to give up on an embedded one.

The first question after the server was away does not wait for an order: its answer is how every
thread learns that the server is back. Orders are repeated by the server until they are outdated,
so a question that starts from the beginning (cursor 0) is always safe; it is asked once after each
start of either side. That begins a round, which an answer without orders ends: what was not named
in it is not wanted any more, because the order to forget it met a process that was about to die.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud import __version__
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.server_link.channel import Backoff
from paddlecloud.model import cgroup_limits
from paddlecloud.model.errors import PaddleCloudError, Unauthenticated, Unreachable

if TYPE_CHECKING:
    from paddlecloud.agent.context import Site
    from paddlecloud.agent.exec.commands import Commands
    from paddlecloud.agent.replica.lifecycle import Care

#: Seconds; longer than the server's answer may take, so that only a dead connection runs into it.
WAIT = 30.0
_SLACK = 15.0


class Poller:
    def __init__(self, site: Site, care: Care, commands: Commands | None = None) -> None:
        self._site = site
        self._care = care
        self._commands = commands
        self._channel = site.link.channel()
        self._backoff = Backoff()
        self._cursor = 0
        self._boot = ""
        self._wait = 0.0
        self._in_round = False
        self._own = _mark(site.directory / "lock")
        self._capacity: dict[str, float] = {}
        self._counted_at = 0.0

    def work(self) -> None:
        """The body of the thread."""
        self._site.guarded("the poll for orders", self._turn)

    def _turn(self) -> None:
        try:
            answer = self._ask()
        except PaddleCloudError as error:
            if not self._is_homeless():
                self._failed(error)
            return
        if self._is_homeless():
            return
        self._backoff.reset()
        if self._channel.boot != self._boot:
            self._met(self._channel.boot)
            if self._cursor:
                self._cursor = 0
                self._wait = 0.0
                return
        self._obey(answer)
        news = self._find_out((answer.get("settings") or {}).get("separate"))
        self._wait = 0.0 if self._in_round or news else WAIT

    def _is_homeless(self) -> bool:
        """End if our directory was deleted: at once if another agent has one there now, whose
        keys and orders are not ours; else as soon as nothing runs."""
        found = _mark(self._site.directory / "lock")
        if found == self._own or (found is None and self._site.book.busy()):
            return False
        self._site.journal.info("the directory of this agent is gone")
        self._site.stop()
        return True

    def _ask(self) -> dict[str, Any]:
        config = self._site.config
        if not self._capacity or time.monotonic() - self._counted_at > WAIT:
            # Limits of a pod may be changed while it runs; a busy agent asks many times a second.
            self._capacity, self._counted_at = capacity(), time.monotonic()
        question = {
            "agent": config.agent_id,
            "boot": self._site.boot,
            "version": __version__,
            "cursor": self._cursor,
            "wait": self._wait,
            "capacity": {**self._capacity, **config.capacity},
            "enforces": self._site.enforces,
            "host": config.host,
            "commands": {} if self._commands is None else self._commands.heard(),
        }
        return self._channel.json("POST", "/agent/poll", question, timeout=self._wait + _SLACK)

    def _met(self, boot: str) -> None:
        self._boot = boot
        self._site.journal.info(f"the server answers (its start {boot or 'unknown'})")

    def _obey(self, answer: dict[str, Any]) -> None:
        settings = answer.get("settings") or {}
        self._site.ship_interval = float(settings.get("ship_interval", self._site.ship_interval))
        self._site.grace = float(settings.get("grace", self._site.grace))
        self._learn_cache_limit(settings.get("cache_limit"))
        if isinstance(answer.get("peers"), list):
            self._site.link.learn(answer["peers"])
        if answer.get("restart"):
            self._site.journal.info("the server asks for another version; replicas go on")
            self._site.stop()
            return
        orders = answer.get("orders", [])
        if not self._cursor:
            self._in_round = True
            self._care.begin_round()
        for order in orders:
            try:
                self._care.obey(order)
            except Exception:  # noqa: BLE001 - one bad order must not hide the ones behind it
                self._site.journal.failure("an order was not understood", str(order)[:500])
        self._cursor = int(answer.get("cursor", self._cursor))
        if self._commands is not None:
            self._commands.obey(answer.get("commands", []))
        if self._in_round and not orders:
            self._in_round = False
            self._care.end_round()

    def _learn_cache_limit(self, told: object) -> None:
        """Unless it is fixed for this machine; another one than before is seen to at once."""
        site = self._site
        if isinstance(told, int) and site.config.cache_bytes is None and told != site.cache_limit:
            site.cache_limit = told
            site.untidy.set()

    def _find_out(self, wanted: object) -> bool:
        """Try out once whether users can be kept apart, for a server that wants to know."""
        if not wanted or self._site.separates is not None:
            return False
        self._site.separates = self._site.spawner.separates()
        able = "are" if self._site.separates else "cannot be"
        self._site.journal.info(f"the replicas of different users {able} kept apart here")
        return True

    def _failed(self, error: PaddleCloudError) -> None:
        self._wait = 0.0
        pause = self._backoff.next()
        if isinstance(error, Unauthenticated) and self._site.link.renew_keys():
            return
        if pause < 0.1 or not isinstance(error, Unreachable):
            self._site.journal.warning(f"no orders: {error}")
        if self._is_pointless():
            self._site.stop()
        elif isinstance(error, Unreachable):
            self._site.link.wait_for_endpoint(self._channel.endpoint, pause)
        else:
            self._site.stopping.wait(pause)

    def _is_pointless(self) -> bool:
        """Whether nothing runs and nobody is left to tell of what ran: the next server starts an
        agent that finds it."""
        if not self._site.directory.is_dir():
            return True
        config = self._site.config
        away = self._site.link.away_for(time.monotonic())
        if config.endpoint_file is None or away < config.linger or self._site.book.runs():
            return False
        self._site.journal.info(f"the server is gone for {away:.0f} s and nothing runs")
        return True


def _mark(path: Path) -> tuple[int, int] | None:
    """Which file this is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def capacity(*, proc: Path = Path("/proc/self")) -> dict[str, float]:
    """What replicas may use together on this machine, or in the pod or slice that is ours of it. No
    GPU is offered: nothing here yet hands single cards to replicas."""
    cpu, memory = cgroup_limits.left(float(_cpus()), _memory(), cgroups.ceiling(proc=proc))
    return {"cpu": cpu, "memory": memory, "gpu": 0}


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
