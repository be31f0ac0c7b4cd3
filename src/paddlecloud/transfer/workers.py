"""A few threads that work through one list: the first error ends all, and is raised."""

from __future__ import annotations

from threading import Lock, Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")
    Work = Callable[[Iterator[Any]], object]


def run_workers(
    count: int, next_item: Callable[[], T | None], work: Callable[[Iterator[T]], object]
) -> None:
    """Run `work` in so many threads, the caller's among them, each on its share of the items.

    `next_item` gives an item, or None at the end; one thread at a time calls it. After an error the
    other threads end with their current item, and are waited for; not so after an interrupt of the
    caller.
    """
    workers = _Workers(next_item, work)
    threads = [Thread(target=workers.run_in_thread, daemon=True) for _ in range(count - 1)]
    try:
        for thread in threads:
            thread.start()
        workers.run()
        for thread in threads:
            thread.join()
    except BaseException as error:
        workers.error = error
        raise
    if workers.error is not None:
        raise workers.error


class _Workers:
    def __init__(self, next_item: Callable[[], Any], work: Work) -> None:
        self.error: BaseException | None = None
        self._next_item = next_item
        self._work = work
        self._lock = Lock()

    def run(self) -> None:
        try:
            self._work(self._items())
        except Exception as error:  # noqa: BLE001 - raised again when all have ended
            self.error = self.error or error

    def run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            self.error = self.error or error

    def _items(self) -> Iterator[Any]:
        """The share of one thread; it holds no item while it waits for the next."""
        while (item := self._next()) is not None:
            yield item
            del item

    def _next(self) -> Any:
        with self._lock:
            return None if self.error is not None else self._next_item()
