"""Directories for tests of what is submitted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from paddlecloud.client.scan import walk
from paddlecloud.client.scan.walk import Scan
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of

NOW = 4_000_000_000.0
"""Long after every file of a test was written."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree(root: Path, contents: dict[str, bytes | None]) -> Path:
    """Write files by path; None makes an empty directory."""
    for name, data in contents.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (1_000_000_000, 1_000_000_000))  # so that any change has another time
    return root


def source_root() -> str:
    return str(Path(walk.__file__).parents[3])


def rows(found: Scan) -> dict[str, tuple[str, int, str, int, str]]:
    return {row[0]: row[1:] for row in found.entries}


def as_snapshot(found: Scan) -> Snapshot:
    return snapshot_of(
        Entry(path=p, kind=EntryKind(k), size=n, sha256=d, executable=bool(x), target=t)
        for p, k, n, d, x, t in found.entries
    )
