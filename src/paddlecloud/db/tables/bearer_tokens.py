"""The bearer_tokens table: tokens of programs that cannot sign requests, by digest.

A token has no user, and its scope names the one thing that it is good for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, maybe_from_micros, to_micros
from paddlecloud.db.tables.tokens import USE_STEP

METRICS = "metrics"
"""The scope of a token that reads /metrics."""

_COLUMNS = "ak, scope, name, created_at, last_used_at, revoked_at"


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    ak: str
    """Names the token where it is listed or revoked; the token itself is stored nowhere."""
    scope: str
    name: str
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


def insert(tx: Tx, token: BearerToken, digest: str) -> None:
    tx.execute(
        "insert into bearer_tokens (digest, ak, scope, name, created_at) values (?, ?, ?, ?, ?)",
        (digest, token.ak, token.scope, token.name, to_micros(token.created_at)),
    )


def find(tx: Tx, digest: str) -> BearerToken | None:
    """The token with this digest, if it is not revoked."""
    row = tx.one(
        f"select {_COLUMNS} from bearer_tokens where digest = ? and revoked_at is null", (digest,)
    )
    return _token(row) if row else None


def get(tx: Tx, ak: str) -> BearerToken | None:
    row = tx.one(f"select {_COLUMNS} from bearer_tokens where ak = ?", (ak,))
    return _token(row) if row else None


def list_all(tx: Tx, *, revoked: bool) -> list[BearerToken]:
    """Newest first; revoked ones only if asked for."""
    where = "" if revoked else " where revoked_at is null"
    rows = tx.all(f"select {_COLUMNS} from bearer_tokens{where} order by created_at desc, ak")
    return [_token(row) for row in rows]


def count(tx: Tx) -> int:
    """How many are valid."""
    row = tx.one("select count(*) from bearer_tokens where revoked_at is null")
    return int(row[0]) if row else 0


def revoke(tx: Tx, ak: str, now: datetime) -> bool:
    """False if it was not valid."""
    where = "ak = ? and revoked_at is null"
    changed = tx.execute(
        f"update bearer_tokens set revoked_at = ? where {where}", (to_micros(now), ak)
    )
    return changed == 1


def is_use_due(token: BearerToken, now: datetime) -> bool:
    """Whether this use is to be stored: each of them would be a write."""
    return token.last_used_at is None or not abs(now - token.last_used_at) < USE_STEP


def note_use(tx: Tx, ak: str, now: datetime) -> None:
    tx.execute("update bearer_tokens set last_used_at = ? where ak = ?", (to_micros(now), ak))


def _token(row: Row) -> BearerToken:
    return BearerToken(
        ak=row[0],
        scope=row[1],
        name=row[2],
        created_at=from_micros(row[3]),
        last_used_at=maybe_from_micros(row[4]),
        revoked_at=maybe_from_micros(row[5]),
    )
