"""The journal of a download: facts, each a line of JSON, for whoever takes it up later.

Of a piece that is here and is right, the fact is `[path, size, time, version, start]`. Facts are
only ever added, so a process may be killed and a disk may be full at any moment: the line after one
that was cut ends it, and it says nothing.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH123

from __future__ import annotations

from contextlib import suppress
from json import dumps, loads
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


class Known:
    """One state of a file, and which pieces of it are here."""

    __slots__ = ("size", "starts", "time", "unsure", "version")

    def __init__(self, size: int, time: str, version: str = "") -> None:
        self.size = size
        self.time = time
        self.version = version
        """What the server calls this state; empty until a piece came from there."""
        self.starts: list[int] = []
        self.unsure = False
        """Whether a piece came from elsewhere: that it is of this state only a digest can tell."""

    def is_of(self, size: int, time: str, version: str) -> bool:
        is_same = not version or not self.version or version == self.version
        return is_same and (size, time) == (self.size, self.time)

    def add(self, start: int, version: str) -> None:
        self.starts.append(start)
        self.version = self.version or version
        self.unsure = self.unsure or not version


class Journal:
    """One that is being written, by several threads."""

    def __init__(self, path: str) -> None:
        # Without a buffer: what a full disk did not take is not tried again when it is closed.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - see `close`
        self._lock = Lock()

    def note(self, fact: object) -> None:
        """Keep a fact; a full disk keeps none and harms none."""
        with self._lock, suppress(OSError):
            self._file.write(f"\n{dumps(fact)}\n".encode())

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._file.close()


def read(path: str, what: str) -> list[Any]:
    """The facts of a journal about `what`; none when it is that of something else."""
    try:
        with open(path, encoding="utf-8") as file:
            found = [*_facts(file)]
    except (OSError, ValueError):
        return []
    return found if found and found[0] == what else []


def learned(facts: Iterable[Any]) -> dict[str, Known]:
    """By path its last state."""
    known: dict[str, Known] = {}
    for fact in facts:
        if isinstance(fact, list):
            path, size, time, version, start = fact
            found = known.get(path)
            if found is None or not found.is_of(size, time, version):
                known[path] = found = Known(size, time)
            found.add(start, version)
    return known


def _facts(lines: Iterable[str]) -> Iterator[Any]:
    for line in lines:
        try:
            fact = loads(line)
        except ValueError:  # nothing, or cut
            continue
        yield fact
