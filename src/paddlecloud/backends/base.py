"""The interface of a backend: a place that runs jobs.

A backend starts and stops agents and reports its capacity. Orders, logs, outputs and exit codes
travel between agent and server and never pass through it. A backend stores nothing of its own: the
handle of an attempt follows from the attempt alone and is saved in the transaction that places it,
before `start` is called. After a crash at any line the server finds what exists by the handle, and
starts or stops it.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from paddlecloud.model.errors import ConfigError
from paddlecloud.model.jobs.job import Attempt, Resources
from paddlecloud.model.policy.pool import ElasticLimits, Node

Handle = Mapping[str, str]
"""Has the name of the attempt (`attempt_name`) under NAME; the other keys are the backend's own.
Attempts from before 2026-11-16 have handles without a name."""
NAME = "name"
_LABEL = 63
"""Longest label in DNS, and longest name of most cloud resources."""
_DIGEST = 12


class AgentState(StrEnum):
    """State of the agents of one attempt, as their backend knows it."""

    STARTING = "starting"
    UP = "up"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class AgentStatus:
    state: AgentState
    detail: str = ""
    """Why it is gone or still starting, as the backend reports it."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What the agents of one attempt need to connect to the server.

    Secret: a backend passes it on in a file of mode 0600 or a secret of its platform, never in an
    environment variable or on a command line.
    """

    url: str
    """Where agents on other machines reach the server."""
    join_token: str = field(repr=False)
    """Exchanged for a key of its own by each agent (`POST /agent/join`); good for this attempt."""


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What a backend knows of the server that it belongs to."""

    node: str = ""
    """The name of the server's own machine; empty: it runs no jobs."""
    agent_config: Path = Path("agent.json")
    """Configuration of the agent of that machine, with its key; mode 0600."""
    shared: bool = False
    """Whether several servers share the database, each with a machine of its own."""
    cpu: float | None = None
    memory: int | None = None
    gpu: int | None = None
    """What that machine gives to jobs; None: everything."""


class Backend(Protocol):
    settings: ClassVar[type]
    """Dataclass of the settings of this kind: its fields are keys of [pools.NAME]. The type is made
    with one of it and a `ServerContext`."""
    needs_credentials: bool
    """Whether its agents join with the token that `start` gets; False: they have keys already."""

    def capacity(self, owner: str) -> tuple[Node, ...] | ElasticLimits:
        """The nodes that jobs of `owner` may use now, each with everything it has; or the limits of
        a place that makes machines on demand. An empty owner stands for all users together. Never
        blocks."""

    def handle(self, attempt: Attempt) -> Handle:
        """The handle by which `attempt` is found here, started or not. Does no I/O and returns the
        same for the same attempt after every restart: it is called within a transaction, and again
        when replicas join. Its name never changes."""

    def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
        """Start the agents of `attempt` under its handle. Returns at once and is idempotent, also
        after a restart: what exists stays as it is, and what is missing of an attempt that has
        grown is started. `credentials` is None unless they are needed."""

    def status(self, handle: Handle) -> AgentStatus:
        """Whether these agents exist. Never blocks; an unknown handle is GONE."""

    def stop(self, handle: Handle, grace: timedelta) -> None:
        """Stop everything that was started for this attempt only. Idempotent."""


@runtime_checkable
class CanReap(Protocol):
    """Ability: what was started here can be listed, to find leftovers: a start that arrived after
    its stop, or an attempt whose job was deleted in between."""

    def existing(self) -> Iterable[Handle]:
        """Handles, at least with their names, of everything that this server started here and that
        was not stopped, whether it still runs or not. Never blocks for long."""


@runtime_checkable
class SharesMachines(Protocol):
    """Ability: processes of different users run on the same machines, separated only by uid."""

    uid_base: int
    """The first uid that is assigned to a user."""


@runtime_checkable
class KeepsAgent(Protocol):
    """Ability: the server keeps the agent of its own machine running."""

    def ensure_agent(self) -> None:
        """Start it if it does not run. Returns at once."""

    def end_agent(self, seconds: float) -> None:
        """Wait until it has ended, at most so long: the server stops, nothing runs, and the agent
        was notified of that if it polled."""


@runtime_checkable
class JoinedByAgents(Protocol):
    """Ability: machines join the pool when their agents connect."""

    def joined(self, node: str, has: Resources, host: str) -> Node:
        """The node for a machine whose agent reports these resources."""


def attempt_name(job_id: str, number: int) -> str:
    """The name of an attempt in every backend: a unique DNS label. A long one keeps its beginning
    and gets a digest."""
    name = f"{job_id}-{number}"
    if len(name) <= _LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LABEL - _DIGEST - 1]}-{digest}"


def named(attempt: Attempt, **more: str) -> Handle:
    """The handle of an attempt."""
    return {NAME: attempt_name(attempt.job_id, attempt.number), **more}


def backend_type(kind: str) -> type[Backend]:
    """The backend of this kind: `BACKEND` of a module of this package, or an installed entry point.
    ConfigError if there is none, or if it lacks something that a backend has."""
    for point in entry_points(group="paddlecloud.backends", name=kind):
        return _checked(kind, point.load())
    if not kind.isidentifier() or kind == "base":
        raise ConfigError("backend_unknown", kind=kind)
    try:
        module = importlib.import_module(f"paddlecloud.backends.{kind}")
    except ModuleNotFoundError as error:
        raise ConfigError("backend_unknown", kind=kind) from error
    return _checked(kind, module.BACKEND)


def create(kind: str, settings: object, server: ServerContext) -> Backend:
    """A backend with these settings, an instance of its `settings`; None: its defaults."""
    found: Any = backend_type(kind)
    made: Backend = found(found.settings() if settings is None else settings, server)
    return made


def _checked(kind: str, found: object) -> type[Backend]:
    names = [*Backend.__annotations__, *vars(Backend)]
    missing = [name for name in names if name[0] != "_" and not hasattr(found, name)]
    if missing:
        raise ConfigError("backend_incomplete", kind=kind, missing=", ".join(missing))
    return cast(type[Backend], found)
