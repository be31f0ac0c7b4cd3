"""Repeats a call that failed for a reason that may be gone in a moment: a restart, a broken line.

Whether a call may be repeated at all is its caller's knowledge.
"""

from __future__ import annotations

from time import sleep

from paddlecloud.model.errors import Retry, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

#: A server that restarts is back before the last of these tries, three seconds after the first.
TRIES = 5
#: The first pause between two tries, in seconds; each one is twice as long.
PAUSE = 0.2
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


def may_pass(error: Retry) -> bool:
    """Whether it may be gone in a moment: a full disk or a full queue will not."""
    return type(error) in (Retry, Unreachable)
