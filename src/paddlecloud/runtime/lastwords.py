"""What the platform adds to the log of a job that is over, before its end is told.

Its process and its monitor are gone by then, so nobody else writes there, and the reporter sends
what was added with the rest. An agent that starts again may come by a second time: what the log
ends with is not said again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddlecloud.model.texts import render
from paddlecloud.runtime import record

if TYPE_CHECKING:
    from pathlib import Path

_SHOWN = 5
_LONGEST = 200


def of_links(paths: list[str]) -> str:
    """That these links lead out of the output directory, so nothing came back for them; in both
    languages, because nobody knows whose log this is."""
    params = {"paths": names(paths)}
    lines = (render("output_links_outside", params, lang) for lang in ("en", "zh"))
    return "".join(f"[paddlecloud] {line}\n" for line in lines)


def of_unsent(code: str, told: dict[str, object]) -> str:
    """That a bucket did not take some outputs; `code` is the sentence about what became of them."""
    lines = (
        render("outputs_unsent", {"what": render(code, told, lang)}, lang) for lang in ("en", "zh")
    )
    return "".join(f"[paddlecloud] {line}\n" for line in lines)


def names(paths: list[str]) -> str:
    """The first few of them."""
    shown = ", ".join(_printable(path) for path in paths[:_SHOWN])
    return shown + (f" (+{len(paths) - _SHOWN})" if len(paths) > _SHOWN else "")


def say_once(root: Path, text: str) -> None:
    """Add lines of the platform to the log of this replica, unless it ends with them already."""
    lines = text.encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(root / record.STDOUT, flags, 0o600)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, len(lines), max(0, size - len(lines)))
        if not end.endswith(lines):
            os.write(fd, lines if end.endswith(b"\n") or not size else b"\n" + lines)
    finally:
        os.close(fd)


def _printable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:_LONGEST])
