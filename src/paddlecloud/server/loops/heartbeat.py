"""Says that this server is there, and keeps the agent of its own machine.

Every server on a shared database runs it, because nobody else could: the loops that one of them
runs for all cannot look into other machines. A server alone on its database has no use for it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from paddlecloud.backends.base import KeepsAgent
from paddlecloud.db.tables import servers
from paddlecloud.db.tables.servers import Server
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop


class Presence:
    """What this server said last."""

    def __init__(self, server: Server) -> None:
        self._said = server

    def tick(self, deps: Deps, now: datetime) -> None:
        # Also when the clock was set back: a time to come would hide that we fall silent.
        if abs(now - self._said.seen_at) >= servers.SEEN_EVERY:
            said = replace(self._said, seen_at=now)
            deps.db.write(lambda tx: servers.seen(tx, said), durable=False)
            self._said = said
        for backend in deps.backends.values():
            if isinstance(backend, KeepsAgent):
                backend.ensure_agent()


def loop_for(deps: Deps) -> tuple[Loop, ...]:
    """The loop, where there may be other servers."""
    if deps.server is None:
        return ()
    tick = Presence(deps.server).tick
    return (Loop(name="presence", tick=tick, every=timedelta(seconds=2), leased=False),)
