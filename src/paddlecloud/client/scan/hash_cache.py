"""The cache of file digests between scans, and helpers for cache files.

A cache only saves time: one that cannot be read or written counts as empty.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH103, PTH105, PTH108, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Known = tuple[str, str]
    """Of a file when it was read: its sha256 and its stamp."""

_HEADER = "paddlecloud-files\t2"
_MOST = 100
"""Directories of which the digests are kept: those that were submitted last."""
_DAY = 24 * 60 * 60
_MAX_SWEPT = 1000
"""Files in one sweep, so that none takes long."""


class Digests:
    """Digest and stamp of each file of a directory, by path.

    Lines of text, because splitting 10,000 of them is faster than any parser.
    """

    def __init__(self, root: str, home: str | None) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self._path = os.path.join(home, "cache", "files", name) if home else ""
        self.known = self._load()

    def save(self, cacheable: Mapping[str, Known], now: float) -> None:
        if not self._path:
            return
        if cacheable == self.known:
            touch_cache(self._path, now)
            return
        known = cacheable.items()
        lines = [f"{path}\t{sha256}\t{at}" for path, (sha256, at) in known if path.isprintable()]
        write_cache(self._path, "\n".join((_HEADER, *lines)))
        sweep_cache(os.path.dirname(self._path), _MOST)

    def _load(self) -> dict[str, Known]:
        try:
            with open(self._path, encoding="utf-8") as file:
                header, *lines = file.read().split("\n")
            if header != _HEADER:
                return {}
            parts = [line.split("\t") for line in lines]
            return {path: (sha256, read_at) for path, sha256, read_at in parts}
        except (OSError, ValueError):
            return {}


def write_cache(path: str, text: str) -> None:
    """Write a cache file, whole or not at all; errors are ignored."""
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
    """Mark a cached text as used. Once a day is enough: writes to a busy disk are slow."""
    with suppress(OSError):
        if os.stat(path).st_mtime < now - _DAY:
            os.utime(path, (now, now))


def sweep_cache(directory: str, most: int) -> None:
    """Delete all but the files of a directory that were written or used last."""
    try:
        with os.scandir(directory) as entries:
            found = [(each.stat().st_mtime_ns, each.path) for each in islice(entries, _MAX_SWEPT)]
    except OSError:
        return
    for _, path in sorted(found)[:-most]:
        with suppress(OSError):
            os.unlink(path)
