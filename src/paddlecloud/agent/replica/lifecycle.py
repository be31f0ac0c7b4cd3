"""What is to be done with a replica: by the server's orders, and by what became of it.

Every step may be taken twice, and in any order that the network makes of them: orders come again
after a restart, a stop may overtake its start, a replica may be over before it is told to stop.
The `Janitor` does what may take long (a million files, a process that is slow to die) in a thread
of its own. A directory leaves the agent's sight by one rename before it is deleted, so a crash in
between leaves rubbish in the trash and never half a replica.
"""

from __future__ import annotations

import os
import queue
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.registry import Stage, StopWish, Tracked, read_order
from paddlecloud.agent.replica import inspect, notices, records
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.replica.start import request_stop
from paddlecloud.agent.sandbox import tmpdir, workspace
from paddlecloud.agent.sandbox.tmpdir import spread
from paddlecloud.agent.server_link import orders

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.outputs.shipper import Shippers
    from paddlecloud.agent.replica.start import Starters

#: A monitor that has not come up after this many seconds is asked for again.
MONITOR_SECONDS = 5.0
#: Rubbish is deleted when nothing was thrown away for so long, in seconds: jobs come first.
_QUIET = 1.0
#: But after this many seconds in any case.
_LONGEST_KEPT = 10.0
_REAP_AGAIN = 0.5
#: Seconds between two looks at what could not be sent, while there is some.
_UNSENT = 60.0


class Care:
    def __init__(
        self, site: Site, starters: Starters, shippers: Shippers, janitor: Janitor
    ) -> None:
        self._site = site
        self._starters = starters
        self._shippers = shippers
        self._janitor = janitor
        self._round = 0
        self._heard = 0
        """The last round that was heard to its end."""

    def adopt(self) -> int:
        """Take over what an earlier agent left: running, over, or never begun. How many.

        One directory that cannot be understood must not keep the others from being adopted.
        """
        directory = self._site.directory / "replicas"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        spread(directory)
        for root in sorted(directory.iterdir()):
            try:
                self._adopt(root)
            except Exception:  # noqa: BLE001 - logged; the others, and the agent, go on
                self._site.journal.failure("cannot be adopted", root.name)
        return len(self._site.book.all())

    def begin_round(self) -> None:
        """From now on the server names everything that it still wants of this agent."""
        self._round += 1

    def end_round(self) -> None:
        """It has; what it did not name is let go of, now or when it is over."""
        self._heard = self._round
        for tracked in self._site.book.all():
            unknown = tracked.stage is Stage.ORDERED or tracked.fence < 0
            if unknown and tracked.named < self._heard:
                self.expel(tracked)
            else:
                self._let_go(tracked)

    def obey(self, order: dict[str, Any]) -> None:
        """Carry out one order of the server."""
        replica, want = str(order["replica"]), order["want"]
        if want not in ("run", "stop", "forget"):
            raise ValueError(f"not a thing to want: {want!r}")
        tracked = self._site.book.get(replica)
        if want == "forget":
            if tracked is not None:
                self._forget(tracked)
            return
        if tracked is None:
            tracked = self._site.book.add(self._new(order))
        tracked.named = self._round
        self._fill_in(tracked, order)
        if want == "stop":
            self._stop(tracked, StopWish(grace=float(order["grace"]), cause=str(order["cause"])))
        if tracked.stage is Stage.ORDERED and not tracked.queued:
            self._starters.put(tracked)

    def look(self, tracked: Tracked, now: float) -> None:
        """Learn from its records what became of it (`now` is monotonic). One thread alone looks."""
        if tracked.stage is Stage.LAUNCHED and not tracked.reaping:
            self._learn(tracked, inspect.inspect(tracked.root), now)
        if tracked.stop is not None and not tracked.stop_told and tracked.stage is Stage.LAUNCHED:
            self._try_to_stop(tracked, tracked.stop)
        if tracked.forget and not tracked.alive:
            self._janitor.forget(tracked)

    def finished(self, tracked: Tracked) -> None:
        """The server has everything of it."""
        self._site.book.lay_to_rest(tracked)
        but = " but what was not sent" if unsent.was_left(tracked) else ""
        self._site.journal.info(f"the server has all of it{but}", tracked.id)
        self._let_go(tracked)

    def make_room(self) -> None:
        """The server has no space, perhaps for what lies here: keep only what it has to get."""
        for tracked in self._site.book.all():
            if tracked.stage is Stage.OVER and not tracked.cleared:
                tracked.cleared = True
                self._janitor.make_room(tracked)

    def expel(self, tracked: Tracked) -> None:
        """The server does not want it any more: end it at once, then delete it."""
        if tracked.alive and not tracked.forget:
            self._site.journal.warning("the server does not want it; it is ended", tracked.id)
        self._site.book.may_be_forgotten(tracked)
        if tracked.alive:
            self._stop(tracked, StopWish(grace=0.0, cause=records.CAUSE_STOPPED))
        if tracked.stage is Stage.ORDERED and not tracked.queued:
            self._starters.put(tracked)
        self._site.wake_reporter()

    def _let_go(self, tracked: Tracked) -> None:
        if tracked.stage is Stage.DONE and tracked.named < self._heard:
            self._forget(tracked)

    def _new(self, order: dict[str, Any]) -> Tracked:
        root = self._site.book.root(str(order["replica"]))
        tracked = Tracked(id=root.name, fence=int(order["fence"]), root=root, run=None, acked=0)
        run = orders.run_of(order, self._site.grace)
        if run is not None and run["began"]:
            # It ran here, and its records are gone. It must not run a second time.
            tracked.acked = None
            self._lose(tracked, "it ran before, but nothing is left of it here")
        return tracked

    def _fill_in(self, tracked: Tracked, order: dict[str, Any]) -> None:
        before, tracked.fence = tracked.fence, max(tracked.fence, int(order["fence"]))
        if before < 0:
            # Its own order is lost: until now nothing could be told of it, whatever there was.
            self._site.wake_reporter()
        # The grace of an order is a stop's; of its wall time the monitor thinks alone.
        run = orders.run_of(order, self._site.grace)
        if run is None:
            return
        tracked.direct = tracked.direct or run["direct"]
        with_bucket = run["patience"]
        tracked.own_bucket = with_bucket is not None
        tracked.patience = run["store_patience"] if with_bucket is None else with_bucket
        if tracked.stage is Stage.ORDERED and tracked.run is None:
            tracked.run = run

    def _adopt(self, root: Path) -> None:
        now = time.monotonic()
        tracked = read_order(root)
        if tracked is None:
            self._janitor.discard(root)
            return
        tracked.asked = True
        self._site.book.add(tracked)
        if tracked.fence >= 0 and inspect.inspect(root).phase is Phase.NOT_STARTED:
            # The order comes again and starts it; a monitor on its way is found by then.
            return
        tracked.stage = Stage.LAUNCHED
        tracked.launched_at = now
        tracked.dirty = True
        with suppress(OSError):
            self._site.watch(tracked)
        self.look(tracked, now)
        self._site.journal.info(f"adopted, {tracked.stage.value}", tracked.id)

    def _forget(self, tracked: Tracked) -> None:
        """The reporter does it. What still runs is ended first: the server gave it up for lost
        while we were away, and nobody else would ever stop it."""
        if tracked.alive:
            self.expel(tracked)
            return
        self._site.book.may_be_forgotten(tracked)
        self._site.wake_reporter()

    def _stop(self, tracked: Tracked, wish: StopWish) -> None:
        with tracked.lock:
            tracked.stop = wish
            tracked.stop_told = False
            launched = tracked.stage is Stage.LAUNCHED
            over = tracked.stage is Stage.OVER
        self._site.journal.info(f"stop within {wish.grace:g} s, {wish.cause}", tracked.id)
        self._starters.hurry(tracked)
        if over:
            self._shippers.hurry(tracked)
        if launched:
            self._try_to_stop(tracked, wish)

    def _try_to_stop(self, tracked: Tracked, wish: StopWish) -> None:
        """Said again at the next look if even the wish cannot be written down."""
        try:
            request_stop(tracked, wish)
        except OSError as error:
            self._site.journal.warning(f"cannot be stopped yet: {error}", tracked.id)

    def _learn(self, tracked: Tracked, observed: inspect.Observed, now: float) -> None:
        if observed.phase is Phase.RUNNING:
            self._started(tracked, observed.pid, observed.started_at, now)
        elif observed.phase is Phase.EXITED:
            run = {} if tracked.started else records.read(tracked.place(records.RUN)) or {}
            self._started(tracked, run.get("pid"), run.get("started_at"), now)
            tracked.end(observed.exit)
            self._shippers.finish(tracked)
        elif observed.phase is Phase.LOST:
            self._started(tracked, observed.pid, observed.started_at, now)
            self._lose(tracked, "its monitor was killed; nobody knows how it ended")
        elif tracked.started or tracked.fence < 0:
            self._lose(tracked, "its records are gone; nobody knows how it ended")
        elif now - tracked.launched_at > MONITOR_SECONDS and not tracked.queued:
            self._launch_again(tracked, now)

    def _launch_again(self, tracked: Tracked, now: float) -> None:
        if not (tracked.root / records.ORDER).exists():
            self._lose(tracked, "its records are gone; nobody knows how it ended")
            return
        self._site.journal.warning("no monitor came up; asking for another", tracked.id)
        tracked.launched_at = now
        self._starters.put(tracked)

    def _lose(self, tracked: Tracked, why: str) -> None:
        """Nobody will ever say how it ended; whatever runs of it is ended before we say so."""
        tracked.stage = Stage.LAUNCHED
        tracked.reaping = True
        self._site.journal.warning(why, tracked.id)
        self._janitor.reap(tracked)

    def _started(
        self, tracked: Tracked, pid: int | None, started_at: float | None, now: float
    ) -> None:
        if tracked.started is None and pid is not None and started_at is not None:
            tracked.started = {"pid": pid, "at": started_at}
            tracked.started_noticed = now
            self._shippers.follow(tracked)


class Janitor:
    def __init__(self, site: Site, shippers: Shippers) -> None:
        self._site = site
        self._shippers = shippers
        self._trash = site.directory / "trash"
        self._queue: queue.SimpleQueue[Path | Tracked | None] = queue.SimpleQueue()
        self._rubbish: list[str] = []
        self._kept_since = 0.0
        self._count = 0
        self._unsent_at = 0.0
        self._some_unsent = False

    def discard(self, root: Path) -> None:
        """Delete a directory; it is out of the way when this returns."""
        tmpdir.forget(root)
        self._count += 1
        target = self._trash / f"{root.name}.{self._site.boot}.{self._count}"
        try:
            root.rename(target)
        except FileNotFoundError:
            if not root.exists():
                return
            target = self._discard_again(root, target)
        except OSError:
            # No space for a name: then the deletion is what makes some.
            target = root
        self._queue.put(target)

    def forget(self, tracked: Tracked) -> None:
        """Delete a replica that is over and that the server wants nothing more of."""
        self._site.book.remove(tracked.id)
        self._site.unwatch(tracked)
        self.discard(tracked.root)

    def make_room(self, tracked: Tracked) -> None:
        """Delete what nobody will ask for of a replica that is over."""
        for name in workspace.DISPOSABLE:
            self._queue.put(tracked.root / name)

    def reap(self, tracked: Tracked) -> None:
        """End what is left of a replica whose monitor died, then call it lost."""
        self._queue.put(tracked)

    def close(self) -> None:
        self._queue.put(None)

    def work(self) -> None:
        """The body of the thread."""
        with suppress(OSError):
            self._rubbish += [str(left) for left in self._trash.iterdir()]
        self._site.guarded("the janitor", self._turn)

    def _discard_again(self, root: Path, target: Path) -> Path:
        try:
            self._trash.mkdir(exist_ok=True, mode=0o700)
            root.rename(target)
        except OSError:
            return root
        return target

    def _turn(self) -> None:
        now = time.monotonic()
        if self._rubbish and now - self._kept_since > _LONGEST_KEPT:
            self._empty()
            return
        try:
            task = self._queue.get(timeout=self._patience(now))
        except queue.Empty:
            self._empty()
            return
        if isinstance(task, os.PathLike):
            if not self._rubbish:
                self._kept_since = now
            self._rubbish.append(str(task))
        elif task is not None:
            self._reap(task)

    def _patience(self, now: float) -> float | None:
        """Until when to wait for something to do; an agent that has nothing to do sleeps."""
        if now >= self._unsent_at or not self._some_unsent:
            self._unsent_at = now + _UNSENT
            self._some_unsent = unsent.bound(self._site, now=time.time())
        if self._rubbish:
            return _QUIET
        return _UNSENT if self._some_unsent else None

    def _empty(self) -> None:
        rubbish, self._rubbish = self._rubbish, []
        for path in rubbish:
            if self._site.stopping.is_set():
                return
            try:
                workspace.remove(path)
            except OSError as error:
                self._site.journal.warning(f"{path} cannot be deleted: {error}")

    def _reap(self, tracked: Tracked) -> None:
        reaped = None
        try:
            reaped = inspect.reap_leftovers(tracked.root, self._site.spawner.kill_orphans)
        finally:
            if reaped is None or reaped.left:
                self._queue.put(tracked)
        if reaped.left:
            pids = ", ".join(map(str, reaped.left))
            self._site.journal.warning(f"processes {pids} do not end; trying again", tracked.id)
            tracked.hold(notices.of("replica_not_ending", {"pids": pids}), now=time.monotonic())
            self._site.wake_reporter()
            self._site.stopping.wait(_REAP_AGAIN)
            return
        if not reaped.all_ended:
            text = "processes that left its process tree may still be running"
            self._site.journal.warning(text, tracked.id)
        tracked.held = None
        tracked.all_ended = reaped.all_ended
        tracked.end(None)
        self._shippers.finish(tracked)
        self._site.wake_reporter()
