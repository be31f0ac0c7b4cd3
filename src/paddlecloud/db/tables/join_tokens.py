"""The join_tokens table: tokens that new agents exchange for keys, by digest.

A token is for one pool, or for one attempt; it ends with its last use, its time or its attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import from_micros, to_micros


@dataclass(frozen=True, kw_only=True)
class JoinToken:
    digest: str
    """sha256 of the token, which is stored nowhere."""
    pool: str
    uses_left: int
    expires_at: datetime
    job_id: str | None = None
    attempt: int | None = None
    """With `job_id`: agents that join with it serve this attempt only."""


def put(tx: Tx, token: JoinToken, now: datetime) -> None:
    """Store a token. One that exists is renewed: its uses and its time count from now."""
    tx.execute("delete from join_tokens where expires_at < ?", (to_micros(now),))
    tx.execute(
        "insert into join_tokens"
        " (digest, pool, job_id, attempt, uses_left, created_at, expires_at)"
        " values (?, ?, ?, ?, ?, ?, ?) on conflict (digest) do update set"
        " uses_left = excluded.uses_left, expires_at = excluded.expires_at",
        (
            token.digest,
            token.pool,
            token.job_id,
            token.attempt,
            token.uses_left,
            to_micros(now),
            to_micros(token.expires_at),
        ),
    )


def find(tx: Tx, digest: str, now: datetime) -> JoinToken | None:
    """The token if it has not expired and, for one of an attempt, if that is not over."""
    row = tx.one(
        "select digest, pool, job_id, attempt, uses_left, expires_at from join_tokens"
        " where digest = ? and expires_at > ? and (job_id is null or exists (select 1"
        " from attempts a where a.job_id = join_tokens.job_id and a.number = join_tokens.attempt"
        " and a.ended_at is null))",
        (digest, to_micros(now)),
    )
    if row is None:
        return None
    return JoinToken(
        digest=row[0],
        pool=row[1],
        job_id=row[2],
        attempt=row[3],
        uses_left=row[4],
        expires_at=from_micros(row[5]),
    )


def use(tx: Tx, digest: str) -> bool:
    """Count one use; False if none is left."""
    changed = tx.execute(
        "update join_tokens set uses_left = uses_left - 1 where digest = ? and uses_left > 0",
        (digest,),
    )
    return changed == 1


def delete(tx: Tx, digest: str) -> None:
    tx.execute("delete from join_tokens where digest = ?", (digest,))
