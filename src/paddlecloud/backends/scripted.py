"""A backend for tests: its settings define what it has and how it behaves.

It passes the same contract as the others, so failures of a backend become one line of a test. It
starts nothing: the test plays the agents.
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
from paddlecloud.model.errors import Refused, Retry
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import ElasticLimits, Node
from paddlecloud.model.setting_types import Size


@dataclass(kw_only=True)
class Script:
    """What the backend has, and what it does."""

    node: str = "scripted"
    """Name of its nodes, before their numbers."""
    nodes: int = 1
    """How many nodes it has."""
    cpu: float = 4.0
    """CPUs of each."""
    memory: Size = 8 * 1024**3
    """Bytes of memory of each."""
    gpu: int = 0
    """GPUs of each."""
    start: str = "ok"
    """ok, refuse or later: what becomes of a start."""
    agents: str = "up"
    """up or gone: the agents that were started."""
    elastic: bool = False
    """true: it makes machines on demand, up to `nodes` of this size."""
    total_cpu: float = 0.0
    """With `elastic`: CPUs of all machines together; 0: no limit."""
    without: str = ""
    """With `elastic`: a user who may have none."""
    join: bool = False
    """true: its agents join with the credentials of their attempt."""


class Scripted:
    settings: ClassVar[type] = Script
    needs_credentials = False

    def __init__(self, script: Script, server: ServerContext | None = None) -> None:
        self.script = script
        self.needs_credentials = script.join
        self.started: dict[str, int] = {}
        """How often each attempt was really started, by its name."""
        self.credentials: dict[str, Credentials | None] = {}
        """What each attempt was started with, by its name."""

    def capacity(self, owner: str) -> tuple[Node, ...] | ElasticLimits:
        script = self.script
        total = Resources(cpu=script.cpu, memory=script.memory, gpu=script.gpu)
        if script.elastic:
            most = None
            if script.total_cpu:
                most = Resources(cpu=script.total_cpu, memory=script.memory * script.nodes)
            count = 0 if owner and owner == script.without else script.nodes
            return ElasticLimits(nodes=count, node=total, total=most)
        return tuple(
            Node(id=f"{script.node}-{index}", total=total) for index in range(script.nodes)
        )

    def joined(self, node: str, has: Resources, host: str) -> Node:
        return Node(id=node, total=has, host=host)

    def handle(self, attempt: Attempt) -> Handle:
        return named(attempt)

    def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
        if self.script.start == "refuse":
            raise Refused("backend_refused", pool=attempt.pool)
        if self.script.start == "later":
            raise Retry("backend_later", pool=attempt.pool)
        name = self.handle(attempt)[NAME]
        self.started.setdefault(name, 1)
        self.credentials[name] = credentials

    def status(self, handle: Handle) -> AgentStatus:
        if handle.get(NAME) not in self.started or self.script.agents == "gone":
            return AgentStatus(state=AgentState.GONE, detail="scripted")
        return AgentStatus(state=AgentState.UP)

    def stop(self, handle: Handle, grace: timedelta) -> None:
        self.started.pop(handle.get(NAME, ""), None)

    def existing(self) -> list[Handle]:
        return [{NAME: name} for name in self.started]


BACKEND = Scripted
