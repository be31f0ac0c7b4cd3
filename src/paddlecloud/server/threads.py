"""Plain functions off the event loop: a small pool of threads, reached with as little as possible.

Starlette's own way (anyio) costs about twice as much a call, which is most of a small request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_POOL = ThreadPoolExecutor(max_workers=8, thread_name_prefix="route")


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """What `work(*args)` returns, run in a thread of the pool."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, work, *args)
