"""Everything a service needs, passed explicitly: the open database, stores, backends, the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

from paddlecloud.backends.base import Backend, JoinedByAgents
from paddlecloud.db.engine.base import Database
from paddlecloud.db.tables import agents
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.servers import Server
from paddlecloud.db.tables.user_buckets import Tags
from paddlecloud.model.policy.pool import Node, Pool
from paddlecloud.server.events import Hub
from paddlecloud.server.http.loop_commit import Gathering
from paddlecloud.server.metrics import Metrics
from paddlecloud.server.open_buckets import Buckets, Quiet, Recent
from paddlecloud.server.partial_digests import Halves
from paddlecloud.server.quota_snapshots import Standings
from paddlecloud.server.recent_logs import Speaking
from paddlecloud.server.referenced_blobs import NamedByOwner
from paddlecloud.server.services.logs.grep_limit import Searches
from paddlecloud.server.services.transfer.upload_session import Uploads
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import Store
from paddlecloud.stores.logs.log_store import LogStore

Lock = AbstractContextManager[object]
"""What is held in a `with`."""
T = TypeVar("T")
HEARD_OF_WITHIN = timedelta(seconds=45)
"""An agent that was not heard of for this long is no place for a job: its question lasts 30 s, and
is written down within 5."""
MACHINES_REMEMBERED = timedelta(seconds=1)
LOST_FOR = timedelta(minutes=10)
"""Beyond `lost_after`: then a machine that was lost is tried again, for its agent may be dead, and
only a job that is placed there has one started."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class OwnerLocks:
    """A lock for each owner that ever needed one, so that nobody waits for somebody else."""

    def __init__(self, make: Callable[[str], Lock] = lambda owner: threading.Lock()) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._locks: dict[str, Lock] = {}

    def of(self, owner: str) -> Lock:
        with self._lock:
            if owner not in self._locks:
                self._locks[owner] = self._make(owner)
            return self._locks[owner]


class Remembered(Generic[T]):
    """What was found out a moment ago, for those who ask often."""

    def __init__(self) -> None:
        self._kept: tuple[T, datetime] | None = None
        self._forgotten = 0

    def get(self, now: datetime, lasts: timedelta, find: Callable[[], T]) -> T:
        kept, forgotten = self._kept, self._forgotten
        if kept is None or not kept[1] - lasts <= now < kept[1]:
            kept = find(), now + lasts
            if forgotten == self._forgotten:
                self._kept = kept
        return kept[0]

    def forget(self) -> None:
        """It has changed: what somebody is finding out right now is not kept either."""
        self._forgotten += 1
        self._kept = None


@dataclass(frozen=True, kw_only=True)
class Deps:
    settings: Settings
    db: Database
    store: Store
    logs: LogStore
    pools: Mapping[str, Pool]
    """In the order in which `cluster=default` asks them."""
    backends: Mapping[str, Backend]
    """By pool name."""
    server_key: bytes
    boot: str
    """Identity of this run of the server."""
    server: Server | None = None
    """How this server is known to others on its database; None: there are none."""
    old_keys: tuple[bytes, ...] = ()
    """Server keys of before: what was signed or sealed with them is still good."""
    hub: Hub = field(default_factory=Hub)
    owner_locks: OwnerLocks = field(default_factory=OwnerLocks)
    """Held while an owner's contents are named by a snapshot, and while unnamed ones go."""
    named: NamedByOwner = field(default_factory=NamedByOwner)
    """Which contents must stay."""
    arriving: Uploads = field(default_factory=Uploads)
    """Contents that come in parts."""
    digests: Recent[Mapping[str, int]] = field(default_factory=Recent)
    """Contents of snapshots and their sizes, in order."""
    submitted: Recent[Mapping[str, tuple[str, int]]] = field(default_factory=Recent)
    """By path the content and the size of each file of a snapshot."""
    tags: Recent[Tags] = field(default_factory=Recent)
    marks: Recent[Mapping[str, str]] = field(default_factory=Recent)
    """By path the mark of each file in a user's own bucket."""
    buckets: Buckets = field(default_factory=Buckets)
    """Of jobs with storage of their own."""
    quiet: dict[str, Quiet] = field(default_factory=dict)
    """Those of them that do not answer, by name."""
    standings: Standings = field(default_factory=Standings)
    speaking: Speaking[Any] = field(default_factory=Speaking)
    """Replicas whose logs come in."""
    recent_use: Remembered[dict[str, float]] = field(default_factory=Remembered)
    """What each user used lately."""
    machines: Remembered[list[Agent]] = field(default_factory=Remembered)
    peers: Remembered[tuple[str, ...]] = field(default_factory=Remembered)
    """Where the servers on this database are reached."""
    heard: dict[str, int] = field(default_factory=dict)
    """The last order that each agent has, as far as it has asked this server for the next."""
    peers_told: dict[str, list[str]] = field(default_factory=dict)
    """What each agent was told of that last, by this server."""
    log_moves: Lock = field(default_factory=threading.Lock)
    """Held while a log of a job that may be tried again is written, and while it is moved."""
    set_aside: dict[tuple[str, int], bool] = field(default_factory=dict)
    """Attempts by job and number whose log files in a bucket go aside; True: they have gone."""
    refused: dict[str, datetime] = field(default_factory=dict)
    """Elastic jobs of which a pool would have no more, and until when it is not asked again."""
    tell_of_log: Callable[[str], None] = lambda job_id: None
    """Tells other servers that the log of a job has grown; returns at once."""
    choosers: Remembered[frozenset[str]] = field(default_factory=Remembered)
    """Who wants to be told of what happens to their jobs: one of anybody else costs no question."""
    halves: Halves = field(default_factory=Halves)
    searches: Searches = field(default_factory=Searches)
    metrics: Metrics = field(default_factory=Metrics)
    clock: Callable[[], datetime] = utc_now

    @cached_property
    def gathering(self) -> Gathering:
        """For what the event loop writes."""
        return Gathering(self.db)

    def nodes(self) -> dict[str, tuple[Node, ...]]:
        """The nodes of each pool: those that its backend sees, and those that joined it."""
        return {name: self._nodes_of(self.backends[name]) for name in self.pools}

    def silent(self) -> frozenset[str]:
        """Machines that were given up for lost: no place for a job until they are heard of."""
        since = self.clock() - self.settings.running.lost_after - LOST_FOR
        return frozenset(
            agent.id for agent in self._machines() if not agent.boot and agent.seen_at > since
        )

    def _machines(self) -> list[Agent]:
        return self.machines.get(
            self.clock(), MACHINES_REMEMBERED, lambda: self.db.read(agents.list_agents)
        )

    def _nodes_of(self, backend: Backend) -> tuple[Node, ...]:
        own = backend.capacity()
        if not (self.db.shared and isinstance(backend, JoinedByAgents)):
            return own
        now = self.clock()
        known = self._machines()
        seen = {node.id for node in own}
        return own + tuple(
            backend.joined(agent.id, agent.capacity, agent.host)
            for agent in known
            if agent.id not in seen and abs(now - agent.seen_at) < HEARD_OF_WITHIN
        )
