"""Plain functions off the event loop: small pools of threads, reached with as little as possible.

Starlette's own way (anyio) costs about twice as much a call, which is most of a small request.
What takes long (files in, clean-up, checks) has threads of its own: however much of it there is,
the short answers do not stand in line behind it. What reads large files once more has others. What
asks a bucket has its own again, and only so many calls may wait for one. Each user's buckets have
theirs apart from everybody else's: one that does not answer takes nothing from the rest, and what
agents wait for nothing from their owner. That a store does not answer is told before those who wait
give up; agents have patience with a user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar, TypeVarTuple

from paddlecloud.model.errors import Retry
from paddlecloud.model.jobs.job import Job
from paddlecloud.stores.deadline import be_prompt

T = TypeVar("T")
Given = TypeVarTuple("Given")
_SHORT = ThreadPoolExecutor(max_workers=8, thread_name_prefix="route", initializer=be_prompt)
_LONG = ThreadPoolExecutor(max_workers=4, thread_name_prefix="long", initializer=be_prompt)
_CHECKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="check", initializer=be_prompt)
_ASKING = 16
_MOST = 2 * _ASKING
"""Of calls that ask a bucket or wait for their turn: the last one hears within a client's time."""
_MOST_OF_ALL = 8 * _MOST
"""The same for the buckets of all users together: threads of silent ones cost memory."""
_OWN = ""
"""The bucket of the server itself, among the names of those who own one."""
_AGENTS = "agents of "
"""And a user after it: no name of a user has a blank."""


async def in_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """What `work(*args)` returns, run in a thread; for what takes milliseconds."""
    return await asyncio.get_running_loop().run_in_executor(_SHORT, work, *args)


async def in_long_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """The same for what may take as long as a disk or a directory of files does."""
    return await asyncio.get_running_loop().run_in_executor(_LONG, work, *args)


async def in_checking_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """The same for what reads a large file once more: no submit stands in line behind it."""
    return await asyncio.get_running_loop().run_in_executor(_CHECKING, work, *args)


async def in_bucket_thread(work: Callable[[*Given], T], *args: *Given, whose: str = _OWN) -> T:
    """The same for what asks a bucket: the server's own, or that of the user `whose`; Retry when
    too many wait for theirs already."""
    # A place is not given back when the caller is gone: its work may go on without it.
    return await asyncio.wrap_future(_desks.submit(whose, work, *args))


async def for_agent(
    job: Job, work: Callable[[*Given], T], *args: *Given, threads: ThreadPoolExecutor = _LONG
) -> T:
    """The same for what an agent wants done about the files of a job, wherever they lie; by these
    threads where that is the server's own store."""
    if job.spec.public_bos:
        return await asyncio.get_running_loop().run_in_executor(threads, work, *args)
    return await in_bucket_thread(work, *args, whose=agents_of(job))


async def bucket_pieces(pieces: Iterable[bytes], whose: str) -> AsyncIterator[bytes]:
    """What a bucket gives piece by piece, each waited for in its threads."""
    coming = iter(pieces)
    while piece := await in_bucket_thread(next, coming, b"", whose=whose):
        yield piece


def agents_of(job: Job) -> str:
    """Who asks the bucket of this job when its agent does."""
    return f"{_AGENTS}{job.owner}"


def later_for_agent(job: Job, work: Callable[[], object]) -> None:
    """Have it done without waiting for it, also where no more calls are let in."""
    if job.spec.public_bos:
        _LONG.submit(work)
    else:
        _desks.submit(agents_of(job), work, always=True)


class _Desk:
    """The threads of one user, which are let go when nothing is under way."""

    def __init__(self, whose: str) -> None:
        self.threads = ThreadPoolExecutor(
            max_workers=_ASKING,
            thread_name_prefix="bucket",
            initializer=None if whose.startswith(_AGENTS) else be_prompt,
        )
        self.calls = 0


class _Desks:
    def __init__(self) -> None:
        self._lock = Lock()
        self._desks: dict[str, _Desk] = {}

    def submit(
        self, whose: str, work: Callable[[*Given], T], *args: *Given, always: bool = False
    ) -> Future[T]:
        with self._lock:
            if not always:
                self._check_room(whose)
            desk = self._desks.get(whose) or self._desks.setdefault(whose, _Desk(whose))
            future = desk.threads.submit(work, *args)
            desk.calls += 1
        future.add_done_callback(lambda _: self._leave(whose, desk))
        return future

    def _check_room(self, whose: str) -> None:
        desk = self._desks.get(whose)
        if desk is not None and desk.calls >= _MOST:
            raise Retry("store_crowded", limit=_MOST)
        users = sum(desk.calls for name, desk in self._desks.items() if name != _OWN)
        if whose != _OWN and users >= _MOST_OF_ALL:
            raise Retry("store_crowded", limit=_MOST_OF_ALL)

    def _leave(self, whose: str, desk: _Desk) -> None:
        with self._lock:
            desk.calls -= 1
            if not desk.calls:
                del self._desks[whose]
                desk.threads.shutdown(wait=False)


_desks = _Desks()
