"""How much may still be written to the agent's disk: a reserve is left free, as by the server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: So much is left free, or this part of a small disk.
_RESERVE = 256 * 1024 * 1024
_RESERVE_PART = 32


def room(top: Path) -> int:
    """Bytes that are free beyond the reserve; below 0 it is touched."""
    try:
        disk = os.statvfs(top)
    except OSError:
        return 0
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _RESERVE_PART)
    return disk.f_bavail * disk.f_frsize - reserve
