"""Plain functions off the event loop: small pools of threads, reached with as little as possible.

Starlette's own way (anyio) costs about twice as much a call, which is most of a small request.
What takes long (files in, clean-up, checks) has threads of its own: however much of it there is,
the short answers do not stand in line behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_SHORT = ThreadPoolExecutor(max_workers=8, thread_name_prefix="route")
_LONG = ThreadPoolExecutor(max_workers=4, thread_name_prefix="long")


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """What `work(*args)` returns, run in a thread; for what takes milliseconds."""
    return await asyncio.get_running_loop().run_in_executor(_SHORT, work, *args)


async def in_long_thread(work: Callable[..., T], *args: object) -> T:
    """The same for what may take as long as a disk or a directory of files does."""
    return await asyncio.get_running_loop().run_in_executor(_LONG, work, *args)
