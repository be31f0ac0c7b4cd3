"""What is remembered of a finished download: which of its files are still as they came.

All others are a person's own. A file whose size and time of change stayed the same was not changed;
the directory itself is known by its inode, because anybody can give its name to another one. Of
directories that are gone nothing is remembered for long.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH108, PTH116, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from json import dumps, loads
from time import time

from paddlecloud.client.download.journal import Known, learned, read
from paddlecloud.client.scan.hash_cache import write_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Stamp = list[int]

_STAMPS, _COMING = "stamps", "coming"
_DAY = 24 * 3600
#: Days for which a record is kept that nobody wrote anew; if its directory is not there, which may
#: be on a disk that is not mounted now.
_LONGEST, _LONGEST_GONE = 400, 30
#: Records that are looked at whenever one is written.
_MOST_LOOKED_AT = 20


def records_in(home: str) -> str:
    """Where finished downloads are remembered, below PADDLECLOUD_HOME."""
    return os.path.join(home, "cache", "downloads")


def stamp_of(path: str) -> Stamp | None:
    """While this stays the same, so does the file; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


class Record:
    """Of a download of `what` into the directory `final`; it is kept in the directory `records`,
    or, if none is named, nowhere."""

    def __init__(self, final: str, what: str, records: str) -> None:
        name = hashlib.sha256(os.fsencode(final)).hexdigest()[:32]
        self._path = os.path.join(records, name) if records else ""
        self._final = final
        self._what = what
        self._had: dict[str, Known] = {}
        self._stamps: dict[str, Stamp] = {}
        self._coming: dict[str, list[Any]] = {}
        """Size, time and stamp of files that were about to get their names, and may have them."""

    def is_of_this(self) -> bool:
        """Whether the directory is the one that was downloaded."""
        facts = read(self._path, self._what) if self._path else []
        try:
            now = _identity(self._final)
        except OSError:  # a link to nowhere
            return False
        # Earlier records tell the device, too, but that may have another number after a reboot.
        known = facts[1] if len(facts) > 1 else None
        return isinstance(known, dict) and known.get("inode") == now["inode"]

    def recall(self) -> None:
        """Take up what was remembered."""
        facts = read(self._path, self._what)
        self._had = learned(facts)
        for fact in facts:
            if isinstance(fact, dict):
                self._stamps |= fact.get(_STAMPS) or {}
                self._coming |= fact.get(_COMING) or {}

    def found(self, path: str, now: Stamp) -> Known | None:
        """Which state of a file lies there with this stamp; None: one that a person put there."""
        size, time, stamp = self._coming.get(path) or (0, "", None)
        if stamp == now:
            self.add(path, Known(size, time), now)
        return self._had.get(path) if self._stamps.get(path) == now else None

    def version(self, path: str) -> str:
        """What the server called the state of a file that is here."""
        return self._had[path].version

    def confirm(self, path: str, now: Stamp, time: str) -> None:
        """A file with this stamp is as it came, whatever its time was before; `time` tells it from
        the next one on the server, if nothing did."""
        self._stamps[path] = now
        if path in self._had:
            self._had[path].time = self._had[path].time or time

    def add(self, path: str, state: Known, stamp: Stamp) -> None:
        self._had[path], self._stamps[path] = state, stamp
        self._coming.pop(path, None)

    def expect(self, coming: Mapping[str, list[Any]]) -> None:
        """Write down which files are about to get their names: whoever is killed meanwhile leaves
        some that did and some that did not, and all are known."""
        self._coming |= coming
        if coming:
            self.write()

    def write(self, directory: str = "") -> None:
        """Remember it all; `directory` is going to be the final one, unless that is there. What
        cannot be kept is missed only by whoever adds to the directory later. Some records that are
        of no use any more go."""
        if not self._path:
            return
        ours = [[path, had.size, had.time, had.version, 0] for path, had in self._had.items()]
        more = {_STAMPS: self._stamps, _COMING: self._coming}
        with suppress(OSError):
            identity = {**_identity(directory or self._final), "path": self._final}
            write_cache(self._path, "\n".join(map(dumps, [self._what, identity, *ours, more])))
            sweep(os.path.dirname(self._path), time())


def sweep(records: str, now: float) -> None:
    """Delete records of directories that are gone and very old ones, among a few: others have
    their turn another time."""
    names = sorted(os.listdir(records))
    first = int.from_bytes(os.urandom(4)) % max(1, len(names))
    for name in (names[first:] + names[:first])[:_MOST_LOOKED_AT]:
        path = os.path.join(records, name)
        with suppress(OSError):
            age = now - os.stat(path).st_mtime
            if age > _LONGEST * _DAY or (age > _LONGEST_GONE * _DAY and _is_gone(path)):
                os.unlink(path)


def _is_gone(record: str) -> bool:
    """Whether the directory is, of which a record tells."""
    with open(record, encoding="utf-8") as file, suppress(ValueError):
        _, identity = file.readline(), loads(file.readline())
        where = identity.get("path") if isinstance(identity, dict) else None
        return isinstance(where, str) and not os.path.lexists(where)
    return False


def _identity(directory: str) -> dict[str, int]:
    return {"inode": os.stat(directory).st_ino}
