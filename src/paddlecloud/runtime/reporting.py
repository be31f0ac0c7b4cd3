"""Tells the server what happened: starts, log bytes at offsets, ends. One thread, one request at once.

The thread sleeps until inotify, a monitor's notice, another thread or the clock wakes it. When
nothing is under way it sends at once; while a request is under way the rest gathers for the next
one. A report may be lost, repeated or answered late: only what the server acknowledged counts, and
its word on how many log bytes it has decides where the log goes on.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated, Unreachable
from paddlecloud.runtime import control, record
from paddlecloud.runtime.book import Stage, Tracked
from paddlecloud.runtime.inotify import OVERFLOW
from paddlecloud.runtime.link import Backoff
from paddlecloud.runtime.report import MAX_LOG_BYTES, Batch, compose, encode
from paddlecloud.runtime.starting import request_stop

if TYPE_CHECKING:
    from paddlecloud.runtime.clearing import Janitor
    from paddlecloud.runtime.shared import Site
    from paddlecloud.runtime.shipping import Shippers
    from paddlecloud.runtime.starting import Starters

#: Every replica is looked at so often, in case nobody told of its end (its monitor was killed).
SWEEP = 1.0
#: The same where nothing tells of new log bytes.
SWEEP_BLIND = 0.2
_MONITOR_SECONDS = 5.0
_REFUSED_PAUSE = 10.0


class Reporter:
    def __init__(
        self, site: Site, starters: Starters, shippers: Shippers, janitor: Janitor
    ) -> None:
        self._site = site
        self._starters = starters
        self._shippers = shippers
        self._janitor = janitor
        self._channel = site.link.channel()
        self._notices = _open_socket(site.notices)
        self._by_watch: dict[int, Tracked] = {}
        self._backoff = Backoff()
        self._quiet_until = 0.0
        self._swept_at = 0.0
        self._sequence = 0
        self._one_by_one = False

    def work(self) -> None:
        """The body of the thread."""
        self._site.guarded("the reporter", self._turn)

    def _turn(self) -> None:
        replicas = self._site.book.all()
        told = self._wait(self._pause(replicas, time.monotonic()))
        now = time.monotonic()
        if now - self._swept_at >= self._sweep_interval():
            self._swept_at = now
            told.update(t for t in self._site.book.all() if t.alive)
        for tracked in told:
            self._look(tracked, now)
        if now < self._quiet_until:
            return
        batch = self._compose(now)
        if batch.items:
            self._send(batch)

    def _sweep_interval(self) -> float:
        return SWEEP if self._site.watcher is not None else SWEEP_BLIND

    def _pause(self, replicas: list[Tracked], now: float) -> float | None:
        """Seconds until there is something to do by itself; None: somebody has to wake us."""
        moments = [t.due() for t in replicas]
        due = [max(moment, self._quiet_until) for moment in moments if moment is not None]
        if any(t.alive for t in replicas):
            due.append(self._swept_at + self._sweep_interval())
        return max(0.0, min(due) - now) if due else None

    def _wait(self, seconds: float | None) -> set[Tracked]:
        """Sleep; then the replicas of which something was told."""
        watcher = self._site.watcher
        poll = select.poll()
        for fd in (self._notices.fileno(), self._site.wake_reader):
            poll.register(fd, select.POLLIN)
        if watcher is not None:
            poll.register(watcher.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}
        told: set[Tracked] = set()
        if self._site.wake_reader in ready:
            with suppress(BlockingIOError):
                os.read(self._site.wake_reader, 4096)
        if self._notices.fileno() in ready:
            told |= self._heard()
        if watcher is not None and watcher.fileno() in ready:
            told |= self._seen()
        return told
