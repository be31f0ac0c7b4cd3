"""Keeps what is only ever a help: a text that cannot be written is as good as none."""

# pathlib costs 8 ms:
# ruff: noqa: PTH103, PTH105, PTH108, PTH116, PTH120, PTH123

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

_DAY = 24 * 60 * 60
_MOST_LOOKED_AT = 1000
"""In one sweep, so that none takes long; the next goes on."""


def write_cache(path: str, text: str) -> None:
    """Keep a text for the next time, whole or not at all; a disk that takes nothing is no harm."""
    part = f"{path}.{os.urandom(8).hex()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)


def touch_cache(path: str, now: float) -> None:
    """A kept text was of use. Once a day is enough: a busy disk lets whoever writes wait."""
    with suppress(OSError):
        if os.stat(path).st_mtime < now - _DAY:
            os.utime(path, (now, now))


def sweep_cache(directory: str, most: int) -> None:
    """Keep only those texts of a directory that were written or of use last."""
    try:
        with os.scandir(directory) as entries:
            found = [
                (each.stat().st_mtime_ns, each.path) for each in islice(entries, _MOST_LOOKED_AT)
            ]
    except OSError:
        return
    for _, path in sorted(found)[:-most]:
        with suppress(OSError):
            os.unlink(path)
