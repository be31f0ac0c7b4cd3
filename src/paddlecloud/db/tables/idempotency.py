"""Idempotency keys: the job that an earlier submit with the same key created.

What a known key means for a submit is decided in `server/services/jobs/submit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import to_micros


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """The job that was created with a key, and the hash of the request."""

    job_id: str
    request_hash: str


def insert_key(tx: Tx, owner: str, key: str, job_id: str, request_hash: str, now: datetime) -> bool:
    """Store the key of a new job; False, and nothing changed, if the key exists.

    A key is deleted with its job and not before, so it never creates a second job.
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
