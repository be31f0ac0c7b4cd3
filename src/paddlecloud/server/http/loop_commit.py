"""Group commit on the event loop: the writes of one turn of the loop are committed together.

A submit is a fraction of a millisecond of SQL and one wait for the disk. Handing it to a thread
costs more than the SQL: that thread releases the interpreter lock at every statement and waits to
get it back. So if the database is in this process and its disk is fast, the event loop commits
itself, and what arrives in the meantime is in the next commit. With a slow disk, or a database on
another machine, the database's own thread commits, and the event loop is not blocked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from paddlecloud.db.engine.base import CanDefer, Database, Tx
from paddlecloud.server.http.executors import in_thread

T = TypeVar("T")
Given = TypeVarTuple("Given")
SLOW = 0.010
"""Seconds: after a slower commit the event loop leaves commits to the database's thread."""
SKIPPED = 100
"""So many writes, before it tries the disk again."""


class LoopWriter:
    """Used by the event loop only, so nothing here is locked."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._prompt = db if isinstance(db, CanDefer) else None
        self._queued: list[tuple[Future[Any], asyncio.Future[None]]] = []
        self._skip = 0

    async def call(self, work: Callable[[*Given], T], *args: *Given) -> T:
        """What `work(*args)` returns: a few reads, or a rare write."""
        if self._prompt is None or self._skip:
            return await in_thread(work, *args)
        return work(*args)

    async def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """What `work` returns, once it is committed, and on disk if `durable`."""
        prompt = self._prompt
        if prompt is None or self._skip:
            self._skip = max(self._skip - 1, 0)
            return await asyncio.wrap_future(self._db.submit(work, durable=durable))
        written = prompt.defer(work, durable=durable)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if not self._queued:
            loop.call_soon(self._commit, prompt)
        self._queued.append((written, done))
        await done
        return written.result()

    def _commit(self, prompt: CanDefer) -> None:
        queued, self._queued = self._queued, []
        began = time.perf_counter()
        prompt.drain(queued[-1][0])
        if time.perf_counter() - began > SLOW:
            self._skip = SKIPPED
        for written, done in queued:
            if written.done():
                _resolve(done)
            else:  # another thread is committing, and these with the next group
                written.add_done_callback(partial(_resolve_later, done))


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():  # its request may have been cancelled
        done.set_result(None)


def _resolve_later(done: asyncio.Future[None], _written: Future[Any]) -> None:
    """From the thread that committed."""
    done.get_loop().call_soon_threadsafe(_resolve, done)
