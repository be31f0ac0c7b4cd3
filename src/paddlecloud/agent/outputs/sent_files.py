"""`shipped.json`: the output files of a replica that the server has, with size, time and sha256.

Lies beside the files, so that a new agent need not send them again. A file counts as sent while its
size, modification time and inode are those it was sent with. A write through a memory map may leave
all three as they are: when the job is over, each file is read once more and its digest compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlecloud.agent.outputs.scan import wire_time
from paddlecloud.agent.replica import records

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.outputs.scan import Found

SHIPPED = "shipped.json"
#: A smaller file is sent whole as fast as it is checked whether it only grew.
_LEAST_GROWN = 64 * 1024


class SentFiles:
    def __init__(self, root: Path) -> None:
        self._path = root / SHIPPED
        known = records.read(self._path)
        rows = known.items() if isinstance(known, dict) else ()
        self._rows: dict[str, tuple[int, int, int, str]] = {}
        """Size, modification time (ns), inode and sha256, by name."""
        for name, (size, mtime_ns, inode, *rest) in rows:
            self._rows[name] = size, mtime_ns, inode, rest[0] if rest else ""
        self._changed = False

    def has(self, found: Found) -> bool:
        """Whether this file was sent, and is unchanged since."""
        row = self._rows.get(found.name)
        return row is not None and row[:3] == found.mark

    def add(self, found: Found, sha256: str = "") -> None:
        """`sha256`: of what was sent, where that is known."""
        self._rows[found.name] = (*found.mark, sha256)
        self._changed = True

    def remove(self, name: str) -> None:
        """The server does not have it after all."""
        self._changed = self._rows.pop(name, None) is not None or self._changed

    def sha256(self, found: Found) -> str:
        """Of what was sent of this file, if it is unchanged since; empty where not known."""
        return self._rows[found.name][3] if self.has(found) else ""

    def prefix(self, found: Found) -> tuple[int, str] | None:
        """Size and sha256 of what was sent of this file, if it has grown since."""
        row = self._rows.get(found.name)
        if row is None or not row[3] or row[2] != found.mark[2]:
            return None
        return (row[0], row[3]) if _LEAST_GROWN <= row[0] < found.size else None

    def rows(self) -> list[tuple[str, int, float, str]]:
        """Name, size, modification time and sha256 of all that was sent."""
        return [(name, row[0], wire_time(row[1]), row[3]) for name, row in self._rows.items()]

    def save(self) -> None:
        """Raises OSError on a full disk; then the files may be sent again by the next agent."""
        if self._changed:
            records.write(self._path, self._rows)
            self._changed = False
