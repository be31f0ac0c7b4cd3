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


def patiently(call: Callable[[], T]) -> T:
    """What the call gives, in one of its tries."""
    tries = 0
    while True:
        try:
            return call()
        except Retry as error:
            tries += 1
            pause(error, tries)


def pause(error: Retry, tries: int) -> None:
    """Wait before the next try, or raise the error of the last one; a full disk or a full queue
    will not be better in a moment."""
    if type(error) not in (Retry, Unreachable) or tries == TRIES:
        raise error
    sleep(PAUSE * 2 ** (tries - 1))
