"""Writes of the event loop: those of one turn of it are committed together, on its own thread.

A submit is a fraction of a millisecond of SQL and one wait for the disk. Handing it to a thread
costs more than the SQL: that thread gives the interpreter away at every statement and waits for its
turn to have it back. So where the database is in this process and its disk is quick, the loop
commits for itself and whatever waits meanwhile is in the next commit. With a slow disk, or a
database elsewhere, the loop must not stand still, and the database's own thread does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from paddlecloud.db.engine.base import Database, Prompt, Tx
from paddlecloud.server.http.executors import in_thread

T = TypeVar("T")
Given = TypeVarTuple("Given")
SLOW = 0.010
"""Seconds: a commit that took longer is one that the loop had better not have waited for."""
PATIENCE = 100
"""Writes that go another way after a slow one, before the disk is tried again."""


class Gathering:
    """For the event loop alone: nothing here is locked."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._prompt = db if isinstance(db, Prompt) else None
        self._left: list[tuple[Future[Any], asyncio.Future[None]]] = []
        self._elsewhere = 0

    async def call(self, work: Callable[[*Given], T], *args: *Given) -> T:
        """What `work(*args)` returns: a few reads, or a write that hardly ever happens."""
        if self._prompt is None or self._elsewhere:
            return await in_thread(work, *args)
        return work(*args)

    async def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        """What `work` returns, once it is committed, and on disk if it is `durable`."""
        prompt = self._prompt
        if prompt is None or self._elsewhere:
            self._elsewhere = max(self._elsewhere - 1, 0)
            return await asyncio.wrap_future(self._db.submit(work, durable=durable))
        written = prompt.leave(work, durable=durable)
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        if not self._left:
            loop.call_soon(self._commit, prompt)
        self._left.append((written, told))
        await told
        return written.result()

    def _commit(self, prompt: Prompt) -> None:
        left, self._left = self._left, []
        began = time.perf_counter()
        prompt.drain(left[-1][0])
        if time.perf_counter() - began > SLOW:
            self._elsewhere = PATIENCE
        for written, told in left:
            if written.done():
                _tell(told)
            else:  # another thread is committing, and these with the next group
                written.add_done_callback(partial(_tell_later, told))


def _tell(told: asyncio.Future[None]) -> None:
    if not told.done():  # its caller may have gone away
        told.set_result(None)


def _tell_later(told: asyncio.Future[None], _written: Future[Any]) -> None:
    """From the thread that committed."""
    told.get_loop().call_soon_threadsafe(_tell, told)
