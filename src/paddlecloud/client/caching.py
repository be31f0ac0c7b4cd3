"""Keeps what is only ever a help: a text that cannot be written is as good as none."""

# pathlib costs 8 ms:
# ruff: noqa: PTH103, PTH105, PTH108, PTH120, PTH123

from __future__ import annotations

import os
from contextlib import suppress


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
