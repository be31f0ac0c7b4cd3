"""The audit log: who changed what, from where and when. Old rows are deleted.

A row is written in the transaction of its change, so there is neither a change without its row nor
a row without its change. Details are old and new values and names, never a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx, Value
from paddlecloud.db.engine.columns import bound, from_micros, json_reader, to_json, to_micros
from paddlecloud.db.tables.counters import next_number

Detail = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    number: int
    at: datetime
    actor: str
    """User id; `anonymous` for a call without a signature."""
    source: str
    """Network address of the caller."""
    action: str
    """What was done, such as `user.create`."""
    target: str
    """The user that it is about, or the id of a job."""
    detail: Detail


def record(
    tx: Tx, *, at: datetime, actor: str, source: str, action: str, target: str, detail: Detail
) -> int:
    """Add a row; returns its number."""
    number = next_number(tx, "audit")
    tx.execute(
        "insert into audit (number, at, actor, source, action, target, detail)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (number, to_micros(at), actor, source, action, target, to_json(detail)),
    )
    return number


def listed(
    tx: Tx,
    *,
    user: str | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[AuditRow]:
    """Rows, newest first; with `user`, those whose actor or target is this user."""
    wanted = ["number < ?"]
    values: list[Value] = [bound(before)]
    if user is not None:
        wanted.append("(actor = ? or target = ?)")
        values += [user, user]
    if since is not None:
        wanted.append("at >= ?")
        values.append(to_micros(since))
    rows = tx.all(
        "select number, at, actor, source, action, target, detail from audit"
        f" where {' and '.join(wanted)} order by number desc limit ?",
        [*values, limit],
    )
    return [
        AuditRow(
            number=number,
            at=from_micros(at),
            actor=actor,
            source=source,
            action=action,
            target=target,
            detail=_read_detail(detail),
        )
        for number, at, actor, source, action, target, detail in rows
    ]


def delete_old(tx: Tx, before: datetime, limit: int) -> bool:
    """Delete rows older than `before` among the oldest `limit`; returns whether there may be more.

    Rows are in the order of time, so the rows that stay need not be read.
    """
    oldest = tx.all("select number, at from audit order by number limit ?", (limit,))
    doomed = [number for number, at in oldest if at < to_micros(before)]
    if doomed:
        tx.execute(
            "delete from audit where number <= ? and at < ?", (doomed[-1], to_micros(before))
        )
    return bool(doomed) and len(oldest) == limit


_read_detail = json_reader(dict[str, str | int | float | bool | None])
