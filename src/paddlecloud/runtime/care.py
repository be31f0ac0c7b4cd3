"""What is to be done with a replica: by the server's orders, and by what became of it.

Every step may be taken twice, and in any order that the network makes of them: orders come again
after a restart, a stop may overtake its start, a replica may be over before it is told to stop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from paddlecloud.runtime import control, record
from paddlecloud.runtime.book import Stage, StopWish, Tracked, read_order
from paddlecloud.runtime.control import Phase
from paddlecloud.runtime.starting import request_stop

if TYPE_CHECKING:
    from paddlecloud.runtime.clearing import Janitor
    from paddlecloud.runtime.shared import Site
    from paddlecloud.runtime.shipping import Shippers
    from paddlecloud.runtime.starting import Starters

#: A monitor that has not come up after this many seconds is asked for again.
MONITOR_SECONDS = 5.0


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
        """Take over what an earlier agent left: running, over, or never begun. How many."""
        directory = self._site.directory / "replicas"
        directory.mkdir(parents=True, exist_ok=True)
        for root in sorted(directory.iterdir()):
            tracked = read_order(root)
            if tracked is None:
                self._janitor.discard(root)
            else:
                self._adopt(tracked)
        return len(self._site.book.all())

    def begin_round(self) -> None:
        """From now on the server names everything that it still wants of this agent."""
        self._round += 1

    def end_round(self) -> None:
        """It has; what it did not name is let go of, now or when it is over."""
        self._heard = self._round
        for tracked in self._site.book.all():
            if tracked.stage is Stage.ORDERED and tracked.named < self._heard:
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
            self._learn(tracked, control.inspect(tracked.root), now)
        if tracked.stop is not None and not tracked.stop_told and tracked.stage is Stage.LAUNCHED:
            self._try_to_stop(tracked, tracked.stop)
        if tracked.forget and not tracked.alive:
            self._janitor.forget(tracked)

    def finished(self, tracked: Tracked) -> None:
        """The server has everything of it."""
        tracked.stage = Stage.DONE
        self._site.unwatch(tracked)
        self._site.journal.info("the server has all of it", tracked.id)
        self._let_go(tracked)

    def make_room(self) -> None:
        """The server has no space, perhaps for what lies here: keep only what it has to get."""
        for tracked in self._site.book.all():
            if tracked.stage is Stage.OVER and not tracked.cleared:
                tracked.cleared = True
                self._janitor.make_room(tracked)

    def expel(self, tracked: Tracked) -> None:
        """The server does not want it any more: end it at once, then delete it."""
        self._site.journal.warning("the server does not know it; it is ended", tracked.id)
        tracked.forget = True
        if tracked.alive:
            self._stop(tracked, StopWish(grace=0.0, cause=record.CAUSE_STOPPED))
        if tracked.stage is Stage.ORDERED and not tracked.queued:
            self._starters.put(tracked)
        self._site.wake_reporter()

    def _let_go(self, tracked: Tracked) -> None:
        if tracked.stage is Stage.DONE and tracked.named < self._heard:
            self._forget(tracked)

    def _new(self, order: dict[str, Any]) -> Tracked:
        root = self._site.book.root(str(order["replica"]))
        return Tracked(id=root.name, fence=int(order["fence"]), root=root, run={}, acked=0)

    def _fill_in(self, tracked: Tracked, order: dict[str, Any]) -> None:
        tracked.fence = max(tracked.fence, int(order["fence"]))
        if order.get("run") and tracked.stage is Stage.ORDERED and not tracked.run:
            tracked.run = {**order["run"], "grace": order["grace"]}

    def _adopt(self, tracked: Tracked) -> None:
        now = time.monotonic()
        self._site.book.add(tracked)
        if control.inspect(tracked.root).phase is Phase.NOT_STARTED:
            # The order comes again and starts it; a monitor on its way is found by then.
            return
        tracked.stage = Stage.LAUNCHED
        tracked.launched_at = now
        tracked.dirty = True
        self._site.watch(tracked)
        self.look(tracked, now)
        self._site.journal.info(f"adopted, {tracked.stage.value}", tracked.id)

    def _forget(self, tracked: Tracked) -> None:
        """The reporter does it, as soon as the replica is over."""
        tracked.forget = True
        self._site.wake_reporter()

    def _stop(self, tracked: Tracked, wish: StopWish) -> None:
        with tracked.lock:
            tracked.stop = wish
            tracked.stop_told = False
            launched = tracked.stage is Stage.LAUNCHED
        self._site.journal.info(f"stop within {wish.grace:g} s, {wish.cause}", tracked.id)
        self._site.link.wake()
        if launched:
            self._try_to_stop(tracked, wish)

    def _try_to_stop(self, tracked: Tracked, wish: StopWish) -> None:
        """Said again at the next look if even the wish cannot be written down."""
        try:
            request_stop(tracked, wish)
        except OSError as error:
            self._site.journal.warning(f"cannot be stopped yet: {error}", tracked.id)

    def _learn(self, tracked: Tracked, observed: control.Observed, now: float) -> None:
        if observed.phase is Phase.RUNNING:
            self._started(tracked, observed.pid, observed.started_at, now)
        elif observed.phase is Phase.EXITED:
            run = record.read(tracked.root / record.RUN) or {}
            self._started(tracked, run.get("pid"), run.get("started_at"), now)
            tracked.end(observed.exit)
            self._shippers.finish(tracked)
        elif observed.phase is Phase.LOST:
            self._started(tracked, observed.pid, observed.started_at, now)
            tracked.reaping = True
            self._janitor.reap(tracked)
        elif now - tracked.launched_at > MONITOR_SECONDS and not tracked.queued:
            self._site.journal.warning("no monitor came up; asking for another", tracked.id)
            tracked.launched_at = now
            self._starters.put(tracked)

    def _started(
        self, tracked: Tracked, pid: int | None, started_at: float | None, now: float
    ) -> None:
        if tracked.started is None and pid is not None and started_at is not None:
            tracked.started = {"pid": pid, "at": started_at}
            tracked.started_noticed = now
            self._shippers.follow(tracked)
