"""Heartbeat of this server on a shared database, and of the agent on its own machine.

Every server runs it, because the loops that one server runs for all cannot reach other machines. A
server alone on its database does not need it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from paddlecloud.backends.base import KeepsAgent
from paddlecloud.db.tables import servers
from paddlecloud.db.tables.servers import Server
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.admin import pools


class Heartbeat:
    def __init__(self, server: Server) -> None:
        self._server = server
        """As it was stored last."""

    def tick(self, deps: Deps, now: datetime) -> None:
        # Also when the clock was set back: a time in the future would hide that we stop.
        if abs(now - self._server.seen_at) >= servers.HEARTBEAT_INTERVAL:
            current = replace(self._server, seen_at=now)
            deps.db.write(lambda tx: servers.heartbeat(tx, current), durable=False)
            self._server = current
        pools.refresh(deps)
        for backend in deps.backends.values():
            if isinstance(backend, KeepsAgent):
                backend.ensure_agent()


def loop_for(deps: Deps) -> tuple[Loop, ...]:
    """The loop, if there may be other servers."""
    if deps.server is None:
        return ()
    tick = Heartbeat(deps.server).tick
    return (Loop(name="heartbeat", tick=tick, every=timedelta(seconds=2), leased=False),)
