"""Repeats a call that failed for a reason that may be gone in a moment: a restart, a broken line.

Whether a call may be repeated at all is its caller's knowledge.
"""

from __future__ import annotations

from time import sleep

from paddlecloud.model.errors import Retry, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import TypeVar

    T = TypeVar("T")

#: A server that restarts is back before the last of these tries, three seconds after the first.
TRIES = 5
#: The first pause between two tries, in seconds; each one is twice as long.
PAUSE = 0.2
#: Seconds between tries of all that is left of an upload or a download whose line is cut; each one
#: takes some seconds by itself.
PAUSES = (2.0, 4.0, 8.0)
#: What a server says after it has tried for some seconds itself: the next try is no better soon.
TRIED = ("store_failed", "store_unreachable")


def patiently(call: Callable[[], T]) -> T:
    """What the call gives, in one of its tries."""
    for tries_left in range(TRIES - 1, -1, -1):
        try:
            return call()
        except Retry as error:
            if not tries_left or not may_pass(error) or error.code in TRIED:
                raise
            sleep(PAUSE * 2 ** (TRIES - 1 - tries_left))
    raise AssertionError("the last try returns or raises")


class Patience:
    """How long an upload or a download is taken up again whose line is cut: as long as the pauses
    last, and from their beginning whenever something arrived. After a second error with a code of
    `once` no pause helps."""

    def __init__(self, pauses: Sequence[float], once: Collection[str] = ()) -> None:
        self._pauses = pauses
        self._once = once
        self.progressed()

    def progressed(self) -> None:
        """Something arrived since the last error."""
        self._used = 0
        self._met: set[str] = set()

    @property
    def is_fresh(self) -> bool:
        """Whether the next pause is the first: somebody should be told of it."""
        return not self._used

    def next_pause(self, error: Retry) -> float | None:
        """Seconds to wait after this; None: it is no use."""
        if not may_pass(error) or error.code in self._met or self._used == len(self._pauses):
            return None
        if error.code in self._once:
            self._met.add(error.code)
        self._used += 1
        return self._pauses[self._used - 1]


def may_pass(error: Retry) -> bool:
    """Whether it may be gone in a moment: a full disk or a full queue will not."""
    return type(error) in (Retry, Unreachable)
