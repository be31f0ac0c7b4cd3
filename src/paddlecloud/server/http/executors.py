"""Thread pools for blocking work of requests.

Starlette's own pool (anyio) costs about twice as much a call, which is most of a small request.
Work that takes long (files, clean-up, checks) has threads of its own, so short requests never queue
behind it. Calls to buckets have threads of their own again, with a limit of waiting calls, and
separate ones for each user and for the agents of each user: a bucket that does not respond affects
no one else. Requests of users get a short store timeout, so that they are answered before the
client gives up; agents wait longer for a user's bucket.
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
_SEARCH = ThreadPoolExecutor(max_workers=2, thread_name_prefix="search", initializer=be_prompt)
_BUCKET_THREADS = 16
_MAX_CALLS = 2 * _BUCKET_THREADS
"""Running and queued calls to the buckets of one user: the last one still responds in time."""
_MAX_CALLS_OF_ALL = 8 * _MAX_CALLS
"""The same for the buckets of all users together: blocked threads cost memory."""
_OWN = ""
"""The bucket of the server itself, among the names of users."""
_AGENTS = "agents of "
"""Prefix of a user: no user name contains a blank."""


async def in_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """What `work(*args)` returns, run in a thread; for work of milliseconds."""
    return await asyncio.get_running_loop().run_in_executor(_SHORT, work, *args)


async def in_long_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """The same for work that may wait for a disk or for many files."""
    return await asyncio.get_running_loop().run_in_executor(_LONG, work, *args)


async def in_checking_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """The same for reading a large file again: no submit queues behind it."""
    return await asyncio.get_running_loop().run_in_executor(_CHECKING, work, *args)


async def in_search_thread(work: Callable[[*Given], T], *args: *Given) -> T:
    """The same for searches in logs: they queue behind each other only."""
    return await asyncio.get_running_loop().run_in_executor(_SEARCH, work, *args)


async def in_bucket_thread(work: Callable[[*Given], T], *args: *Given, whose: str = _OWN) -> T:
    """The same for calls to a bucket: the server's own, or that of the user `whose`; Retry if too
    many calls to it are waiting already."""
    # A cancelled request still counts: its work may go on without it.
    return await asyncio.wrap_future(_bucket_pools.submit(whose, work, *args))


async def for_agent(
    job: Job, work: Callable[[*Given], T], *args: *Given, threads: ThreadPoolExecutor = _LONG
) -> T:
    """The same for requests of agents about the files of a job, in whichever store they are; in
    these threads if that is the server's own."""
    if job.spec.public_bos:
        return await asyncio.get_running_loop().run_in_executor(threads, work, *args)
    return await in_bucket_thread(work, *args, whose=agents_of(job))


async def bucket_chunks(chunks: Iterable[bytes], whose: str) -> AsyncIterator[bytes]:
    """The chunks of a file in a bucket, each read in its threads."""
    iterator = iter(chunks)
    while chunk := await in_bucket_thread(next, iterator, b"", whose=whose):
        yield chunk


def agents_of(job: Job) -> str:
    """The name under which agents call the bucket of this job."""
    return f"{_AGENTS}{job.owner}"


def later_for_agent(job: Job, work: Callable[[], object]) -> None:
    """Start work without waiting for it, also beyond the limit of calls."""
    if job.spec.public_bos:
        _LONG.submit(work)
    else:
        _bucket_pools.submit(agents_of(job), work, always=True)


class _BucketPool:
    """The threads of one user; they end when no call is running."""

    def __init__(self, whose: str) -> None:
        self.threads = ThreadPoolExecutor(
            max_workers=_BUCKET_THREADS,
            thread_name_prefix="bucket",
            initializer=None if whose.startswith(_AGENTS) else be_prompt,
        )
        self.calls = 0


class _BucketPools:
    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[str, _BucketPool] = {}

    def submit(
        self, whose: str, work: Callable[[*Given], T], *args: *Given, always: bool = False
    ) -> Future[T]:
        with self._lock:
            if not always:
                self._check_limits(whose)
            pool = self._pools.get(whose) or self._pools.setdefault(whose, _BucketPool(whose))
            future = pool.threads.submit(work, *args)
            pool.calls += 1
        future.add_done_callback(lambda _: self._finished(whose, pool))
        return future

    def _check_limits(self, whose: str) -> None:
        pool = self._pools.get(whose)
        if pool is not None and pool.calls >= _MAX_CALLS:
            raise Retry("store_crowded", limit=_MAX_CALLS)
        users = sum(pool.calls for name, pool in self._pools.items() if name != _OWN)
        if whose != _OWN and users >= _MAX_CALLS_OF_ALL:
            raise Retry("store_crowded", limit=_MAX_CALLS_OF_ALL)

    def _finished(self, whose: str, pool: _BucketPool) -> None:
        with self._lock:
            pool.calls -= 1
            if not pool.calls:
                del self._pools[whose]
                pool.threads.shutdown(wait=False)


_bucket_pools = _BucketPools()
