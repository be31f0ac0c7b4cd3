"""The lifecycle of every replica: applies the server's orders and its own records.

Every step is idempotent, and orders may come in any sequence: they come again after a restart, a
stop may overtake its start, a replica may be over before its stop comes. Starting is done by
`start`, sending outputs by `agent/outputs`, reporting by `agent/server_link/report`, and deleting
by `cleanup`, each in threads of its own.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.registry import Stage, StopRequest, Tracked, read_order
from paddlecloud.agent.replica import _secret_files, inspect, records
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.replica.start import request_stop
from paddlecloud.agent.sandbox.tmpdir import spread
from paddlecloud.agent.server_link import orders

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.outputs.shipper import Shippers
    from paddlecloud.agent.replica.cleanup import Cleanup
    from paddlecloud.agent.replica.start import Starters

#: Another supervisor is started if none has come up after this many seconds.
SUPERVISOR_SECONDS = 5.0


class Lifecycle:
    def __init__(
        self, context: Context, starters: Starters, shippers: Shippers, cleanup: Cleanup
    ) -> None:
        self._context = context
        self._starters = starters
        self._shippers = shippers
        self._cleanup = cleanup
        self._round = 0
        """In a round of orders the server lists every replica that it wants of this agent."""
        self._last_round = 0
        """The last round that was complete."""

    def adopt(self) -> int:
        """Take over the replicas of an earlier agent: running, over, or never started. How many.

        One directory that cannot be understood must not keep the others from being adopted.
        """
        directory = self._context.directory / "replicas"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        spread(directory)
        for root in sorted(directory.iterdir()):
            try:
                self._adopt(root)
            except Exception:  # noqa: BLE001 - logged; the others, and the agent, go on
                self._context.log.failure("cannot be adopted", root.name)
        return len(self._context.registry.all())

    def begin_round(self) -> None:
        """The next orders list everything that the server wants of this agent."""
        self._round += 1

    def end_round(self) -> None:
        """What the round did not list is not wanted: it is deleted, now or when it is over."""
        self._last_round = self._round
        for tracked in self._context.registry.all():
            unknown = tracked.stage is Stage.ORDERED or tracked.fence < 0
            if unknown and tracked.listed_round < self._last_round:
                self.expel(tracked)
            else:
                self._delete_if_unlisted(tracked)

    def apply(self, order: dict[str, Any]) -> None:
        """Carry out one order of the server."""
        replica, want = str(order["replica"]), order["want"]
        if want not in ("run", "stop", "forget"):
            raise ValueError(f"unknown order: {want!r}")
        tracked = self._context.registry.get(replica)
        if want == "forget":
            if tracked is not None:
                self._release(tracked)
            return
        if tracked is None:
            tracked = self._context.registry.add(self._new(order))
        tracked.listed_round = self._round
        self._update(tracked, order)
        if want == "stop":
            self._stop(tracked, StopRequest(grace=float(order["grace"]), cause=str(order["cause"])))
        if tracked.stage is Stage.ORDERED and not tracked.queued:
            self._starters.put(tracked)

    def reconcile(self, tracked: Tracked, now: float) -> None:
        """Read its records and act on them (`now` is monotonic). Only the reporter calls this."""
        if tracked.stage is Stage.LAUNCHED and not tracked.reaping:
            self._observe(tracked, inspect.inspect(tracked.root), now)
        if tracked.stop is not None and not tracked.stop_sent and tracked.stage is Stage.LAUNCHED:
            self._request_stop(tracked, tracked.stop)
        if tracked.released and not tracked.alive:
            self._cleanup.delete(tracked)

    def finished(self, tracked: Tracked) -> None:
        """The server has everything of it."""
        self._context.registry.finish(tracked)
        but = " but what was not sent" if unsent.was_left(tracked) else ""
        self._context.log.info(f"the server has all of it{but}", tracked.id)
        self._delete_if_unlisted(tracked)

    def free_disk(self) -> None:
        """The server has no space, perhaps on this disk: delete what is not needed any more."""
        for tracked in self._context.registry.all():
            if tracked.stage is Stage.OVER and not tracked.cleared:
                tracked.cleared = True
                self._cleanup.delete_working_files(tracked)

    def expel(self, tracked: Tracked) -> None:
        """The server does not want it any more: end it at once, then delete it."""
        if tracked.alive and not tracked.released:
            self._context.log.warning("the server does not want it; it is ended", tracked.id)
        self._context.registry.release(tracked)
        if tracked.alive:
            self._stop(tracked, StopRequest(grace=0.0, cause=records.CAUSE_STOPPED))
        if tracked.stage is Stage.ORDERED and not tracked.queued:
            self._starters.put(tracked)
        self._context.wake_reporter()

    def _delete_if_unlisted(self, tracked: Tracked) -> None:
        if tracked.stage is Stage.DONE and tracked.listed_round < self._last_round:
            self._release(tracked)

    def _release(self, tracked: Tracked) -> None:
        """Have it deleted by the reporter's next call of `reconcile`. If it still runs it is ended
        first: the server gave it up as lost while the agent was away."""
        if tracked.alive:
            self.expel(tracked)
            return
        self._context.registry.release(tracked)
        self._context.wake_reporter()

    def _new(self, order: dict[str, Any]) -> Tracked:
        root = self._context.registry.root(str(order["replica"]))
        tracked = Tracked(id=root.name, fence=int(order["fence"]), root=root, run=None, acked=0)
        run = orders.run_of(order, self._context.grace)
        if run is not None and run["began"]:
            # It ran here, and its records are gone. It must not run a second time.
            tracked.acked = None
            self._lose(tracked, "it ran before, but its records are gone")
        return tracked

    def _update(self, tracked: Tracked, order: dict[str, Any]) -> None:
        before, tracked.fence = tracked.fence, max(tracked.fence, int(order["fence"]))
        if before < 0:
            # Its own order is lost, and nothing could be reported of it until now.
            self._context.wake_reporter()
        # The grace of an order is that of a stop; at the wall time the supervisor uses the setting.
        run = orders.run_of(order, self._context.grace)
        if run is None:
            return
        tracked.direct = tracked.direct or run["direct"]
        bucket_timeout = run["patience"]
        tracked.own_bucket = bucket_timeout is not None
        tracked.store_timeout = run["store_patience"] if bucket_timeout is None else bucket_timeout
        if tracked.stage is Stage.ORDERED and tracked.run is None:
            tracked.run = run

    def _adopt(self, root: Path) -> None:
        now = time.monotonic()
        tracked = read_order(root)
        if tracked is None:
            self._cleanup.discard(root)
            return
        tracked.spawned = True
        self._context.registry.add(tracked)
        if tracked.fence >= 0 and inspect.inspect(root).phase is Phase.NOT_STARTED:
            # The order comes again and starts it; a supervisor that was started is found by then.
            return
        tracked.stage = Stage.LAUNCHED
        tracked.launched_at = now
        tracked.dirty = True
        with suppress(OSError):
            self._context.watch(tracked)
        self.reconcile(tracked, now)
        self._context.log.info(f"adopted, {tracked.stage.value}", tracked.id)

    def _stop(self, tracked: Tracked, stop: StopRequest) -> None:
        with tracked.lock:
            tracked.stop = stop
            tracked.stop_sent = False
            launched = tracked.stage is Stage.LAUNCHED
            over = tracked.stage is Stage.OVER
        self._context.log.info(f"stop within {stop.grace:g} s, {stop.cause}", tracked.id)
        self._starters.hurry(tracked)
        if over:
            self._shippers.hurry(tracked)
        if launched:
            self._request_stop(tracked, stop)

    def _request_stop(self, tracked: Tracked, stop: StopRequest) -> None:
        """Tried again by the next `reconcile` if the request cannot be written."""
        try:
            request_stop(tracked, stop)
        except OSError as error:
            self._context.log.warning(f"cannot be stopped yet: {error}", tracked.id)

    def _observe(self, tracked: Tracked, observed: inspect.Observed, now: float) -> None:
        if observed.phase is Phase.RUNNING:
            self._started(tracked, observed.pid, observed.started_at, now)
        elif observed.phase is Phase.EXITED:
            run = {} if tracked.started else records.read(tracked.path(records.RUN)) or {}
            self._started(tracked, run.get("pid"), run.get("started_at"), now)
            _secret_files.remove(tracked.root)
            tracked.end(observed.exit)
            self._shippers.finish(tracked)
        elif observed.phase is Phase.LOST:
            self._started(tracked, observed.pid, observed.started_at, now)
            self._lose(tracked, "its supervisor was killed, so its exit is unknown")
        elif tracked.started or tracked.fence < 0:
            self._lose(tracked, "its records are gone, so its exit is unknown")
        elif now - tracked.launched_at > SUPERVISOR_SECONDS and not tracked.queued:
            if not (tracked.root / records.ORDER).exists():
                self._lose(tracked, "its records are gone, so its exit is unknown")
                return
            self._context.log.warning("no supervisor came up; starting another", tracked.id)
            tracked.launched_at = now
            self._starters.put(tracked)

    def _lose(self, tracked: Tracked, why: str) -> None:
        """Its exit will never be known; what runs of it is ended before that is reported."""
        tracked.stage = Stage.LAUNCHED
        tracked.reaping = True
        self._context.log.warning(why, tracked.id)
        self._cleanup.reap(tracked)

    def _started(
        self, tracked: Tracked, pid: int | None, started_at: float | None, now: float
    ) -> None:
        if tracked.started is None and pid is not None and started_at is not None:
            tracked.started = {"pid": pid, "at": started_at}
            tracked.started_noticed = now
            self._shippers.follow(tracked)
