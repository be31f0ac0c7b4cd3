"""A database file with our tables for every test: they are made once in a process, then copied.

The way there from an empty file has its own tests, and takes seven times as long.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from paddlecloud.db.engine.sqlite import SqliteDatabase, open_sqlite


def open_with_tables(path: Path, *, now: datetime) -> SqliteDatabase:
    """The database at `path`; where there is none it begins with our tables and nothing in them."""
    if not path.exists():
        path.write_bytes(_migrated())
    return open_sqlite(path, now=now)


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory(prefix="paddlecloud-sqlite-") as folder:
        path = Path(folder) / "paddlecloud.db"
        open_sqlite(path, now=datetime(2020, 5, 17, tzinfo=UTC)).close()
        return path.read_bytes()
