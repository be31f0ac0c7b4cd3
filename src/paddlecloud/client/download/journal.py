"""The journal of a download: facts, each a line of JSON, for whoever takes it up later.

Of a piece that is here and is right, the fact is `[path, size, time, version, start, length,
sha256]`; one without a length tells a state of a file, and of no piece. Facts are only ever added,
so a process may be killed and a disk may be full at any moment: the line after one that was cut
ends it, and it says nothing.
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

    Piece = tuple[int, str]
    """How long it is, and its sha256; a piece that did not come from the server has none: that it
    is right, and of what state, only a digest of the whole file tells."""


class Known:
    """One state of a file, and which pieces of it are here."""

    __slots__ = ("pieces", "size", "time", "version")

    def __init__(self, size: int, time: str, version: str = "") -> None:
        self.size = size
        self.time = time
        self.version = version
        """What the server calls this state; empty until a piece came from there."""
        self.pieces: dict[int, Piece] = {}
        """By where each begins."""

    def is_of(self, size: int, time: str, version: str) -> bool:
        is_same = not version or not self.version or version == self.version
        return is_same and (size, time) == (self.size, self.time)

    def add(self, version: str, start: int, length: int, sha256: str = "") -> None:
        self.pieces[start] = length, sha256
        self.version = self.version or version


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
    found = _read(path)
    return found if found and found[0] == what else []


def other_than(path: str, what: str) -> str:
    """What else than `what` a journal is about; empty if it tells of no piece of that."""
    first, *facts = _read(path) or [what]
    if first == what or not isinstance(first, str):
        return ""
    return first if any(known.pieces for known in learned(facts).values()) else ""


def learned(facts: Iterable[Any]) -> dict[str, Known]:
    """By path its last state."""
    known: dict[str, Known] = {}
    for fact in facts:
        if isinstance(fact, list):
            path, size, time, version, start, *piece = fact
            found = known.get(path)
            if found is None or not found.is_of(size, time, version):
                known[path] = found = Known(size, time, version)
            if piece:
                found.add(version, start, *piece)
    return known


def _read(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return [*_facts(file)]
    except (OSError, ValueError):
        return []


def _facts(lines: Iterable[str]) -> Iterator[Any]:
    for line in lines:
        try:
            fact = loads(line)
        except ValueError:  # nothing, or cut
            continue
        yield fact
