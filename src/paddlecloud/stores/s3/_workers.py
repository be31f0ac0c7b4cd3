"""A thread pool for the requests of a store, with a bound on the bytes in progress.

`submit` blocks while too many bytes are in progress, which limits a fast sender to the speed of a
slow store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from paddlecloud.stores.deadline import is_prompt, prompt_if

Given = ParamSpec("Given")
Result = TypeVar("Result")


class WorkerPool:
    def __init__(self, *, workers: int, max_bytes: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="store")
        self._max_bytes = max_bytes
        self._under_way = 0
        self._changed = threading.Condition()

    def submit(
        self,
        size: int,
        work: Callable[Given, Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Future[Result]:
        """Run `work` in the pool; returns as soon as its `size` bytes fit into the bound."""
        with self._changed:
            # A single item above the bound is admitted when nothing else is in progress.
            self._changed.wait_for(
                lambda: not self._under_way or self._under_way + size <= self._max_bytes
            )
            self._under_way += size
        try:
            prompt = is_prompt()
            future = self._threads.submit(lambda: _done(prompt, lambda: work(*args, **kwargs)))
        except BaseException:
            self._leave(size)
            raise
        if size:
            future.add_done_callback(lambda _: self._leave(size))
        return future

    def close(self) -> None:
        """Wait for the work in progress; nothing can be submitted afterwards."""
        self._threads.shutdown()

    def _leave(self, size: int) -> None:
        with self._changed:
            self._under_way -= size
            self._changed.notify_all()


def _done(prompt: bool, work: Callable[[], Result]) -> Result:
    with prompt_if(prompt):
        return work()
