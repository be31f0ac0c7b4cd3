"""What the platform adds to the log of a job that is over, before its end is told.

Its process and its monitor are gone by then, so nobody else writes there, and the reporter sends
what was added with the rest. An agent that starts again may come by a second time: what the log
ends with is not said again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddlecloud.model import reasons
from paddlecloud.model.paths import shown
from paddlecloud.model.texts import LANGUAGES, render
from paddlecloud.runtime import record, workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHOWN = 5
_LONGEST = 200
_AREAS = {workspace.OUTPUT: "OUTPUT_PATH", workspace.LOG: "LOCAL_LOG_PATH"}


def of_outputs(code: str, replica: str, paths: list[str]) -> str:
    """What became of these outputs, none of which came back as it is; in both languages, because
    nobody knows whose log this is."""
    return lines(code, {"paths": names(replica, paths)}) if paths else ""


def lines(code: str, params: dict[str, object]) -> str:
    """A sentence of the platform as it stands in a log: a line in each language."""
    return "".join(f"[paddlecloud] {render(code, params, lang)}\n" for lang in LANGUAGES)


def of_unsent(code: str, told: Mapping[str, object], *, bucket: bool) -> str:
    """That its bucket, or else the server, did not take some outputs, or that they could not be
    read; `code` is the sentence about what became of them."""
    whole = reasons.of_unsent(told, own_bucket=bucket)
    said = (render(whole, {"message": render(code, told, lang)}, lang) for lang in LANGUAGES)
    return "".join(f"[paddlecloud] {line}\n" for line in said)


def names(replica: str, paths: list[str]) -> str:
    """The first few of them, as their owner knows them."""
    known = (_AREAS.get(path) or shown(replica, path) for path in paths[:_SHOWN])
    few = ", ".join(_printable(path) for path in known)
    return few + (f" (+{len(paths) - _SHOWN})" if len(paths) > _SHOWN else "")


def say_once(root: Path, text: str) -> None:
    """Add lines of the platform to the log of this replica, unless it ends with them already."""
    added = text.encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(root / record.STDOUT, flags, 0o600)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, len(added), max(0, size - len(added)))
        if not end.endswith(added):
            os.write(fd, added if end.endswith(b"\n") or not size else b"\n" + added)
    finally:
        os.close(fd)


def _printable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:_LONGEST])
