"""The server's memory: SQL, migrations, guarded writes.

`open_sqlite` gives a `Database`; the modules beside it (`jobs`, `attempts`, `agents`, `snapshots`,
`tokens`, `coordination`) are plain functions over the `Tx` that its `read` and `write` hand out.
"""

from __future__ import annotations

from paddlecloud.db.base import Database, Row, Tx
from paddlecloud.db.sqlite import open_sqlite

__all__ = ["Database", "Row", "Tx", "open_sqlite"]
