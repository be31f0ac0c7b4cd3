"""Rate limits: how often a key may do something within a time window."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import from_micros, to_micros


def allow_rate(
    tx: Tx, name: str, key: str, limit: int, window: timedelta, now: datetime
) -> timedelta | None:
    """Count a call and return None if `key` made fewer than `limit` in the last `window`.

    Otherwise return how long to wait, and count nothing. Exact, because writes are serialized.
    Deletes expired marks of all keys, and marks in the future that a wrong clock has left.
    """
    span = (to_micros(now - window), to_micros(now + window))
    tx.run("delete from rate_marks where name = ? and (at <= ? or at > ?)", (name, *span))
    rows = tx.all("select at from rate_marks where name = ? and key = ? order by at", (name, key))
    if len(rows) < limit:
        alike = sum(1 for (at,) in rows if at == to_micros(now))
        mark = (name, key, to_micros(now), str(alike))
        tx.run("insert into rate_marks (name, key, at, nonce) values (?, ?, ?, ?)", mark)
        return None
    first = rows[len(rows) - limit][0] if limit > 0 else to_micros(now)
    return from_micros(first) + window - now
