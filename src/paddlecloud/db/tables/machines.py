"""The machines table: machines that joined a pool with a token, until they are removed.

What their agents report of them is in `agents`, the keys of these in `agent_keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, json_reader, to_json, to_micros

_COLUMNS = "name, pool, labels, joined_at, drained"


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: str
    """Also the id of its node."""
    pool: str
    labels: Mapping[str, str]
    joined_at: datetime
    drained: str | None = None
    """Why it takes no new jobs; None: it takes them."""


def put(tx: Tx, machine: Machine) -> None:
    """Store a machine. One that joins again keeps whether it is drained."""
    tx.execute(
        f"insert into machines ({_COLUMNS}) values (?, ?, ?, ?, null) on conflict (name) do update"
        " set pool = excluded.pool, labels = excluded.labels, joined_at = excluded.joined_at",
        (machine.name, machine.pool, to_json(machine.labels), to_micros(machine.joined_at)),
    )
    tx.notify("agents", machine.name)


def get(tx: Tx, name: str) -> Machine | None:
    row = tx.one(f"select {_COLUMNS} from machines where name = ?", (name,))
    return _machine(row) if row else None


def list_machines(tx: Tx) -> list[Machine]:
    """All machines, by pool and name."""
    rows = tx.all(f"select {_COLUMNS} from machines order by pool, name")
    return [_machine(row) for row in rows]


def set_labels(tx: Tx, name: str, labels: Mapping[str, str]) -> None:
    tx.execute("update machines set labels = ? where name = ?", (to_json(labels), name))
    tx.notify("agents", name)


def set_drained(tx: Tx, name: str, reason: str | None) -> None:
    """Take no new jobs there for this reason; None: take them again."""
    tx.execute("update machines set drained = ? where name = ?", (reason, name))
    tx.notify("agents", name)


def delete(tx: Tx, name: str) -> bool:
    deleted = tx.execute("delete from machines where name = ?", (name,)) == 1
    tx.notify("agents", name)
    return deleted


_read_labels: Callable[[str], dict[str, str]] = json_reader(dict[str, str])


def _machine(row: Row) -> Machine:
    name, pool, labels, joined_at, drained = row
    return Machine(
        name=name,
        pool=pool,
        labels=_read_labels(labels),
        joined_at=from_micros(joined_at),
        drained=drained,
    )
