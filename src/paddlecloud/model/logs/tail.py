"""The last bytes of a log as lines that are safe to print on any terminal.

A log is whatever the user's program wrote: progress bars that redraw themselves, colours, broken
UTF-8, lines of megabytes. What is shown to a person keeps the meaning and none of that.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TAIL_BYTES = 16 * 1024
"""As much of a log as is worth fetching for its last lines."""
MAX_LINES = 20
MAX_LETTERS = 400
_OURS = "[paddlecloud] "

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def last_lines(tail: bytes, count: int = MAX_LINES) -> tuple[str, ...]:
    """The last `count` lines, trailing empty ones left out, and those that the platform added
    behind what the program said, unless there are no others."""
    text = _without_broken_start(tail[-TAIL_BYTES:]).decode("utf-8", "replace")
    lines = _without_end([_clean(line) for line in text.split("\n")], lambda line: not line)
    theirs = _without_end(lines, lambda line: not line or line.startswith(_OURS))
    return tuple((theirs or lines)[-count:])


def _without_end(lines: list[str], is_left_out: Callable[[str], bool]) -> list[str]:
    end = len(lines)
    while end and is_left_out(lines[end - 1]):
        end -= 1
    return lines[:end]


def _without_broken_start(tail: bytes) -> bytes:
    """Cut at any byte, a tail may begin inside a letter: its continuation bytes are dropped."""
    start = 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    return tail[start:]


def _clean(line: str) -> str:
    line = _ESCAPE.sub("", line)
    states = [state for state in line.split("\r") if state.strip()]
    last = states[-1] if states else ""
    shown = "".join(
        letter if letter.isprintable() else " " if letter == "\t" else "\ufffd" for letter in last
    ).rstrip()
    return shown if len(shown) <= MAX_LETTERS else shown[: MAX_LETTERS - 3] + "..."
