"""Leases: which server runs a loop, with a fence per lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import to_micros


@dataclass(frozen=True, kw_only=True)
class Held:
    """The state of a lease between two renewals."""

    fence: int
    until: int
    """Microseconds of its holder's clock."""


def take_lease(
    tx: Tx, name: str, holder: str, now: datetime, ttl: timedelta, *, dead: Held | None = None
) -> int | None:
    """Take or renew a lease until `now + ttl`; its fence, or None while another server holds it.

    The fence grows with every change of holder and after every expiry, and never shrinks. A lease
    that still equals `dead` counts as expired, whatever its expiry time.
    """
    row = tx.one(
        "insert into leases (name, holder, fence, expires_at) values (?, ?, 1, ?)"
        " on conflict (name) do update set holder = excluded.holder,"
        " expires_at = excluded.expires_at, fence = case when leases.holder = excluded.holder"
        " and leases.expires_at > ? then leases.fence else leases.fence + 1 end"
        " where leases.holder = excluded.holder or leases.expires_at <= ?"
        " or (leases.fence = ? and leases.expires_at = ?) returning fence",
        (
            name,
            holder,
            to_micros(now + ttl),
            to_micros(now),
            to_micros(now),
            *((dead.fence, dead.until) if dead else (0, 0)),
        ),
    )
    return int(row[0]) if row else None


def held_by_others(tx: Tx, name: str, holder: str, now: datetime) -> Held | None:
    """The lease as another server holds it now; None: `take_lease` would succeed.

    A live holder renews it, so the result changes. That is more reliable than the expiry time,
    which comes from a clock that may be wrong.
    """
    row = tx.one("select holder, fence, expires_at from leases where name = ?", (name,))
    if row is None or row[0] == holder or row[2] <= to_micros(now):
        return None
    return Held(fence=row[1], until=row[2])


def holds_lease(tx: Tx, name: str, fence: int, now: datetime) -> bool:
    """Whether the lease with this fence is valid; call it in the transaction it guards."""
    row = tx.one(
        "select 1 from leases where name = ? and fence = ? and expires_at > ?",
        (name, fence, to_micros(now)),
    )
    return row is not None


def break_leases(tx: Tx) -> int:
    """End every lease; for a server that is alone on this database.

    On a `shared` database that is never certain: there, leases of dead servers expire.
    """
    return tx.execute("update leases set expires_at = 0 where expires_at > 0")


def release_lease(tx: Tx, name: str, holder: str, fence: int) -> bool:
    """Give a lease back early; False if it was not held with this fence any more."""
    changed = tx.execute(
        "update leases set expires_at = 0 where name = ? and holder = ? and fence = ?",
        (name, holder, fence),
    )
    return changed == 1
