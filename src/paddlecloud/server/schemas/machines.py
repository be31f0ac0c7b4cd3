"""JSON schemas of machines that join a pool, and of pools that an admin adds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from paddlecloud.server.schemas.agent import Label, NodeName
from paddlecloud.server.schemas.base import Answer, Request


class InviteRequest(Request, frozen=True, kw_only=True):
    pool: str
    uses: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How many machines may join with it."""
    ttl: Annotated[float, Meta(ge=1, le=30 * 86_400)] = 3600.0
    """Seconds after which it ends."""


class InviteAnswer(Answer, frozen=True, kw_only=True):
    pool: str
    token: str
    uses: int
    expires_at: str
    url: str
    """Where the machines reach this server."""
    tls_sha256: str
    """Digest of the server's certificate; empty without TLS."""
    agent_sha256: str
    """Digest of the packed agent, and its name: `/api/v1/agent/package/{sha256}`."""


class MachineChange(Request, frozen=True, kw_only=True):
    labels: dict[Label, Label | None] | None = None
    """Labels to set; null removes one."""
    drained: bool | None = None
    reason: Annotated[str, Meta(max_length=200)] = ""
    """Why it is drained, shown to the others."""


class MachineView(Answer, frozen=True, kw_only=True):
    name: str
    pool: str
    state: str
    """ready, unreachable, draining (jobs still run there), drained, or new (never in contact)."""
    reason: str
    """Of draining or drained."""
    labels: dict[str, str]
    address: str
    version: str
    """Of its agent."""
    cpu: float
    memory: int
    gpu: int
    used_cpu: float
    used_memory: int
    used_gpu: int
    enforces: dict[str, bool]
    jobs: list[str]
    """Jobs that have replicas there."""
    joined_at: str
    seen_at: str | None


class MachinesAnswer(Answer, frozen=True, kw_only=True):
    machines: list[MachineView]


class RemovedMachine(Answer, frozen=True, kw_only=True):
    name: str


class PoolRequest(Request, frozen=True, kw_only=True):
    name: NodeName
    options: dict[str, Any]
    """The keys that [pools.NAME] of a settings file would have."""


class PoolAnswer(Answer, frozen=True, kw_only=True):
    name: str
