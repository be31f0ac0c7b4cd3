"""Tunnels that wait for an agent, offers of tunnels to agents, and how many each user has.

All in memory: a tunnel ends with any of its parties, and an offer that is lost costs a failed
attempt. The offers of other servers on the same database come by notifications.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from paddlecloud.model.errors import NotFound, PaddleCloudError, TooMany
from paddlecloud.server.caches import TtlCache
from paddlecloud.server.schemas.agent import TunnelOrder

if TYPE_CHECKING:
    from paddlecloud.server.http.auth import Caller
    from paddlecloud.server.http.tunnel_relay import TunnelEnd

CHANNEL = "tunnel"
"""Of notifications with offers."""
MOST_OF_USER, MOST_OF_ALL = 128, 512
"""Tunnels at once. One may hold half a megabyte of memory while its reader is slow."""
OFFER_SECONDS = 15.0
"""How long a client waits for the agent."""
AUDIT_EVERY = timedelta(minutes=10)
"""A browser opens many connections: those of one key to one port are recorded this often."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tunnel that the agent of `node` has to open."""

    node: str
    order: TunnelOrder


@dataclass(kw_only=True, eq=False)
class PendingTunnel:
    """A client that waits for the agent."""

    offer: Offer
    caller: Caller
    end: tuple[Caller, TunnelEnd] | None = None
    """The agent with its connection."""
    refusal: PaddleCloudError | None = None

    @property
    def id(self) -> str:
        return self.offer.order.id

    @property
    def user(self) -> str:
        return self.caller.user_id


@dataclass(kw_only=True)
class Tunnels:
    """The tunnels of this server. Thread-safe."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _offers: dict[str, dict[str, tuple[TunnelOrder, float]]] = field(default_factory=dict)
    """Orders by node and id with their end (monotonic), also of other servers."""
    _pending: dict[str, PendingTunnel] = field(default_factory=dict)
    _open: Counter[str] = field(default_factory=Counter)
    """Tunnels by user, including those that wait for an agent."""
    audited: TtlCache[bool] = field(default_factory=lambda: TtlCache(AUDIT_EVERY))

    def begin(self, pending: PendingTunnel) -> None:
        """Count it; TooMany if the user, or all together, have too many."""
        with self._lock:
            count, limit = self._open[pending.user], MOST_OF_USER
            if count < limit:
                count, limit = self._open.total(), MOST_OF_ALL
            if count >= limit:
                raise TooMany("tunnel_many", count=count, limit=limit)
            self._open[pending.user] += 1
            self._pending[pending.id] = pending

    def stop_waiting(self, pending: PendingTunnel) -> None:
        """The agent has connected or refused, or the client is gone."""
        with self._lock:
            self._pending.pop(pending.id, None)
            self._offers.get(pending.offer.node, {}).pop(pending.id, None)

    def end(self, pending: PendingTunnel) -> None:
        """The tunnel has ended, or never began."""
        self.stop_waiting(pending)
        with self._lock:
            self._open[pending.user] -= 1
            if not self._open[pending.user]:
                del self._open[pending.user]

    def find(self, node: str, tunnel_id: str) -> PendingTunnel:
        """A tunnel that waits for the agent of this node."""
        found = self._pending.get(tunnel_id)
        if found is None or found.offer.node != node or found.end is not None:
            raise NotFound("tunnel_unknown", tunnel=tunnel_id[:100])
        return found

    def add(self, offer: Offer) -> None:
        """Keep an offer for the next poll of its agent."""
        now = time.monotonic()
        with self._lock:
            for node, orders in [*self._offers.items()]:
                live = {key: each for key, each in orders.items() if each[1] > now}
                self._offers[node] = live
                if not live:
                    del self._offers[node]
            orders = self._offers.setdefault(offer.node, {})
            orders[offer.order.id] = offer.order, now + OFFER_SECONDS

    def orders_for(self, node: str, known: Collection[str]) -> list[TunnelOrder]:
        """The offers for an agent that it does not know."""
        offers = self._offers.get(node)
        if not offers:
            return []
        now = time.monotonic()
        with self._lock:
            return [
                order for order, until in offers.values() if until > now and order.id not in known
            ]

    def receive(self, payload: str) -> str:
        """Keep an offer of any server; returns its node."""
        try:
            offer = msgspec.json.decode(payload, type=Offer)
        except msgspec.MsgspecError:  # of another version
            return ""
        self.add(offer)
        return offer.node
