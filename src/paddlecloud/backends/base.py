"""The plug for a place that runs jobs: four methods, each with its promise.

A backend only makes agents exist and cease, and tells how much room it has. What a replica should
do, its log, its output and its exit code travel between its agent and the server. A backend keeps
the only copy of nothing: `start` returns a small handle that is stored with the attempt, and every
other call takes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Protocol, cast, runtime_checkable

from paddlecloud.model.errors import ConfigError
from paddlecloud.model.job import Attempt, Resources
from paddlecloud.model.pool import Node

Handle = Mapping[str, str]


class Presence(StrEnum):
    """What a backend knows of the agents of one attempt."""

    COMING = "coming"
    UP = "up"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Seen:
    presence: Presence
    detail: str = ""
    """Why it is gone or not there yet, in the place's own words."""


class Backend(Protocol):
    def capacity(self) -> tuple[Node, ...]:
        """The nodes that exist now, each with all that it has; never waits."""

    def start(self, attempt: Attempt) -> Handle:
        """Make the agents of `attempt` exist. Returns at once; twice starts once."""

    def look(self, handle: Handle) -> Seen:
        """Whether those agents exist. Never waits; an unknown handle is gone."""

    def stop(self, handle: Handle, grace: timedelta) -> None:
        """Make what was started for this attempt alone cease. Gone already is done."""


@runtime_checkable
class SharesMachines(Protocol):
    """Ability: processes of different users run side by side on the machines of this place, and
    nothing but a uid keeps them apart."""

    uid_base: int
    """The first uid that a user may be given."""


@runtime_checkable
class KeepsAgent(Protocol):
    """Ability: the agent of the server's own machine is a process that has to be kept running."""

    def ensure_agent(self) -> None:
        """Start it if it does not run. Returns at once."""


@runtime_checkable
class JoinedByAgents(Protocol):
    """Ability: machines come by themselves, when their agents say that they are there."""

    def joined(self, node: str, has: Resources, host: str) -> Node:
        """What this place gives of a machine whose agent says that it has this much."""


def create(kind: str, settings: Mapping[str, str]) -> Backend:
    """The backend of this name: a file of this package, or an installed entry point."""
    for point in entry_points(group="paddlecloud.backends", name=kind):
        return cast(Backend, point.load()(settings))
    if not kind.isidentifier():
        raise ConfigError("backend_unknown", kind=kind)
    try:
        module = importlib.import_module(f"paddlecloud.backends.{kind}")
    except ModuleNotFoundError as error:
        raise ConfigError("backend_unknown", kind=kind) from error
    return cast(Backend, module.create(settings))
