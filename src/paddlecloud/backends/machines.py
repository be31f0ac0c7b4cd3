"""Machines that people join to a pool: each runs an agent, which an admin invited.

The server starts nothing there. The agents poll for their orders, so an attempt is started by
placing it; when an agent falls silent, the reconcile loop notices it. All users of a team share the
machines, so each user's processes get a uid of their own, counted from `uid_base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from paddlecloud.backends.base import (
    NAME,
    AgentState,
    AgentStatus,
    Credentials,
    Handle,
    ServerContext,
    named,
)
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import Node

UID_BASE = 200_000


@dataclass(frozen=True, kw_only=True)
class MachinesSettings:
    """A pool of machines that join with a token of `admin machine invite`."""

    lost_after: timedelta | None = None
    """A machine that is silent for this long is lost, with its replicas. Default:
    running.lost_after."""
    uid_base: int = UID_BASE
    """The first uid that is assigned to a user of a team server."""


class Machines:
    settings: ClassVar[type] = MachinesSettings
    needs_credentials = False

    def __init__(self, settings: MachinesSettings, server: ServerContext) -> None:
        self.uid_base = settings.uid_base
        self.lost_after = settings.lost_after
        self._started: set[str] = set()

    def capacity(self, owner: str) -> tuple[Node, ...]:
        """None of its own: its nodes are the machines that joined."""
        return ()

    def joined(self, node: str, has: Resources, host: str) -> Node:
        return Node(id=node, total=has, host=host)

    def handle(self, attempt: Attempt) -> Handle:
        nodes = sorted({replica.node for replica in attempt.replicas})
        return named(attempt, node=",".join(nodes))

    def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
        """Starts nothing: the agents get an order for each replica."""
        self._started.add(self.handle(attempt)[NAME])

    def status(self, handle: Handle) -> AgentStatus:
        """Whether its machines are in contact is known by their polls, not here."""
        if not handle.get(NAME) or not handle.get("node"):
            return AgentStatus(state=AgentState.GONE, detail="no machine")
        up = handle[NAME] in self._started
        return AgentStatus(state=AgentState.UP if up else AgentState.STARTING)

    def stop(self, handle: Handle, grace: timedelta) -> None:
        """Stops nothing: the agents serve other attempts too, and get an order for each stop."""
        self._started.discard(handle.get(NAME, ""))


BACKEND = Machines
