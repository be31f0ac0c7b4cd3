"""The replicas of this agent in memory: their state, and a registry by id.

Everything here can be rebuilt from their directories and from the server's responses. A directory
with an order has all of its files, and a supervisor may have been started; one without was given up
before anything ran, and may be deleted.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.replica import records
from paddlecloud.model.errors import Retry

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.server_link.orders import Run


class Stage(enum.Enum):
    """A replica only moves down this list."""

    ORDERED = "ordered"
    """Its files are being prepared, or it waits for that."""
    LAUNCHED = "launched"
    """A supervisor was started; the records have its state."""
    OVER = "over"
    """Nothing of it runs; the server does not have everything yet."""
    DONE = "done"
    """The server has all of it."""


@dataclass(frozen=True, kw_only=True)
class StopRequest:
    grace: float
    cause: str


class Tracked:
    """One replica. `lock` guards its stage and its stop; every other field has one writer, the
    thread that the comment names."""

    def __init__(
        self, *, id: str, fence: int, root: Path, run: Run | None, acked: int | None
    ) -> None:
        self.id = id
        self.fence = fence
        """Below 0: an earlier agent's, of which only the directory is known. Nothing is reported of
        it before an order lists it."""
        self.root = root
        self._root_text = str(root)
        self.run = run
        """The run of its order; None when that is on disk."""
        self.lock = threading.Lock()
        self.stage = Stage.ORDERED
        self.queued = False
        self.listed_round = 0
        """The last round of orders that listed it."""
        self.ordered_at = 0.0
        self.stop: StopRequest | None = None
        self.stop_sent = False
        self.released = False
        """Delete it when it is over: the server does not need it any more."""
        # Starter.
        self.launched_at = 0.0
        self.just_launched = False
        """Its notices may have come before it was LAUNCHED: it is inspected once more."""
        self.launches = 0
        self.spawned = False
        """A supervisor may have been started, also by an earlier agent: from now on only the
        records can prove that it does not run."""
        self.pause = 0.0
        """Seconds before the next try to start."""
        self.hurried = False
        """What it waits for may have come since its last try started."""
        self.last_error: dict[str, Any] | None = None
        """Why the last try failed, as code and values of a message."""
        self.freed_space = False
        """It found no space, and the cache was pruned for it."""
        self.internal_errors = 0
        """How often the server had an internal error with its files."""
        self.environment: str | None = None
        """The Python environment of its `--requirements`, once that is installed."""
        # Starter before it runs, shipper after; the reporter reports it if it lasts.
        self.held: dict[str, Any] | None = None
        """What it waits for, as code and values of a message."""
        self.held_since = 0.0
        self.held_reported_at = 0.0
        self.held_known = False
        """The server knows that it waits, and not yet that it goes on."""
        # Reporter.
        self.started: dict[str, Any] | None = None
        self.started_noticed = 0.0
        self.started_reported = False
        self.acked = acked
        """Log bytes that the server has; None after a restart, until a response has it."""
        self.dirty = False
        self.log_unread_since: float | None = None
        """It is over, and the rest of its log cannot be read since then (monotonic)."""
        self.log_unstored_since: float | None = None
        """It is over, and the rest of its log cannot be stored since then (monotonic)."""
        self.log_given_up = False
        """The rest of its log is not sent any more."""
        self.sent_at = 0.0
        self.hold_until = 0.0
        self.watch: int | None = None
        self.exit: records.ExitRecord | None = None
        self.all_ended = False
        """Of one whose supervisor died: no process of it can be running."""
        self.cleared = False
        self.reaping = False
        """Its supervisor or its records are gone; `cleanup` ends what is left of it."""
        # Sampler; the reporter clears `usage` when it is reported.
        self.usage: dict[str, Any] | None = None
        """Its resource use, if that has to be reported."""
        self.peak_memory = 0
        self.direct = False
        """The server gives presigned URLs for its files."""
        self.store_timeout: float | None = None
        """Seconds that its outputs wait for a store that takes nothing; None: for ever."""
        self.own_bucket = False
        """Its outputs go to the bucket of its owner."""
        # Shipper.
        self.shipped = False
        self.shipping = False
        self.ship_again = False
        """Requested while a thread was shipping it."""

    @property
    def ordered(self) -> Run:
        """The run of its order. Retry where there is none: the order comes again."""
        if self.run is None:
            raise Retry("replica_not_started", replica=self.id, reason="its order is gone")
        return self.run

    @property
    def wanted(self) -> bool:
        """Whether its end was not requested."""
        return self.stop is None and not self.released

    @property
    def alive(self) -> bool:
        return self.stage in (Stage.ORDERED, Stage.LAUNCHED)

    def path(self, name: str) -> str:
        """The path of one of its files, as a string: a Path costs more than the call it is for."""
        return f"{self._root_text}/{name}"

    def hold(self, held: dict[str, Any], *, now: float) -> None:
        """It has to wait (`now` is monotonic); `held` becomes None when it goes on."""
        if self.held is None:
            self.held_since = now
        self.held = held

    def end(self, exit: records.ExitRecord | None) -> None:
        """Nothing of it runs any more; None: its exit is unknown."""
        with self.lock:
            self.exit = exit
            self.stage = Stage.OVER
            self.dirty = True


class Registry:
    """Every replica of this agent, by id. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._replicas: dict[str, Tracked] = {}
        self._active: dict[str, Tracked] = {}
        """Those with something left to do except waiting until they may be deleted."""
        self.watched: dict[int, Tracked] = {}
        """By the inotify watch of their log."""

    def root(self, replica: str) -> Path:
        """The directory of a replica. Its id becomes a file name, so it must be one."""
        if not replica or "/" in replica or replica.startswith(".") or "\0" in replica:
            raise ValueError(f"not the id of a replica: {replica[:100]!r}")
        return self._directory / replica

    def get(self, replica: str) -> Tracked | None:
        return self._replicas.get(replica)

    def add(self, tracked: Tracked) -> Tracked:
        """`tracked`, or the one that is already known under its id."""
        with self._lock:
            known = self._replicas.setdefault(tracked.id, tracked)
            self._active[known.id] = known
            return known

    def remove(self, replica: str) -> None:
        with self._lock:
            self._replicas.pop(replica, None)
            self._active.pop(replica, None)

    def finish(self, tracked: Tracked) -> None:
        """The server has everything of it: nothing is left to do until it may be deleted."""
        with self._lock:
            tracked.stage = Stage.DONE
            if not tracked.released:
                self._active.pop(tracked.id, None)

    def release(self, tracked: Tracked) -> None:
        """The server does not need it any more: it is deleted when it is over."""
        with self._lock:
            tracked.released = True
            self._active[tracked.id] = tracked

    def all(self) -> list[Tracked]:
        with self._lock:
            return list(self._replicas.values())

    def active(self) -> list[Tracked]:
        with self._lock:
            return list(self._active.values())

    def runs(self) -> bool:
        """Whether any replica runs, or will."""
        return any(tracked.alive for tracked in self.active())

    def busy(self) -> bool:
        """Whether any replica runs, or is not reported completely."""
        return any(tracked.stage is not Stage.DONE for tracked in self.active())


def write_order(tracked: Tracked, launch: records.Launch) -> None:
    """Write the order, before a supervisor is started; a later agent uses `read_order`."""
    ours = {
        "fence": tracked.fence,
        "direct": tracked.direct,
        "own_bucket": tracked.own_bucket,
        "patience": tracked.store_timeout,
    }
    records.write(tracked.root / records.ORDER, {**launch, **ours})


def read_order(root: Path) -> Tracked | None:
    """The replica that an earlier agent left in `root`; None when it never ran.

    Of one whose order cannot be read, or is gone although it ran, only the id is known.
    """
    order, ours = records.read(root / records.ORDER), {}
    if isinstance(order, dict) and order.get("replica_id") == root.name:
        fence, ours = int(order.get("fence", 0)), order
    elif any((root / name).exists() for name in (records.ORDER, records.RUN, records.EXIT)):
        fence = -1
    else:
        return None
    tracked = Tracked(id=root.name, fence=fence, root=root, run=None, acked=None)
    # What is left of it is sent before the server responds.
    tracked.direct = bool(ours.get("direct"))
    tracked.own_bucket = bool(ours.get("own_bucket"))
    tracked.store_timeout = ours.get("patience")
    return tracked
