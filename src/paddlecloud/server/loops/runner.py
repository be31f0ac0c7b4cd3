"""Runs the loops in threads: woken by a notification or after a while, on one server at a time.

A loop holds a lease in the database while it works, so that of several servers on one database only
one plans. Every write of the loop checks the lease in the same transaction: a server that was
suspended past the end of its lease cannot overwrite the work of the next one. A lease that is not
renewed is taken over after its time, by the clock of the server that waits for it. What a tick
raises is logged and the loop goes on: the next tick sees the same facts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from paddlecloud.db.engine.base import Listener, Tx
from paddlecloud.db.tables import leases
from paddlecloud.db.tables.leases import Held
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry
from paddlecloud.server.deps import Deps

log = logging.getLogger(__name__)
LEASE = timedelta(seconds=10)
"""How long a loop stands still when its server dies. A tick is much shorter; one that takes longer
loses its lease to another server and cannot write any more."""
ASK_AGAIN = 2.0
"""Seconds between two checks of a lease that another server holds."""
NOT_BEFORE = 0.25
"""Seconds for which such a check is valid, however often the loop is woken."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Loop:
    name: str
    tick: Callable[[Deps, datetime], float | None]
    """May return in how many seconds it wants to be called again, if that is sooner than usual."""
    every: timedelta
    """How long it sleeps without a notification."""
    channel: str | None = None
    """Notifications on it wake the loop at once."""
    lease: timedelta = LEASE
    """How long it is held without being renewed: longer than a tick takes."""
    leased: bool = True
    """False: every server runs it."""


class Runner:
    def __init__(self, deps: Deps, loops: tuple[Loop, ...]) -> None:
        self._deps = deps
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=f"loop-{loop.name}", daemon=True)
            for loop in loops
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask every loop to end after its current tick, and wait for that."""
        self._stop.set()
        self._deps.hub.close()
        for thread in self._threads:
            if thread.ident is not None:  # not started if the server failed before
                thread.join(timeout=5)

    def _run(self, loop: Loop) -> None:
        wake_event = self._deps.hub.wake_event(loop.channel or loop.name)
        leased = Leased(self._deps, f"loop-{loop.name}", loop.lease)
        deps = replace(self._deps, db=leased) if loop.leased else self._deps
        while not self._stop.is_set():
            wake_event.clear()
            pause = loop.every.total_seconds()
            try:
                if not loop.leased or leased.held():
                    soon = loop.tick(deps, deps.clock())
                    pause = pause if soon is None else min(pause, max(0.0, soon))
                else:
                    pause = min(pause, ASK_AGAIN)
            except Retry as error:  # a full disk, or no connection to the database
                log.warning("loop %s failed; it goes on: %s", loop.name, error)
                self._stop.wait(0.2)
            except Exception:
                log.exception("loop %s failed; it goes on", loop.name)
                self._stop.wait(0.2)
            wake_event.wait(pause)
        leased.give_back()


class Leased:
    """The database as a loop sees it while its lease is good."""

    def __init__(self, deps: Deps, name: str, lease: timedelta = LEASE) -> None:
        self._db, self._clock = deps.db, deps.clock
        self._name, self._holder, self._lease = name, deps.boot, lease
        self._fence: int | None = None
        self._renew_at = 0.0
        self._others: tuple[Held, float] | None = None
        """The lease of another server, and since when it has not changed."""

    @property
    def shared(self) -> bool:
        return self._db.shared

    def held(self) -> bool:
        """Whether this server may run the loop now; takes the lease, or renews it in time.

        While another server holds it that costs a read only, which delays no writes.
        """
        if time.monotonic() > self._renew_at:
            dead = None
            if self._fence is None and (held := self._db.read(self._held_by_others)) is not None:
                # A notification wakes the holder too; this server need not check each time.
                self._renew_at = time.monotonic() + NOT_BEFORE
                if not self._is_dead(held):
                    return False
                dead = held
            self._fence = self._db.write(partial(self._take, dead=dead), durable=False)
            if self._fence is not None:
                self._renew_at = time.monotonic() + self._lease.total_seconds() / 3
        return self._fence is not None

    def give_back(self) -> None:
        """Let the next server begin at once."""
        fence = self._fence
        if fence is not None:
            with suppress(PaddleCloudError):
                self._db.write(
                    lambda tx: leases.release_lease(tx, self._name, self._holder, fence),
                    durable=False,
                )

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return self._db.write(lambda tx: self._guarded(tx, work), durable=durable)

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        return self._db.submit(lambda tx: self._guarded(tx, work), durable=durable)

    def read(self, work: Callable[[Tx], T]) -> T:
        return self._db.read(work)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._db.subscribe(listener)

    def close(self) -> None:
        """The database is not the loop's to close."""

    def _guarded(self, tx: Tx, work: Callable[[Tx], T]) -> T:
        fence = self._fence
        if fence is not None and leases.holds_lease(tx, self._name, fence, self._clock()):
            return work(tx)
        taken = None if fence is None else self._take(tx)
        if fence is None or taken is None or taken > fence + 1:
            # Lost until the next tick takes it. One fence more is a lapse without another holder.
            self._fence, self._renew_at = None, 0.0
            raise Conflict("lease_lost", name=self._name)
        self._fence = taken
        return work(tx)

    def _held_by_others(self, tx: Tx) -> Held | None:
        return leases.held_by_others(tx, self._name, self._holder, self._clock())

    def _is_dead(self, held: Held) -> bool:
        """Whether it was not renewed for as long as it lasts, by the monotonic clock: its own end
        may lie hours ahead if the wall clock was set back or its holder's is fast."""
        if self._others is None or self._others[0] != held:
            self._others = held, time.monotonic()
        return time.monotonic() - self._others[1] > self._lease.total_seconds()

    def _take(self, tx: Tx, dead: Held | None = None) -> int | None:
        now = self._clock()
        return leases.take_lease(tx, self._name, self._holder, now, self._lease, dead=dead)
