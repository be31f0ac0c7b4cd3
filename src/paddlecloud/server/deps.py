"""Everything a service needs, passed explicitly: the open database, stores, backends, the clock.

`Hub` connects threads and the event loop: a change that was committed wakes whoever waits for it,
without anybody asking in a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Generic, TypeVar

from paddlecloud.backends.base import Backend, JoinedByAgents
from paddlecloud.db import agents
from paddlecloud.db.agents import Agent
from paddlecloud.db.base import EVERYTHING, Database
from paddlecloud.db.choices import Choosers
from paddlecloud.db.servers import Server
from paddlecloud.model.pool import Node, Pool
from paddlecloud.server.gathering import Gathering
from paddlecloud.server.metrics import Metrics
from paddlecloud.server.settings import Settings
from paddlecloud.stores.base import Store
from paddlecloud.stores.logs import LogStore

Topic = tuple[str, str]
Lock = AbstractContextManager[object]
"""What is held in a `with`."""
T = TypeVar("T")
HEARD_OF_WITHIN = timedelta(seconds=45)
"""An agent that was not heard of for this long is no place for a job: its question lasts 30 s, and
is written down within 5."""
MACHINES_REMEMBERED = timedelta(seconds=1)


class Hub:
    """Wake-ups by topic, for coroutines (`waiter`) and for loop threads (`bell`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: dict[Topic, set[asyncio.Event]] = {}
        self._bells: dict[str, threading.Event] = {}
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def bell(self, channel: str) -> threading.Event:
        """The event that every note on `channel` sets, whatever its payload."""
        with self._lock:
            return self._bells.setdefault(channel, threading.Event())

    def waiter(self, *topics: Topic) -> Waiter:
        return Waiter(self, topics)

    def tell(self, channel: str, payload: str) -> None:
        """Wake whoever waits for (channel, payload). Called from any thread."""
        if channel == EVERYTHING:
            self._wake_all()
            return
        bell = self._bells.get(channel)
        if bell is not None:
            bell.set()
        with self._lock:
            events = tuple(self._waiters.get((channel, payload), ()))
        if events and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set_all, events)

    def close(self) -> None:
        """Let every waiter and loop return: the server is going down."""
        self.closed = True
        self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            events = tuple(event for group in self._waiters.values() for event in group)
            bells = tuple(self._bells.values())
        for bell in bells:
            bell.set()
        if events and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_set_all, events)


class Waiter:
    """Registers first and waits later, so that what happens in between is not missed."""

    def __init__(self, hub: Hub, topics: tuple[Topic, ...]) -> None:
        self._hub = hub
        self._topics = topics
        self._event = asyncio.Event()

    def __enter__(self) -> Waiter:
        with self._hub._lock:
            for topic in self._topics:
                self._hub._waiters.setdefault(topic, set()).add(self._event)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._hub._lock:
            for topic in self._topics:
                group = self._hub._waiters.get(topic, set())
                group.discard(self._event)
                if not group:
                    self._hub._waiters.pop(topic, None)

    async def wait(self, seconds: float) -> bool:
        """True if something happened within `seconds`."""
        if self._hub.closed:
            return True
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        self._event.clear()
        return True


def _set_all(events: tuple[asyncio.Event, ...]) -> None:
    for event in events:
        event.set()


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


class RecentDigests:
    """Which contents the snapshots asked for last have: an agent fetches them one by one."""

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], frozenset[str]] = {}

    def get(self, key: tuple[str, str], find: Callable[[], frozenset[str]]) -> frozenset[str]:
        with self._lock:
            found = self._kept.pop(key, None)
        found = find() if found is None else found
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > self._size:
                self._kept.pop(next(iter(self._kept)))
        return found


class Remembered(Generic[T]):
    """What was found out a moment ago, for those who ask often."""

    def __init__(self) -> None:
        self._kept: tuple[T, datetime] | None = None

    def get(self, now: datetime, lasts: timedelta, find: Callable[[], T]) -> T:
        kept = self._kept
        if kept is None or not kept[1] - lasts <= now < kept[1]:
            self._kept = kept = find(), now + lasts
        return kept[0]


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
    uploads: OwnerLocks = field(default_factory=OwnerLocks)
    """Held while an owner's contents are named by a snapshot, and while unnamed ones go."""
    digests: RecentDigests = field(default_factory=RecentDigests)
    recent_use: Remembered[dict[str, float]] = field(default_factory=Remembered)
    """What each user used lately."""
    machines: Remembered[list[Agent]] = field(default_factory=Remembered)
    peers: Remembered[tuple[str, ...]] = field(default_factory=Remembered)
    """Where the servers on this database are reached."""
    log_moves: Lock = field(default_factory=threading.Lock)
    """Held while a log of a job that may be tried again is written, and while it is moved."""
    tell_of_log: Callable[[str], None] = lambda job_id: None
    """Tells other servers that the log of a job has grown; returns at once."""
    choosers: Choosers = field(default_factory=Choosers)
    """Who wants to be told of what happens to their jobs."""
    metrics: Metrics = field(default_factory=Metrics)
    clock: Callable[[], datetime] = utc_now

    @cached_property
    def gathering(self) -> Gathering:
        """For what the event loop writes."""
        return Gathering(self.db)

    def nodes(self) -> dict[str, tuple[Node, ...]]:
        """The nodes of each pool: those that its backend sees, and those that joined it."""
        return {name: self._nodes_of(self.backends[name]) for name in self.pools}

    def _nodes_of(self, backend: Backend) -> tuple[Node, ...]:
        own = backend.capacity()
        if not (self.db.shared and isinstance(backend, JoinedByAgents)):
            return own
        now = self.clock()
        known = self.machines.get(
            now, MACHINES_REMEMBERED, lambda: self.db.read(agents.list_agents)
        )
        seen = {node.id for node in own}
        return own + tuple(
            backend.joined(agent.id, agent.capacity, agent.host)
            for agent in known
            if agent.id not in seen and abs(now - agent.seen_at) < HEARD_OF_WITHIN
        )
