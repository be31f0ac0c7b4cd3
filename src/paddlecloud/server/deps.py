"""The services that everything in the server uses, passed explicitly: database, stores, backends.

What is only cached is in `deps.caches`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TypeVar

from paddlecloud.backends.base import Backend, JoinedByAgents, KeepsAgent
from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import agents, machines
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.machines import Machine
from paddlecloud.db.tables.servers import Server
from paddlecloud.model.policy.pool import ElasticLimits, Node, Pool, elastic_nodes
from paddlecloud.server.caches import Caches
from paddlecloud.server.events import Hub
from paddlecloud.server.http.loop_commit import LoopWriter
from paddlecloud.server.metrics import Metrics
from paddlecloud.server.services.exec.pending_tunnels import Tunnels
from paddlecloud.server.services.transfer.verification import Verifications
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import Store
from paddlecloud.stores.logs.log_store import LogStore

V = TypeVar("V")
Lock = AbstractContextManager[object]
"""A context manager that is held in a `with`."""
CONTACT_WITHIN = timedelta(seconds=45)
"""No job is placed on a machine whose agent was out of contact for longer. A poll lasts 30 s, and
is stored within 5 s."""
JOINED_WAIT = timedelta(seconds=15)
"""The longest poll of a machine that joined with a token."""
JOINED_CONTACT = JOINED_WAIT + timedelta(seconds=10)
"""A machine that joined is unreachable when its agent was out of contact for longer."""
LOST_FOR = timedelta(minutes=10)
"""Beyond `lost_after`. After that, jobs are placed on a lost machine again: its agent may be dead,
and only a job that is placed there has another one started."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class OwnerLocks:
    """One lock per owner, so owners never block each other."""

    def __init__(self, make: Callable[[str], Lock] = lambda owner: threading.Lock()) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._locks: dict[str, Lock] = {}

    def of(self, owner: str) -> Lock:
        with self._lock:
            if owner not in self._locks:
                self._locks[owner] = self._make(owner)
            return self._locks[owner]


class CopyOnWrite(Mapping[str, V]):
    """A mapping whose items are replaced all at once, so that no reader sees it change."""

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def replace(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True, kw_only=True)
class Deps:
    settings: Settings
    db: Database
    store: Store
    logs: LogStore
    pools: Mapping[str, Pool]
    """In the order in which `cluster=default` tries them."""
    backends: Mapping[str, Backend]
    """By pool name."""
    server_key: bytes
    boot: str
    """Identity of this run of the server."""
    url: str = ""
    """Where agents on other machines reach this server."""
    server: Server | None = None
    """The row of this server on a shared database; None: it is the only one."""
    old_keys: tuple[bytes, ...] = ()
    """Earlier server keys: what was signed or encrypted with them is still valid."""
    hub: Hub = field(default_factory=Hub)
    owner_locks: OwnerLocks = field(default_factory=OwnerLocks)
    """Held while a snapshot references blobs, and while unreferenced ones are deleted."""
    log_moves: Lock = field(default_factory=threading.Lock)
    """Held while a log of a job that may be retried is written, and while it is moved."""
    notify_log: Callable[[str], None] = lambda job_id: None
    """Notifies other servers that the log of a job has grown; returns at once."""
    verifications: Verifications = field(default_factory=Verifications)
    """Of multipart uploads."""
    tunnels: Tunnels = field(default_factory=Tunnels)
    caches: Caches = field(default_factory=Caches)
    metrics: Metrics = field(default_factory=Metrics)
    clock: Callable[[], datetime] = utc_now

    @cached_property
    def loop_writer(self) -> LoopWriter:
        """For writes of the event loop."""
        return LoopWriter(self.db)

    def nodes(self, owner: str = "") -> dict[str, tuple[Node, ...]]:
        """The nodes of each pool: those that its backend reports, and those that joined it.
        `owner`: those that jobs of this user may use."""
        return {name: self._nodes_of(name, self.backends[name], owner) for name in self.pools}

    def unschedulable(self) -> frozenset[str]:
        """Machines on which no job is placed: those that count as lost, until their agents are in
        contact, and drained ones."""
        since = self.clock() - self.settings.running.lost_after - LOST_FOR
        found, joined = self._machines()
        closed = {agent.id for agent in found if not agent.boot and agent.seen_at > since}
        closed |= {name for name, machine in joined.items() if machine.drained is not None}
        return frozenset(closed | {a.id for a in found if a.id in joined and self.unreachable(a)})

    def has_joined(self, node: str) -> bool:
        """Whether this machine joined with a token: this server cannot start its agent."""
        return node in self._machines()[1]

    def unreachable(self, agent: Agent) -> bool:
        """Whether the agent of a machine that joined is out of contact."""
        return abs(self.clock() - agent.seen_at) > JOINED_CONTACT

    def _machines(self) -> tuple[list[Agent], dict[str, Machine]]:
        """The agents that were in contact, and the machines that joined with a token, by name."""

        def read(tx: Tx) -> tuple[list[Agent], dict[str, Machine]]:
            joined = {machine.name: machine for machine in machines.list_machines(tx)}
            return agents.list_agents(tx), joined

        return self.caches.machines.load(self.clock(), lambda: self.db.read(read))

    def _nodes_of(self, pool: str, backend: Backend, owner: str) -> tuple[Node, ...]:
        found = backend.capacity(owner)
        own = elastic_nodes(pool, found) if isinstance(found, ElasticLimits) else found
        if not isinstance(backend, JoinedByAgents):
            return own
        now = self.clock()
        ids = {node.id for node in own}
        contacts, joined = self._machines()
        nodes = []
        for agent in contacts:
            machine = joined.get(agent.id)
            # A machine that joined is known until it is removed, also while it is unreachable.
            known = machine is not None or abs(now - agent.seen_at) < CONTACT_WITHIN
            if known and agent.id not in ids and self._belongs_to(agent, pool, backend):
                node = backend.joined(agent.id, agent.capacity, agent.host)
                nodes.append(node if machine is None else replace(node, labels=machine.labels))
        return own + tuple(nodes)

    def _belongs_to(self, agent: Agent, pool: str, backend: Backend) -> bool:
        """Whether the machine of this agent is one of the pool's. Local pools have machines besides
        their own only on a shared database: those of the other servers. Agents from before they had
        a pool are all local, and have their own name in its place."""
        if isinstance(backend, KeepsAgent):
            return self.db.shared and agent.pool in (pool, agent.id)
        return agent.pool == pool
