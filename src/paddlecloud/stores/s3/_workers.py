"""A few threads that do a store's requests, and a bound on the bytes that wait for them.

Whoever hands in work waits while too many bytes are under way: that is how a fast sender is held to
the speed of a slow store. What the work is, and whether to try it again, is the caller's affair.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from paddlecloud.stores.deadline import is_prompt, prompt_if

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Crew:
    def __init__(self, *, workers: int, room: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="store")
        self._room = room
        self._under_way = 0
        self._changed = threading.Condition()

    def submit(
        self,
        size: int,
        work: Callable[Given, Result],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Future[Result]:
        """Have `work` done; returns as soon as there is room for its `size` bytes."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
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
        """Wait for what is under way; nothing can be handed in afterwards."""
        self._threads.shutdown()

    def _has_room(self, size: int) -> bool:
        # What alone is more than the room may go when nothing else is under way.
        return not self._under_way or self._under_way + size <= self._room

    def _leave(self, size: int) -> None:
        with self._changed:
            self._under_way -= size
            self._changed.notify_all()


def _done(prompt: bool, work: Callable[[], Result]) -> Result:
    with prompt_if(prompt):
        return work()
