"""Digests of large files that are read over several requests, as one server has them in its mind.

A search for damage may have its next page at another server, or after a restart: who has nothing of
the file begins with it. So each server goes on from its own half, and one of them comes to the end.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

    from paddlecloud.stores.base import Stat


@dataclass(kw_only=True)
class Half:
    """What was read of a file so far."""

    path: str
    stat: Stat | None = None
    offset: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)


KEPT = 8
"""Few searches go on at the same time; each has one file."""


class Halves:
    def __init__(self) -> None:
        self.turn = threading.Lock()
        """Held for a page: disks and cores are for others first."""
        self._kept: dict[str, Half] = {}

    def keep(self, half: Half) -> None:
        self._kept[half.path] = half
        while len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))

    def take(self, path: str) -> Half:
        """What was read of this file before; it is forgotten."""
        return self._kept.pop(path, None) or Half(path=path)
