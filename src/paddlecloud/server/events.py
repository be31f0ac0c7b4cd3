"""Wake-ups inside one server: connects committed changes with coroutines and loops that wait.

A notification is dropped if nothing waits for it; waiters read the facts before and after they
wait. News that come with a notification only save a read.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from paddlecloud.db.engine.base import EVERYTHING

SCHEDULE_CHANNEL = "schedule"
"""Wakes the schedule loop."""
CAPACITY_CHANNEL = "room"
"""Capacity came free, or a job has ended: the schedule loop plans at once."""
Topic = tuple[str, str]
Notification = tuple[Topic | None, object]
"""The topic, and the news that came with it."""
ANYTHING: Notification = (None, None)
Handler = Callable[[Notification], bool]
"""Handles a notification while its waiter sleeps; False: the waiter has to wake up for it."""
WOKEN_AT_ONCE = 128
"""Many: it is quicker to prepare a hundred and to send to all of them than to take turns."""
MAX_PENDING = 16
"""Notifications that are kept for a waiter that is busy with something else."""


class Hub:
    """Wake-ups by topic, for coroutines (`waiter`) and for loop threads (`wake_event`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._waiters: dict[Topic, set[Waiter]] = {}
        self._wake_events: dict[str, threading.Event] = {}
        self.closed = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be called on the thread of this loop."""
        self._loop = loop
        self._thread = threading.get_ident()

    def wake_event(self, channel: str) -> threading.Event:
        """The event that every notification on `channel` sets, whatever its payload."""
        with self._lock:
            return self._wake_events.setdefault(channel, threading.Event())

    def waiter(self, *topics: Topic, handler: Handler | None = None) -> Waiter:
        return Waiter(self, topics, handler)

    def awaits(self, channel: str, payload: str) -> bool:
        """Whether anything waits for this now, so that news are worth sending."""
        return (channel, payload) in self._waiters

    def notify(self, channel: str, payload: str, news: object = None) -> None:
        """Wake everything that waits for (channel, payload). Called from any thread."""
        if channel == EVERYTHING:
            self._wake_all()
            return
        wake_event = self._wake_events.get(channel)
        if wake_event is not None:
            wake_event.set()
        topic = (channel, payload)
        with self._lock:
            waiters = tuple(self._waiters.get(topic, ()))
        self._deliver(waiters, (topic, news))

    def close(self) -> None:
        """Let every waiter and loop return: the server stops."""
        self.closed = True
        self._wake_all()

    def _wake_all(self) -> None:
        with self._lock:
            waiters = tuple({waiter for group in self._waiters.values() for waiter in group})
            wake_events = tuple(self._wake_events.values())
        for wake_event in wake_events:
            wake_event.set()
        self._deliver(waiters, ANYTHING)

    def _deliver(self, waiters: tuple[Waiter, ...], notification: Notification) -> None:
        if not waiters or self._loop is None:
            return
        if threading.get_ident() == self._thread:
            _deliver_all(self._loop, waiters, notification)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_deliver_all, self._loop, waiters, notification)


class Waiter:
    """Registers first and waits later, so that what happens in between is not missed.

    Except for entering and leaving it lives in the event loop, and a wake-up needs no task: there
    may be hundreds of them for one line of a log.
    """

    __slots__ = ("_handler", "_hub", "_pending", "_sleep", "_topics", "received")

    def __init__(self, hub: Hub, topics: tuple[Topic, ...], handler: Handler | None = None) -> None:
        self._hub = hub
        self._topics = topics
        self._handler = handler
        self._pending: list[Notification] = []
        self._sleep: asyncio.Future[None] | None = None
        self.received: list[Notification] = []
        """What woke the last `wait`, in order; ANYTHING stands for what was dropped."""

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
            self.received = [ANYTHING]
            return True
        if not self._pending:
            loop = asyncio.get_running_loop()
            self._sleep = loop.create_future()
            timer = loop.call_later(seconds, _end, self._sleep)
            try:
                await self._sleep
            finally:
                timer.cancel()
                self._sleep = None
        self.received, self._pending = self._pending, []
        return bool(self.received)

    def deliver(self, notification: Notification) -> None:
        """In the event loop: something happened."""
        sleep, handler = self._sleep, self._handler
        if sleep is not None and handler is not None and not sleep.done() and handler(notification):
            return
        if len(self._pending) >= MAX_PENDING:
            self._pending = [ANYTHING]
        else:
            self._pending.append(notification)
        if sleep is not None:
            _end(sleep)


def _deliver_all(
    loop: asyncio.AbstractEventLoop,
    waiters: tuple[Waiter, ...],
    notification: Notification,
    begin: int = 0,
) -> None:
    """Some in each turn of the loop: what they write goes out at the end of a turn, and other
    requests get their own."""
    end = begin + WOKEN_AT_ONCE
    for waiter in waiters[begin:end]:
        waiter.deliver(notification)
    if end < len(waiters):
        loop.call_soon(_deliver_all, loop, waiters, notification, end)


def _end(sleep: asyncio.Future[None]) -> None:
    if not sleep.done():
        sleep.set_result(None)
