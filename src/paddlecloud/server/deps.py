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
from typing import Any, Generic, TypeVar

from paddlecloud.backends.base import Backend, JoinedByAgents
from paddlecloud.db import agents
from paddlecloud.db.agents import Agent
from paddlecloud.db.base import EVERYTHING, Database
from paddlecloud.db.choices import Choosers
from paddlecloud.db.private import Tags
from paddlecloud.db.servers import Server
from paddlecloud.model.pool import Node, Pool
from paddlecloud.server.arriving import Uploads
from paddlecloud.server.buckets import Buckets, Quiet, Recent
from paddlecloud.server.gathering import Gathering
from paddlecloud.server.metrics import Metrics
from paddlecloud.server.searches import Searches
from paddlecloud.server.settings import Settings
from paddlecloud.server.speaking import Speaking
from paddlecloud.server.standings import Standings
from paddlecloud.stores.base import Store
from paddlecloud.stores.logs import LogStore

Topic = tuple[str, str]
Heard = tuple[Topic | None, object]
"""What was told, and the news that came with it."""
ANYTHING: Heard = (None, None)
Take = Callable[[Heard], bool]
"""Deals with something heard while its waiter sleeps; False: the waiter has to wake up for it."""
WOKEN_AT_ONCE = 128
"""Many: it is quicker to prepare a hundred and to send to all of them than to take turns."""
MOST_HEARD = 16
"""Notes that are kept for a waiter that is busy with something else."""
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


class Hub:
    """Wake-ups by topic, for coroutines (`waiter`) and for loop threads (`bell`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._waiters: dict[Topic, set[Waiter]] = {}
        self._bells: dict[str, threading.Event] = {}
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be called on the thread of this loop."""
        self._loop = loop
        self._thread = threading.get_ident()

    def bell(self, channel: str) -> threading.Event:
        """The event that every note on `channel` sets, whatever its payload."""
        with self._lock:
            return self._bells.setdefault(channel, threading.Event())

    def waiter(self, *topics: Topic, take: Take | None = None) -> Waiter:
        return Waiter(self, topics, take)

    def awaits(self, channel: str, payload: str) -> bool:
        """Whether anybody waits for this now: is it worth bringing news along?"""
        return (channel, payload) in self._waiters

    def tell(self, channel: str, payload: str, news: object = None) -> None:
        """Wake whoever waits for (channel, payload). Called from any thread."""
        if channel == EVERYTHING:
            self._wake_all()
            return
        bell = self._bells.get(channel)
        if bell is not None:
            bell.set()
        topic = (channel, payload)
        with self._lock:
            waiters = tuple(self._waiters.get(topic, ()))
        self._ring(waiters, (topic, news))

    def close(self) -> None:
        """Let every waiter and loop return: the server is going down."""
        self.closed = True
        self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            waiters = tuple({waiter for group in self._waiters.values() for waiter in group})
            bells = tuple(self._bells.values())
        for bell in bells:
            bell.set()
        self._ring(waiters, ANYTHING)

    def _ring(self, waiters: tuple[Waiter, ...], heard: Heard) -> None:
        if not waiters or self._loop is None:
            return
        if threading.get_ident() == self._thread:
            _ring_all(self._loop, waiters, heard)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_ring_all, self._loop, waiters, heard)


class Waiter:
    """Registers first and waits later, so that what happens in between is not missed.

    But for entering and leaving it lives in the event loop, and a wake-up costs it no task: there
    may be hundreds of them behind one line of a log.
    """

    __slots__ = ("_hub", "_rung", "_sleep", "_take", "_topics", "heard")

    def __init__(self, hub: Hub, topics: tuple[Topic, ...], take: Take | None = None) -> None:
        self._hub = hub
        self._topics = topics
        self._take = take
        self._rung: list[Heard] = []
        self._sleep: asyncio.Future[None] | None = None
        self.heard: list[Heard] = []
        """What woke the last `wait`, in order; ANYTHING stands for what there was no room for."""

    def __enter__(self) -> Waiter:
        with self._hub._lock:
            for topic in self._topics:
                self._hub._waiters.setdefault(topic, set()).add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        with self._hub._lock:
            for topic in self._topics:
                group = self._hub._waiters.get(topic, set())
                group.discard(self)
                if not group:
                    self._hub._waiters.pop(topic, None)

    async def wait(self, seconds: float) -> bool:
        """True if something happened within `seconds`."""
        if self._hub.closed:
            self.heard = [ANYTHING]
            return True
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._sleep = loop.create_future()
            timer = loop.call_later(seconds, _end, self._sleep)
            try:
                await self._sleep
            finally:
                timer.cancel()
                self._sleep = None
        self.heard, self._rung = self._rung, []
        return bool(self.heard)

    def ring(self, heard: Heard) -> None:
        """In the event loop: something happened."""
        sleep = self._sleep
        if sleep is not None and self._take is not None and not sleep.done() and self._take(heard):
            return
        if len(self._rung) >= MOST_HEARD:
            self._rung = [ANYTHING]
        else:
            self._rung.append(heard)
        if sleep is not None:
            _end(sleep)


def _ring_all(
    loop: asyncio.AbstractEventLoop, waiters: tuple[Waiter, ...], heard: Heard, begin: int = 0
) -> None:
    """A few in each turn of the loop: what they write goes out at the end of a turn, and other
    requests get their own."""
    end = begin + WOKEN_AT_ONCE
    for waiter in waiters[begin:end]:
        waiter.ring(heard)
    if end < len(waiters):
        loop.call_soon(_ring_all, loop, waiters, heard, end)


def _end(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)


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
    uploads: OwnerLocks = field(default_factory=OwnerLocks)
    """Held while an owner's contents are named by a snapshot, and while unnamed ones go."""
    arriving: Uploads = field(default_factory=Uploads)
    """Contents that come in parts."""
    digests: Recent[Mapping[str, int]] = field(default_factory=Recent)
    """Contents of snapshots and their sizes, in order."""
    tags: Recent[Tags] = field(default_factory=Recent)
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
    peers_told: dict[str, list[str]] = field(default_factory=dict)
    """What each agent was told of that last, by this server."""
    log_moves: Lock = field(default_factory=threading.Lock)
    """Held while a log of a job that may be tried again is written, and while it is moved."""
    set_aside: dict[tuple[str, int], bool] = field(default_factory=dict)
    """Attempts by job and number whose log files in a bucket go aside; True: they have gone."""
    tell_of_log: Callable[[str], None] = lambda job_id: None
    """Tells other servers that the log of a job has grown; returns at once."""
    choosers: Choosers = field(default_factory=Choosers)
    """Who wants to be told of what happens to their jobs."""
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
