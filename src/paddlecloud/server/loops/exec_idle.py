"""Ends the commands of `exec` that nobody reads any more: who began one was killed, or is far away.

Every server runs it, because only it knows whom it answers: it writes that down for the others, and
watches itself for how long nobody did. An answer that waits for its reader counts as long as it is
not cut; a reader whose own output stands still for longer asks how the command is.
What no server watched counts for nothing: after a restart, or a laptop's night, readers come back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from paddlecloud.db.tables import exec_commands as rows
from paddlecloud.db.tables.exec_commands import Command
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.exec import commands

log = logging.getLogger(__name__)
EVERY = timedelta(seconds=5)
LONGEST_STEP = 2 * EVERY.total_seconds()
"""More than that between two looks nobody has watched."""


def loop() -> Loop:
    """One that has watched nothing yet."""
    return Loop(name="holding", tick=Holding().tick, every=EVERY, leased=False)


class Holding:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._silent: dict[str, tuple[datetime | None, float]] = {}
        """When somebody last read each, as it is written, and for how many seconds that stood."""

    def tick(self, deps: Deps, _now: datetime) -> None:
        current = self._clock()
        step, self._last = min(current - self._last, LONGEST_STEP), current
        live = deps.db.read(rows.live)
        before, self._silent = self._silent, {}
        for command in live:
            if deps.hub.awaits("command", command.id):
                commands.hold(deps, command)
                continue
            noted, seconds = before.get(command.id, (None, -step))
            seconds = seconds + step if noted == command.held_at else 0.0
            self._silent[command.id] = (command.held_at, seconds)
            if seconds > commands.LEFT_AFTER.total_seconds():
                _end(deps, command)


def _end(deps: Deps, command: Command) -> None:
    if commands.give_up(deps, command):
        return
    if not command.left and commands.leave(deps, command):
        log.info("nobody reads command %s of %s: it has to end", command.id, command.replica)
