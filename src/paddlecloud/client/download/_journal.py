"""The journal of an unfinished download and the record of a finished one: JSON lines, appended.

A line of the journal, `[path, size, time, version, start, length, sha256]`, states that a range of
a file is in the staging directory. The record lists the files that a download brought, with their
local sizes and modification times: a file that still has these is as it was downloaded, and any
other file belongs to the user. A process may be killed and a disk may be full at any moment: a line
that was cut is skipped.
"""

# ruff: noqa: PTH116, PTH118, PTH120, PTH123 - paths are text: there is one for each file

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from json import dumps, loads
from threading import Lock
from typing import TYPE_CHECKING

from paddlecloud.client.scan.hash_cache import sweep_cache, write_cache

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Stamp = tuple[int, int]
    """Local size and modification time in nanoseconds: while they stay, so does the file."""
    Known = tuple[int, str]
    """Length and sha256 of a range. Without a sha256 only that of the whole file proves it."""

#: Finished downloads that are on record: those of last use.
_MAX_RECORDS = 500


class State:
    """One version of a file, and the ranges of it that are here."""

    __slots__ = ("ranges", "size", "time", "version")

    def __init__(self, size: int, time: str, version: str) -> None:
        self.size = size
        self.time = time
        self.version = version
        """As the server names it; empty until a range came from there."""
        self.ranges: dict[int, Known] = {}
        """By offset."""

    def is_version(self, size: int, time: str, version: str) -> bool:
        is_same = not version or not self.version or version == self.version
        return is_same and (size, time) == (self.size, self.time)


class Journal:
    """The journal of a download under way. Safe for several threads."""

    def __init__(self, path: str) -> None:
        # Unbuffered: what a full disk refused must not be written again when the file is closed.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - see `close`
        self._lock = Lock()

    def append(self, line: object) -> None:
        """A full disk loses the line, and nothing else."""
        with self._lock, suppress(OSError):
            self._file.write(_encode(line))

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._file.close()


def read_journal(path: str) -> tuple[str, dict[str, State]]:
    """What a journal is about, and the last known version of each file in it."""
    source, *lines = _read(path) or [""]
    states: dict[str, State] = {}
    for line in lines:
        if isinstance(line, list):
            name, size, time, version, start, *known = line
            state = states.get(name)
            if state is None or not state.is_version(size, time, version):
                states[name] = state = State(size, time, version)
            if known:
                state.ranges[start] = known[0], known[1] if len(known) > 1 else ""
                state.version = state.version or version
    return source if isinstance(source, str) else "", states


class Record:
    """What downloads of `source` brought into the directory `final`. It is a file in the directory
    `records`; without one nothing is on record."""

    def __init__(self, final: str, source: str, records: str) -> None:
        name = hashlib.sha256(os.fsencode(final)).hexdigest()[:32]
        self._path = os.path.join(records, name) if records else ""
        self._source = source
        self._files: dict[str, dict[Stamp, tuple[int, str]]] = {}
        found, identity, *lines = [*(_read(self._path) if records else []), None, None]
        self.matches = found == source and _is_identity(identity, final)
        """Whether the directory is the one that was downloaded: its name may be that of another."""
        if self.matches:
            self._load(lines)

    def _load(self, lines: list[Any]) -> None:
        legacy: dict[str, list[Any]] = {}
        for line in lines:
            if isinstance(line, list):  # until 2026-11: states and stamps apart
                legacy[line[0]] = line[1:3]
            elif isinstance(line, dict):
                for path, stamp in (line.get("stamps") or {}).items():
                    if path in legacy:
                        self._add(path, [*legacy[path], stamp])
                for path, row in (line.get("files") or line.get("coming") or {}).items():
                    self._add(path, row)

    def _add(self, path: str, row: list[Any]) -> None:
        size, time, stamp = row
        self._files.setdefault(path, {})[tuple(stamp)] = size, time

    def find(self, path: str, stamp: Stamp) -> tuple[int, str] | None:
        """Listed size and time of the version that was downloaded with this stamp, if any was."""
        return self._files.get(path, {}).get(stamp)

    def create(self, directory: str, files: Mapping[str, list[Any]]) -> None:
        """Start the record of a directory that is about to become the final one. A record that
        cannot be written is missed only by a later `resume`."""
        if self._path:
            identity = {"inode": os.stat(directory).st_ino}
            lines = [self._source, identity, {"files": files}]
            write_cache(self._path, b"".join(map(_encode, lines)).decode())
            sweep_cache(os.path.dirname(self._path), _MAX_RECORDS)

    def append(self, files: Mapping[str, list[Any]]) -> None:
        """Add versions of files. They are written down before the files get their names: after a
        kill in between, those that did and those that did not are on record."""
        if files and self._path:
            with suppress(OSError), open(self._path, "ab", buffering=0) as file:
                file.write(_encode({"files": files}))


def stamp_of(path: str) -> Stamp | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _is_identity(identity: object, directory: str) -> bool:
    # By inode, not device: network file systems get another device number with each mount.
    try:
        return isinstance(identity, dict) and identity.get("inode") == os.stat(directory).st_ino
    except OSError:
        return False


def _encode(line: object) -> bytes:
    # The first line end closes a line that was cut.
    return f"\n{dumps(line)}\n".encode()


def _read(path: str) -> list[Any]:
    lines = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                with suppress(ValueError):  # empty, or cut
                    lines.append(loads(line))
    except (OSError, ValueError):
        return []
    return lines
