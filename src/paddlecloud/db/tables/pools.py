"""The pools table: pools that an admin added. Those of the settings file are not here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import json_reader, to_json, to_micros


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    name: str
    options: Mapping[str, Any]
    """The keys that its table in a settings file would have, without secrets."""
    sealed: str | None
    """JSON of its secrets, encrypted."""


def add(tx: Tx, pool: StoredPool, now: datetime, created_by: str) -> bool:
    """Store a pool; False, and nothing changed, if there is one of this name."""
    changed = tx.execute(
        "insert into pools (name, options, sealed, created_at, created_by)"
        " values (?, ?, ?, ?, ?) on conflict (name) do nothing",
        (pool.name, to_json(pool.options), pool.sealed, to_micros(now), created_by),
    )
    return changed == 1


def list_pools(tx: Tx) -> list[StoredPool]:
    """Pools in the order in which they were added."""
    rows = tx.all("select name, options, sealed from pools order by created_at, name")
    return [
        StoredPool(name=name, options=_read_options(options), sealed=sealed)
        for name, options, sealed in rows
    ]


def delete(tx: Tx, name: str) -> bool:
    return tx.execute("delete from pools where name = ?", (name,)) == 1


_read_options: Callable[[str], dict[str, Any]] = json_reader(dict[str, Any])
