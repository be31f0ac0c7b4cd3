"""The server's database: SQLite or PostgreSQL, migrations, guarded writes.

`open_database` returns a `Database` (`engine.base`). The modules of `tables` (`jobs`, `attempts`,
`usage` and so on) are plain functions over the `Tx` that its `read` and `write` pass to a callable.
Rules about jobs are in `model`, not here.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from paddlecloud.db.engine.base import Database
from paddlecloud.db.engine.disk_reserve import SIZE
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.model.errors import ConfigError


def open_database(
    place: str | Path, *, now: datetime, connections: int = 10, must_exist: bool = False
) -> Database:
    """Open the database at a path (SQLite) or postgresql:// URL; create or migrate it if needed.

    `must_exist`: raise ConfigError (database_lost) if it is missing or empty; create nothing.
    """
    if not isinstance(place, str) or not place.startswith(("postgresql://", "postgres://")):
        return open_sqlite(Path(place), now=now, reserve=SIZE, must_exist=must_exist)
    try:
        from paddlecloud.db.engine.postgres import (  # noqa: PLC0415 - psycopg is optional
            open_postgres,
        )
    except ImportError as error:
        raise ConfigError("database_driver_missing", detail=str(error)) from error
    return open_postgres(place, now=now, connections=connections, must_exist=must_exist)
