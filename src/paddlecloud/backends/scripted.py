"""A backend for tests whose settings say how it behaves: capacity, refusals, agents that vanish.

It passes the same contract as the others, so the failure paths of the server become one-line test
inputs. It starts nothing: whoever uses it plays the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from paddlecloud.backends.base import NAME, AgentState, AgentStatus, Credentials, Handle, named
from paddlecloud.model.errors import Refused, Retry
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import Node


def create(settings: Mapping[str, str]) -> Scripted:
    return Scripted(settings)


class Scripted:
    """Settings: nodes; cpu, memory, gpu of each; start = ok|refuse|later; agents = up|gone."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.needs_credentials = bool(settings.get("join"))
        self.credentials: dict[str, Credentials | None] = {}
        """What each attempt was started with, by its name."""
        self.started: dict[str, int] = {}
        """How often each attempt was really started, by its name."""

    def capacity(self, owner: str) -> tuple[Node, ...]:
        total = Resources(
            cpu=float(self.settings.get("cpu", "4")),
            memory=int(self.settings.get("memory", str(8 * 1024**3))),
            gpu=int(self.settings.get("gpu", "0")),
        )
        count = int(self.settings.get("nodes", "1"))
        prefix = self.settings.get("node", "scripted")
        return tuple(Node(id=f"{prefix}-{index}", total=total) for index in range(count))

    def handle(self, attempt: Attempt) -> Handle:
        return named(attempt)

    def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
        if self.settings.get("start") == "refuse":
            raise Refused("backend_refused", pool=attempt.pool)
        if self.settings.get("start") == "later":
            raise Retry("backend_later", pool=attempt.pool)
        self.started.setdefault(self.handle(attempt)[NAME], 1)
        self.credentials[self.handle(attempt)[NAME]] = credentials

    def joined(self, node: str, has: Resources, host: str) -> Node:
        return Node(id=node, total=has, host=host)

    def status(self, handle: Handle) -> AgentStatus:
        known = handle.get(NAME) in self.started
        if not known or self.settings.get("agents") == "gone":
            return AgentStatus(state=AgentState.GONE, detail="scripted")
        return AgentStatus(state=AgentState.UP)

    def stop(self, handle: Handle, grace: timedelta) -> None:
        self.started.pop(handle.get(NAME, ""), None)

    def existing(self) -> list[Handle]:
        return [{NAME: name} for name in self.started]
