"""The last lines of a log, cleaned up for display on any terminal.

A log is whatever the user's program wrote: progress bars, colours, invalid UTF-8, lines of
megabytes. The result has none of these.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TAIL_BYTES = 16 * 1024
"""Bytes to read from the end of a log for its last lines."""
MAX_LINES = 20
MAX_LETTERS = 400
_OURS = "[paddlecloud] "

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def last_lines(tail: bytes, count: int = MAX_LINES) -> tuple[str, ...]:
    """The last `count` lines, without trailing empty ones and without trailing lines of the
    platform, unless there are no others."""
    tail, start = tail[-TAIL_BYTES:], 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1  # the tail begins inside a character
    text = tail[start:].decode("utf-8", "replace")
    lines = _without_end([_clean(line) for line in text.split("\n")], lambda line: not line)
    theirs = _without_end(lines, lambda line: not line or line.startswith(_OURS))
    return tuple((theirs or lines)[-count:])


def _without_end(lines: list[str], is_left_out: Callable[[str], bool]) -> list[str]:
    end = len(lines)
    while end and is_left_out(lines[end - 1]):
        end -= 1
    return lines[:end]


def _clean(line: str) -> str:
    line = _ESCAPE.sub("", line)
    states = [state for state in line.split("\r") if state.strip()]
    last = states[-1] if states else ""
    shown = "".join(
        letter if letter.isprintable() else " " if letter == "\t" else "\ufffd" for letter in last
    ).rstrip()
    return shown if len(shown) <= MAX_LETTERS else shown[: MAX_LETTERS - 3] + "..."
