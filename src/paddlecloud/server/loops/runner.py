"""Runs the loops in threads: woken by a bell or after a while, by one server at a time.

A loop holds a lease in the database while it works, so that of several servers on one database only
one plans. What a tick raises is logged and the loop goes on: the next tick sees the same facts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db import coordination
from paddlecloud.server.deps import Deps

log = logging.getLogger(__name__)
LEASE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Loop:
    name: str
    tick: Callable[[Deps, datetime], None]
    every: timedelta
    """How long it sleeps when nobody wakes it."""
    bell: str | None = None
    """Channel that wakes it at once."""


class Runner:
    def __init__(self, deps: Deps, loops: tuple[Loop, ...]) -> None:
        self._deps = deps
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=f"loop-{loop.name}", daemon=True)
            for loop in loops
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask every loop to end after its current tick, and wait for that."""
        self._stop.set()
        self._deps.hub.close()
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, loop: Loop) -> None:
        bell = self._deps.hub.bell(loop.bell or loop.name)
        lease_until = 0.0
        while not self._stop.is_set():
            bell.clear()
            try:
                if time.monotonic() > lease_until:
                    lease_until = self._take_lease(loop)
                if lease_until:
                    loop.tick(self._deps, self._deps.clock())
            except Exception:
                log.exception("loop %s failed; it goes on", loop.name)
                self._stop.wait(0.2)
            bell.wait(loop.every.total_seconds())

    def _take_lease(self, loop: Loop) -> float:
        """Until when (monotonic) this server may run the loop; 0 if another one does."""
        now = self._deps.clock()
        holder = self._deps.settings.name
        fence = self._deps.db.write(
            lambda tx: coordination.take_lease(tx, f"loop-{loop.name}", holder, now, LEASE),
            durable=False,
        )
        return 0.0 if fence is None else time.monotonic() + LEASE.total_seconds() / 3
