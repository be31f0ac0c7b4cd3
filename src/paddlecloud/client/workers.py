"""A few threads that work off one list: the first that fails ends all, and its error is raised."""

from __future__ import annotations

from threading import Lock, Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")
    Work = Callable[[Iterator[Any]], object]


def work_off(
    at_once: int, following: Callable[[], T | None], work: Callable[[Iterator[T]], object]
) -> None:
    """Have so many threads, the caller's among them, do `work` on what they are given of the list.

    `following` gives what comes next, or None; one thread at a time asks it. After an error the
    others end with what they are at, and are waited for; not so after an interrupt of the caller.
    """
    crew = _Crew(following, work)
    threads = [Thread(target=crew.run_beside, daemon=True) for _ in range(at_once - 1)]
    try:
        for thread in threads:
            thread.start()
        crew.run()
        for thread in threads:
            thread.join()
    except BaseException as error:
        crew.error = error
        raise
    if crew.error is not None:
        raise crew.error


class _Crew:
    def __init__(self, following: Callable[[], Any], work: Work) -> None:
        self.error: BaseException | None = None
        self._following = following
        self._work = work
        self._lock = Lock()

    def run(self) -> None:
        try:
            self._work(self._share())
        except Exception as error:  # noqa: BLE001 - raised again when all have ended
            self.error = self.error or error

    def run_beside(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            self.error = self.error or error

    def _share(self) -> Iterator[Any]:
        """What falls to one thread."""
        while (item := self._next()) is not None:
            yield item

    def _next(self) -> Any:
        with self._lock:
            return None if self.error is not None else self._following()
