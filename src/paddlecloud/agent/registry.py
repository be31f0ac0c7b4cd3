"""What the agent knows of each of its replicas, in memory. The truth lies in their directories.

Everything here can be rebuilt from that directory and from the server's answers. The order on disk
is the sign that the files are laid out and a monitor may have been asked for; a directory without
it was given up half way, before anything ran, and may be deleted.
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
    """Its files are being laid out, or it waits for that."""
    LAUNCHED = "launched"
    """A monitor was asked for; the records tell what became of it."""
    OVER = "over"
    """Nothing of it runs; the server does not know everything yet."""
    DONE = "done"
    """The server has all of it."""


@dataclass(frozen=True, kw_only=True)
class StopWish:
    grace: float
    cause: str


class Tracked:
    """One replica. `lock` guards its steps from stage to stage, and a stop against them; the other
    fields have one writer each: the thread named in the comment.
    """

    def __init__(
        self, *, id: str, fence: int, root: Path, run: Run | None, acked: int | None
    ) -> None:
        self.id = id
        self.fence = fence
        """Below 0: an earlier agent's, of which only the directory is known. Nothing is said of it
        before an order names it."""
        self.root = root
        self._place = str(root)
        self.run = run
        """What the order says of the run; None once it is written down."""
        self.lock = threading.Lock()
        self.stage = Stage.ORDERED
        self.queued = False
        self.named = 0
        """The round of orders in which the server last named it."""
        self.ordered_at = 0.0
        self.stop: StopWish | None = None
        self.stop_told = False
        self.forget = False
        """Delete it as soon as it is over: the server wants nothing more of it."""
        # Starter.
        self.launched_at = 0.0
        self.just_launched = False
        """Its notices may have come before it counted as launched: it is looked at once more."""
        self.launches = 0
        self.asked = False
        """A monitor may have been asked for, by us or by an earlier agent: only the records may
        say from now on that it does not run."""
        self.pause = 0.0
        """Seconds before the next try to start it."""
        self.hurried = False
        """What it waits for may have come since its last try began."""
        self.trouble: dict[str, Any] | None = None
        """Why the last try failed, as code and values of a sentence."""
        self.made_room = False
        """It found no space, and what was cached went for it."""
        self.stumbles = 0
        """How often the server made a mistake about its files."""
        self.environment: str | None = None
        """Where the packages of its `--requirements` are installed, once they are."""
        # Starter before it runs, shipper after; the reporter tells it if it lasts.
        self.held: dict[str, Any] | None = None
        """What keeps it from going on, as code and values of a sentence."""
        self.held_since = 0.0
        self.held_told = 0.0
        self.held_known = False
        """The server was told, and not yet that it goes on."""
        # Reporter.
        self.started: dict[str, Any] | None = None
        self.started_noticed = 0.0
        self.started_told = False
        self.acked = acked
        """Log bytes that the server has; None after a restart, until it says so."""
        self.dirty = False
        self.full_since: float | None = None
        """The server has no room for the rest of its log since then (monotonic), and it is over."""
        self.unread_since: float | None = None
        """The rest of its log cannot be read since then (monotonic), and it is over."""
        self.log_given_up = False
        """What the server has of its log by now is all that it gets."""
        self.sent_at = 0.0
        self.hold_until = 0.0
        self.watch: int | None = None
        self.exit: records.ExitRecord | None = None
        self.all_ended = False
        """Of one whose monitor died: no process of it can be running."""
        self.cleared = False
        self.reaping = False
        """Its monitor or its records are gone; the janitor ends what is left of it."""
        # Sampler; the reporter takes `usage` away when it tells it.
        self.usage: dict[str, Any] | None = None
        """What it uses, if there is something new to say of it."""
        self.peak_memory = 0
        self.direct = False
        """The server gives out addresses in a bucket for its files."""
        self.patience: float | None = None
        """Seconds that what it left waits for a store that takes nothing; None: for ever."""
        self.own_bucket = False
        """Its outputs go to the bucket of its owner."""
        # Shipper.
        self.shipped = False
        self.shipping = False
        self.ship_again = False
        """Asked for while a thread was at it."""

    @property
    def ordered(self) -> Run:
        """What it is to run. Retry where no order says it: it comes again."""
        if self.run is None:
            raise Retry("replica_not_started", replica=self.id, reason="its order is gone")
        return self.run

    @property
    def wanted(self) -> bool:
        """Whether nobody asked for its end."""
        return self.stop is None and not self.forget

    @property
    def alive(self) -> bool:
        return self.stage in (Stage.ORDERED, Stage.LAUNCHED)

    def place(self, name: str) -> str:
        """The path of a file of it, as text: a Path costs more than the call that it is for."""
        return f"{self._place}/{name}"

    def hold(self, held: dict[str, Any], *, now: float) -> None:
        """It cannot go on for now (monotonic seconds); None in `held` when it can again."""
        if self.held is None:
            self.held_since = now
        self.held = held

    def end(self, exit: records.ExitRecord | None) -> None:
        """Nothing of it runs any more; None: nobody knows how it ended."""
        with self.lock:
            self.exit = exit
            self.stage = Stage.OVER
            self.dirty = True


class Book:
    """Every replica of this agent, by id. Safe for several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._replicas: dict[str, Tracked] = {}
        self._active: dict[str, Tracked] = {}
        """Those of which there is something left to do, but to wait until they may be deleted."""
        self.watched: dict[int, Tracked] = {}
        """By the number that inotify gave to its log."""

    def root(self, replica: str) -> Path:
        """Where a replica lives. Its id becomes a name in our directory, so it must be one."""
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

    def lay_to_rest(self, tracked: Tracked) -> None:
        """The server has everything of it: nothing is to be done until it may be deleted."""
        with self._lock:
            tracked.stage = Stage.DONE
            if not tracked.forget:
                self._active.pop(tracked.id, None)

    def may_be_forgotten(self, tracked: Tracked) -> None:
        """The server wants nothing more of it: it is deleted as soon as it is over."""
        with self._lock:
            tracked.forget = True
            self._active[tracked.id] = tracked

    def all(self) -> list[Tracked]:
        with self._lock:
            return list(self._replicas.values())

    def active(self) -> list[Tracked]:
        with self._lock:
            return list(self._active.values())

    def runs(self) -> bool:
        """Whether anything runs, or will."""
        return any(tracked.alive for tracked in self.active())

    def busy(self) -> bool:
        """Whether anything runs, or is not known to the server yet."""
        return any(tracked.stage is not Stage.DONE for tracked in self.active())


def write_order(tracked: Tracked, launch: records.Launch) -> None:
    """From now on a monitor may be asked for; a later agent reads it back with `read_order`."""
    ours = {
        "fence": tracked.fence,
        "direct": tracked.direct,
        "own_bucket": tracked.own_bucket,
        "patience": tracked.patience,
    }
    records.write(tracked.root / records.ORDER, {**launch, **ours})


def read_order(root: Path) -> Tracked | None:
    """The replica that an earlier agent left in `root`; None when nothing of it ever ran.

    One whose order cannot be read, or is gone while it has begun, is known by its name alone.
    """
    order, ours = records.read(root / records.ORDER), {}
    if isinstance(order, dict) and order.get("replica_id") == root.name:
        fence, ours = int(order.get("fence", 0)), order
    elif any((root / name).exists() for name in (records.ORDER, records.RUN, records.EXIT)):
        fence = -1
    else:
        return None
    tracked = Tracked(id=root.name, fence=fence, root=root, run=None, acked=None)
    # What is left of it is sent before the server says anything.
    tracked.direct = bool(ours.get("direct"))
    tracked.own_bucket = bool(ours.get("own_bucket"))
    tracked.patience = ours.get("patience")
    return tracked


def not_run(cause: str, *, now: float, message: str = "", hint: str = "") -> records.ExitRecord:
    """The end of a replica whose command never ran."""
    return {
        "cause": cause,
        "exit_code": None,
        "signal": None,
        "oom": False,
        "message": message,
        "start_errno": None,
        "started_at": None,
        "finished_at": now,
        "ran": None,
        "stop_requested_at": now if cause in records.ASKED_CAUSES else None,
        "max_rss": None,
        "cpu_seconds": None,
        "enforced": {},
        "hint": hint,
    }
