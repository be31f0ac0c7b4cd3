"""Ships the output files of all replicas to the server: queues, and the threads that work on them.

`_replica_outputs` decides what one replica sends in its turn, this module whose turn it is. Running
replicas are visited every `ship_interval` seconds; a replica that is over until all of its files
are stored or given up, and only then its end is reported.

There are four queues with threads of their own, so that a job with one small file does not wait for
those with hours to send: running replicas; their large files; replicas that are over; and those of
them with large files. One large file may take hours and cannot be interrupted, so the queues for
large files have more threads, and share a bound on what is in memory.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.outputs._replica_outputs import ReplicaOutputs
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices
from paddlecloud.agent.work_queue import WorkQueue
from paddlecloud.net.connection_pool import Pool
from paddlecloud.transfer.presigned import PresignedConnections
from paddlecloud.transfer.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel

_THREADS = 2
"""Of each queue but those for large files."""
_LARGE_THREADS_RUNNING = 4
_LARGE_THREADS = 8
_LARGE_PARTS = 2
"""Parts of large files that are in memory at a time."""
_BUCKET_AWAY = 60.0
"""Seconds for which parts for a bucket that failed go through the server."""


class Shippers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._running, self._large_running = WorkQueue(), WorkQueue()
        self._ended, self._large_ended = WorkQueue(), WorkQueue()
        self._lock = threading.Lock()
        """Guards `shipping` and `ship_again` of all replicas."""
        self._outputs: dict[str, ReplicaOutputs] = {}
        self._connections = PresignedConnections(Pool(context.config.proxies), _BUCKET_AWAY)
        self._slots = Slots(_LARGE_PARTS)

    def follow(self, tracked: Tracked) -> None:
        """Ship its outputs from time to time while it runs."""
        if tracked.stage is Stage.LAUNCHED:
            self._running.put(tracked, time.monotonic() + self._context.ship_interval)

    def finish(self, tracked: Tracked) -> None:
        """It is over: ship the rest, and set `shipped` then.

        With nothing to ship that is so at once; the caller wakes the reporter.
        """
        if tracked.id in self._outputs or scan.has_any(tracked.root):
            tracked.hold(notices.message("held_sending"), now=time.monotonic())
            self._queue(tracked).put(tracked)
        else:
            tracked.shipped = True

    def hurry(self, tracked: Tracked | None = None) -> None:
        """Try at once what waits: the server is back, or this replica is to end."""
        with self._lock:
            if tracked is not None and tracked.shipping:
                tracked.ship_again = True
            for queue in self._queues():
                queue.hurry(tracked)

    def close(self) -> None:
        """Let the threads end."""
        for queue in self._queues():
            queue.close()

    def bodies(self) -> list[Callable[[], None]]:
        """The body of each thread."""
        return [
            partial(self._work, queue)
            for queue, threads in self._queues().items()
            for _ in range(threads)
        ]

    def _queues(self) -> dict[WorkQueue, int]:
        """Each queue with the number of its threads."""
        return {
            self._ended: _THREADS,
            self._large_ended: _LARGE_THREADS,
            self._running: _THREADS,
            self._large_running: _LARGE_THREADS_RUNNING,
        }

    def _queue(self, tracked: Tracked) -> WorkQueue:
        if tracked.stage is not Stage.OVER:
            return self._running
        outputs = self._outputs.get(tracked.id)
        return self._large_ended if outputs is not None and outputs.large else self._ended

    def _work(self, queue: WorkQueue) -> None:
        channel = self._context.link.channel()
        turn = self._large_file_turn if queue is self._large_running else self._turn
        self._context.guarded("a shipper", lambda: turn(queue, channel))

    def _turn(self, queue: WorkQueue, channel: Channel) -> None:
        tracked = queue.take()
        if tracked is None:
            return
        if self._queue(tracked) is not queue:  # it ended while it waited here
            self._queue(tracked).put(tracked)
            return
        if not self._claim(tracked):
            return
        pause: float | None = 1.0
        try:
            pause = self._ship(tracked, channel)
        finally:
            # Also after an unexpected error: a replica that is never shipped never ends.
            with self._lock:
                tracked.shipping = False
                again, tracked.ship_again = tracked.ship_again, False
                if pause is not None:
                    due = time.monotonic() + (0.0 if again else pause)
                    self._queue(tracked).put(tracked, due)

    def _claim(self, tracked: Tracked) -> bool:
        """Whether there is something to ship, and no other thread is at it."""
        with self._lock:
            tracked.ship_again = tracked.ship_again or tracked.shipping
            if tracked.released:
                self._outputs.pop(tracked.id, None)
            if tracked.released or tracked.shipped or tracked.shipping:
                return False
            tracked.shipping = True
            return True

    def _ship(self, tracked: Tracked, channel: Channel) -> float | None:
        """One turn of a replica; seconds until the next, None when there is none."""
        outputs = self._outputs.get(tracked.id)
        if outputs is None:
            new = ReplicaOutputs(
                tracked, self._context, self._connections, self._slots, self._large_running
            )
            outputs = self._outputs.setdefault(tracked.id, new)
        pause = outputs.ship(channel)
        if pause is None:
            self._outputs.pop(tracked.id, None)
            tracked.held = None
            tracked.shipped = True
            self._context.wake_reporter()
        return pause

    def _large_file_turn(self, queue: WorkQueue, channel: Channel) -> None:
        """One large file of a running replica; its next one comes behind those of others."""
        tracked = queue.take()
        outputs = None if tracked is None else self._outputs.get(tracked.id)
        if tracked is None or outputs is None or not outputs.send_large_file(channel):
            return
        queue.put(tracked)
        if tracked.stage is Stage.OVER:
            self.hurry(tracked)
