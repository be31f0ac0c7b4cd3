"""The plug for a place that runs jobs: five methods, each with its promise.

A backend only makes agents exist and cease, and tells how much room it has. What a replica should
do, its log, its output and its exit code travel between its agent and the server. A backend keeps
the only copy of nothing, and nothing exists before it can be found: the handle of an attempt
follows from the attempt alone, and is stored in the transaction that places it. Only then is
`start` called, and every other call takes the handle. So whoever dies between any two lines leaves
behind what the next look finds, and can start or stop.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Protocol, cast, runtime_checkable

from paddlecloud.model.errors import ConfigError
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import Node

Handle = Mapping[str, str]
"""Under NAME it has the name of its attempt (`attempt_name`); what else there is the backend knows.
Attempts of before 2026-11-16 have handles without a name."""
NAME = "name"
_LABEL = 63
"""Characters of a name in DNS, and of nearly everything that a cloud gives names to."""
_MARK = 12


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

    def handle(self, attempt: Attempt) -> Handle:
        """Under which name `attempt` is to be found here, started or not. Asks nobody, and answers
        the same for the same attempt after every restart: it is called within a transaction, and
        again when replicas join; its name never changes."""

    def start(self, attempt: Attempt) -> None:
        """Make the agents of `attempt` exist under its handle. Returns at once; what exists under
        that name already stays as it is, so twice starts once, also after a restart. One that has
        grown is started again: what there is of it stays, and what is missing is made."""

    def look(self, handle: Handle) -> Seen:
        """Whether those agents exist. Never waits; an unknown handle is gone."""

    def stop(self, handle: Handle, grace: timedelta) -> None:
        """Make what was started for this attempt alone cease. Gone already is done."""


@runtime_checkable
class CanReap(Protocol):
    """Ability: what was started here can be listed. For what no row tells of any more: a start that
    arrived after its stop, an attempt whose job was deleted meanwhile."""

    def existing(self) -> Iterable[Handle]:
        """Everything of ours that was started here and has not been stopped, gone or not. At least
        their names. Never waits for long."""


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


def attempt_name(job_id: str, number: int) -> str:
    """The name of an attempt at every place: a label of DNS, and no other attempt has it."""
    return _label(f"{job_id}-{number}")


def named(attempt: Attempt, **more: str) -> Handle:
    """The handle of an attempt."""
    return {NAME: attempt_name(attempt.job_id, attempt.number), **more}


def create(kind: str, settings: Mapping[str, str]) -> Backend:
    """The backend of this name: a file of this package, or an installed entry point. ConfigError
    when there is none, or when what is there has not all that a backend has."""
    for point in entry_points(group="paddlecloud.backends", name=kind):
        return _checked(kind, point.load()(settings))
    if not kind.isidentifier():
        raise ConfigError("backend_unknown", kind=kind)
    try:
        module = importlib.import_module(f"paddlecloud.backends.{kind}")
    except ModuleNotFoundError as error:
        raise ConfigError("backend_unknown", kind=kind) from error
    return _checked(kind, module.create(settings))


def _checked(kind: str, made: object) -> Backend:
    """What lacks a method, as one of before may, is told at the start and not by the first job."""
    promised = [name for name in vars(Backend) if not name.startswith("_")]
    missing = [name for name in promised if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError("backend_incomplete", kind=kind, missing=", ".join(missing))
    return cast(Backend, made)


def _label(name: str) -> str:
    """What is too long keeps its beginning, and a mark of all of it."""
    if len(name) <= _LABEL:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK]
    return f"{name[: _LABEL - _MARK - 1]}-{mark}"
