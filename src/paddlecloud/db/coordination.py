"""What several servers must agree on: nonces, idempotency keys, leases, counters and rates.

No process may keep these in its own memory, because the next request may reach another one. Each
function is one statement whose outcome the database decides (or, for rates, relies on writes that
come one after the other), so two callers at the same moment get different answers without any lock
of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.base import Tx, Value
from paddlecloud.db.columns import from_micros, to_micros


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """The job that an idempotency key already made, and the hash of the request that made it."""

    job_id: str
    request_hash: str


@dataclass(frozen=True, kw_only=True)
class Held:
    """A lease at one moment between two renewals."""

    fence: int
    until: int
    """Microseconds of its holder's clock."""


def next_number(tx: Tx, counter: str, step: int = 1) -> int:
    """The next number of a counter, 1 at first; with `step`, the last of that many.

    Whoever commits later has the higher number: the row stays locked until the commit, so a reader
    who remembers the highest number it saw will not miss a lower one.
    """
    row = tx.one(
        "insert into counters (name, value) values (?, ?)"
        " on conflict (name) do update set value = counters.value + excluded.value"
        " returning value",
        (counter, step),
    )
    assert row is not None  # an upsert always returns its row
    return int(row[0])


def next_numbers(tx: Tx, counter: str, count: int) -> Iterator[int]:
    """That many numbers of a counter, asked for at once; one that is not used is left out."""
    last = next_number(tx, counter, count) if count else 0
    return iter(range(last - count + 1, last + 1))


def spend_nonce(tx: Tx, ak: str, nonce: str, expires_at: datetime) -> bool:
    """True for exactly one caller: the first that spends this nonce of this key."""
    changed = tx.execute(
        "insert into nonces (ak, nonce, expires_at) values (?, ?, ?)"
        " on conflict (ak, nonce) do nothing",
        (ak, nonce, to_micros(expires_at)),
    )
    return changed == 1


def live_nonces(tx: Tx, since: datetime) -> list[tuple[tuple[str, str], int]]:
    """Every nonce that expires at `since` or later, with that second, the first to expire first."""
    rows = tx.all(
        "select ak, nonce, expires_at from nonces where expires_at >= ? order by expires_at",
        (to_micros(since),),
    )
    return [((ak, nonce), expires // 1_000_000) for ak, nonce, expires in rows]


def forget_nonces(tx: Tx, before: datetime) -> int:
    """Delete nonces that expired before this time; returns how many.

    Where several servers share the database, they have to be expired by the clock of each of them.
    """
    return tx.execute(
        "delete from nonces where expires_at < ?"
        " and expires_at < (select coalesce(min(seen_at), ?) from servers)",
        (to_micros(before), to_micros(before)),
    )


def spend_nonces(tx: Tx, spent: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Those of many keys' nonces (with the second until when they matter) that were new.

    In one statement and in one order, so that two servers at it never wait for each other.
    """
    ordered = sorted(spent.items())
    places = ", ".join("(?, ?, ?)" for _ in ordered)
    values: list[Value] = []
    for (ak, nonce), until in ordered:
        values += (ak, nonce, until * 1_000_000)
    rows = tx.all(
        f"insert into nonces (ak, nonce, expires_at) values {places}"
        " on conflict (ak, nonce) do nothing returning ak, nonce",
        values,
    )
    return {(ak, nonce) for ak, nonce in rows}


def allow_rate(
    tx: Tx, name: str, key: str, limit: int, window: timedelta, now: datetime
) -> timedelta | None:
    """None, and it counts, if `key` did this less than `limit` times in the last `window`.

    Otherwise how long to wait, and nothing counts. Exact, because writes come one after the other.
    What is too old to count is forgotten here, whose ever it is. Marks that a clock set wrong has
    left beyond the next window count for nothing either.
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


def remember_key(
    tx: Tx, owner: str, key: str, job_id: str, request_hash: str, now: datetime
) -> bool:
    """Tie an idempotency key to the job it made; False, and nothing changed, if it was tied before.

    A key is forgotten with its job and not before, so it makes one job however late it comes.
    """
    changed = tx.execute(
        "insert into idempotency (owner, key, job_number, request_hash, created_at)"
        " select ?, ?, number, ?, ? from jobs where id = ? on conflict (owner, key) do nothing",
        (owner, key, request_hash, to_micros(now), job_id),
    )
    return changed == 1


def find_key(tx: Tx, owner: str, key: str) -> KnownKey | None:
    row = tx.one(
        "select jobs.id, request_hash from idempotency"
        " join jobs on jobs.number = idempotency.job_number"
        " where idempotency.owner = ? and key = ?",
        (owner, key),
    )
    return KnownKey(job_id=row[0], request_hash=row[1]) if row else None


def take_lease(
    tx: Tx, name: str, holder: str, now: datetime, ttl: timedelta, *, dead: Held | None = None
) -> int | None:
    """Take or renew a lease until `now + ttl`; its fence, or None while somebody else holds it.

    The fence grows with every change of hands and after every lapse, and never shrinks. One that is
    still as it was when it was found `dead` counts as lapsed, whatever its end says.
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
    """As which lease somebody else holds it now; None: `take_lease` would give it to this holder.

    As long as its holder lives the answer changes: a renewal moves its end. The end itself is the
    time of a clock that may be wrong, and is worth less than that.
    """
    row = tx.one("select holder, fence, expires_at from leases where name = ?", (name,))
    if row is None or row[0] == holder or row[2] <= to_micros(now):
        return None
    return Held(fence=row[1], until=row[2])


def holds_lease(tx: Tx, name: str, fence: int, now: datetime) -> bool:
    """Whether the lease taken with this fence is still good; ask it in the guarded transaction."""
    row = tx.one(
        "select 1 from leases where name = ? and fence = ? and expires_at > ?",
        (name, fence, to_micros(now)),
    )
    return row is not None


def break_leases(tx: Tx) -> int:
    """End every lease; for a server that knows that no other one runs on this database.

    On one that is `shared` nobody can know that: there, leases of the dead lapse by themselves.
    """
    return tx.execute("update leases set expires_at = 0 where expires_at > 0")


def release_lease(tx: Tx, name: str, holder: str, fence: int) -> bool:
    """Give a lease back early; False if it was not held with this fence any more."""
    changed = tx.execute(
        "update leases set expires_at = 0 where name = ? and holder = ? and fence = ?",
        (name, holder, fence),
    )
    return changed == 1
