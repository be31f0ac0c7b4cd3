"""The secrets table: named values that users keep for their jobs. Nothing here unseals one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import from_micros, to_micros


@dataclass(frozen=True, kw_only=True)
class SecretRow:
    name: str
    sealed: str
    is_text: bool
    """Whether a variable can hold it."""
    created_at: datetime
    updated_at: datetime


def put_secret(
    tx: Tx, owner: str, name: str, sealed: str, now: datetime, *, is_text: bool
) -> SecretRow:
    """Store a secret, or replace its value."""
    at = to_micros(now)
    tx.execute(
        "insert into secrets (owner, name, sealed, is_text, created_at, updated_at)"
        " values (?, ?, ?, ?, ?, ?) on conflict (owner, name)"
        " do update set sealed = excluded.sealed, is_text = excluded.is_text,"
        " updated_at = excluded.updated_at",
        (owner, name, sealed, int(is_text), at, at),
    )
    return find_secrets(tx, owner, (name,))[0]


def list_secrets(tx: Tx, owner: str) -> list[SecretRow]:
    """By name."""
    return _rows(tx, "where owner = ? order by name", (owner,))


def find_secrets(tx: Tx, owner: str, names: Collection[str]) -> list[SecretRow]:
    """Those of these names that exist."""
    marks = ", ".join("?" * len(names))
    return _rows(tx, f"where owner = ? and name in ({marks})", (owner, *names)) if names else []


def delete_secret(tx: Tx, owner: str, name: str) -> bool:
    """Delete a secret; whether there was one."""
    return tx.execute("delete from secrets where owner = ? and name = ?", (owner, name)) > 0


def _rows(tx: Tx, which: str, values: tuple[str, ...]) -> list[SecretRow]:
    found = tx.all(
        f"select name, sealed, is_text, created_at, updated_at from secrets {which}",
        values,
    )
    return [
        SecretRow(
            name=name,
            sealed=sealed,
            is_text=bool(is_text),
            created_at=from_micros(created),
            updated_at=from_micros(updated),
        )
        for name, sealed, is_text, created, updated in found
    ]
