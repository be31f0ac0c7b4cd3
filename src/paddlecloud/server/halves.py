"""The digest of a large file that is read over several requests, as one server has it in its mind.

Only one is kept, for only one search for damage is expected at a time. Whoever finds it gone, after
a restart or at another server, reads that file from its beginning.
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


class Halves:
    def __init__(self) -> None:
        self.turn = threading.Lock()
        """Held for a page: disks and cores are for others first."""
        self._kept: Half | None = None

    def keep(self, half: Half) -> None:
        self._kept = half

    def take(self, path: str, offset: int) -> Half | None:
        """What was read up to there, if that is known; it is forgotten."""
        kept, self._kept = self._kept, None
        return kept if kept and (kept.path, kept.offset) == (path, offset) else None
