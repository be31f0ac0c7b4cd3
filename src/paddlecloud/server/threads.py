"""Plain functions off the event loop: small pools of threads, reached with as little as possible.

Starlette's own way (anyio) costs about twice as much a call, which is most of a small request.
What takes long (files in, clean-up, checks) has threads of its own: however much of it there is,
the short answers do not stand in line behind it. What asks a bucket has its own again, and only so
many calls may wait for one: a bucket that does not answer takes nothing from the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TypeVar

from paddlecloud.model.errors import Retry

T = TypeVar("T")
_SHORT = ThreadPoolExecutor(max_workers=8, thread_name_prefix="route")
_LONG = ThreadPoolExecutor(max_workers=4, thread_name_prefix="long")
_ASKING = 16
_MOST = 2 * _ASKING
"""Of calls that ask a bucket or wait for their turn: the last one hears within a client's time."""
_BUCKET = ThreadPoolExecutor(max_workers=_ASKING, thread_name_prefix="bucket")
_places = BoundedSemaphore(_MOST)


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """What `work(*args)` returns, run in a thread; for what takes milliseconds."""
    return await asyncio.get_running_loop().run_in_executor(_SHORT, work, *args)


async def in_long_thread(work: Callable[..., T], *args: object) -> T:
    """The same for what may take as long as a disk or a directory of files does."""
    return await asyncio.get_running_loop().run_in_executor(_LONG, work, *args)


async def in_bucket_thread(work: Callable[..., T], *args: object) -> T:
    """The same for what asks a bucket; Retry when too many wait for theirs already."""
    if not _places.acquire(blocking=False):
        raise Retry("store_crowded", limit=_MOST)
    future = _BUCKET.submit(work, *args)
    # Not when the caller is gone: its work may go on without it.
    future.add_done_callback(lambda _: _places.release())
    return await asyncio.wrap_future(future)
