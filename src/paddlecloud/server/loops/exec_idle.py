"""Stops `exec` commands that have no reader any more: their client was killed or lost contact.

Every server runs it, because only it knows its own readers: it stores for the others that a command
has one, and measures itself for how long none had. A response that waits for its reader counts
until it is cut; a reader whose own output is blocked for longer queries the command. Time that no
server observed does not count: after a restart, or a suspend, readers come back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from paddlecloud.db.tables import exec_commands as rows
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.exec import commands

log = logging.getLogger(__name__)
EVERY = timedelta(seconds=5)
LONGEST_STEP = 2 * EVERY.total_seconds()
"""Seconds. Of a longer step the rest was not observed."""


def loop() -> Loop:
    return Loop(name="exec_idle", tick=ExecIdle().tick, every=EVERY, leased=False)


class ExecIdle:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._silent: dict[str, tuple[datetime | None, float]] = {}
        """The stored time of the last read of each, and for how many seconds it has not changed."""

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
            if seconds <= commands.LEFT_AFTER.total_seconds() or commands.give_up(deps, command):
                continue
            if not command.left and commands.leave(deps, command):
                log.info("stopping command %s of %s: no reader", command.id, command.replica)
