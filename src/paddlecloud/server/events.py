"""Connects threads and the event loop: a change that was committed wakes whoever waits for it,
without anybody asking in a loop.

What is told is forgotten if nobody waits for it; whoever waits looks at the facts anyway, before
and after. News that come along with a note only save a look.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from paddlecloud.db.engine.base import EVERYTHING

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
