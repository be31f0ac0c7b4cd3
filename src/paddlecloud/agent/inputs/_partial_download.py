"""Contents on their way into the cache: a line that breaks costs none of the bytes that came.

What came of a content lies in a file aside, and its digest so far in memory. The next request, to
the bucket or to whichever server, asks for the rest, for as long as something came since the break
before; then whoever wanted it tries again later, and goes on too. With the process that memory
ends, and the next one begins anew: what a file holds after a crash nobody knows without reading it.
Whether the whole is right is for the caller to judge.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs._presigned import Check
from paddlecloud.model.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paddlecloud.agent.inputs._presigned import Wanted

    Take = Callable[[bytes], object]
    Fetch = Callable[[int, Take], bool]
    """Hands over the bytes from there on; whether the last one was among them."""

PART = ".part"


class Half:
    """What came of a content. Belongs to one thread at a time."""

    def __init__(self, wanted: Wanted, path: Path) -> None:
        self.wanted = wanted
        self.path = path
        self.check = Check(wanted)

    def receive(self, fetch: Fetch, check_wanted: Callable[[], None]) -> bool:
        """Whether the last byte came. Raises what `fetch` raises when nothing comes any more, and
        what `check_wanted` raises."""
        with self.path.open("ab") as out:

            def take(piece: bytes) -> None:
                check_wanted()
                out.write(piece)
                self.check.take(piece)

            while not 0 < self.wanted.size <= self.check.size:
                before = self.check.size
                try:
                    if fetch(before, take):
                        break
                except Unreachable:
                    if self.check.size == before:
                        raise
                if self.check.size == before:
                    return False
        return True

    def is_intact(self) -> bool:
        """Whether its file is still as it was left."""
        with suppress(OSError):
            return self.path.stat().st_size == self.check.size
        return False

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


class Halves:
    """Those with which nobody goes on at this moment. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Half] = {}

    def take(self, wanted: Wanted, target: Path) -> Half:
        """What came of it before, or a new one beside `target`; it is the caller's alone."""
        with self._lock:
            found = self._kept.pop((wanted.sha256, wanted.tag), None)
        if found is not None:
            if found.is_intact():
                return found
            found.drop()
        return Half(wanted, aside(target))

    def keep(self, half: Half) -> None:
        """For who goes on with it; of two the larger."""
        key = half.wanted.sha256, half.wanted.tag
        with self._lock:
            other = self._kept.pop(key, None)
            smaller, larger = sorted([half, other or half], key=lambda one: one.check.size)
            if larger.check.size:
                self._kept[key] = larger
        if smaller is not larger or not larger.check.size:
            smaller.drop()

    def deletion(self, path: Path) -> Callable[[], None] | None:
        """Deletes the half that lies there unless somebody goes on with it; None if it is none."""
        with self._lock:
            found = [key for key, half in self._kept.items() if half.path == path]
        return (lambda: self._delete(found[0], path)) if found else None

    def _delete(self, key: tuple[str, str], path: Path) -> None:
        with self._lock:
            half = self._kept.get(key)
            if half is None or half.path != path:
                raise BlockingIOError(f"somebody goes on with {path}")
            del self._kept[key]
        half.drop()


def aside(path: Path) -> Path:
    """A file beside that one which nobody has."""
    # By chance: in containers the process and thread of an earlier agent had the same numbers.
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}{PART}")
