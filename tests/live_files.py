"""Reads a directory while a server and its agent create and delete files in it.

`Path.rglob` breaks off when a directory goes while it is read; what has gone is no finding here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def files_below(top: Path) -> Iterator[Path]:
    """Everything below it that is no directory, nor a link to one."""
    for above, _, names in os.walk(top):
        yield from (Path(above, name) for name in names)


def contents_below(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below it with what is in it; pipes, sockets and links are left out."""
    for path in files_below(top):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
