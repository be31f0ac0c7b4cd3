"""Jobs with a user bucket: sealed keys, ETags of their files, logs still to copy.

Nothing here unseals a key. The rows of a job are deleted with the job, those of a snapshot with the
snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import maybe_json_reader, to_json, to_micros
from paddlecloud.model.jobs.job import Reason

Tags = Mapping[str, tuple[str, str]]
"""By hash, the path and ETag of a file."""

IN_BUCKET = "select 1 from private_files where owner = ? and snapshot = ? and tags <> '{}'"
"""Selects a snapshot with files in a bucket; an empty snapshot is in no store."""

_read_reason = maybe_json_reader(Reason)


@dataclass(frozen=True, kw_only=True)
class ToCopy:
    """A job with logs that are not in its bucket yet."""

    job_id: str
    copied: int
    """The attempt whose logs were copied last."""
    tries: int


def keep_keys(tx: Tx, job_id: str, sealed: str, now: datetime) -> None:
    """Store the keys of a job; idempotent, the first keys stay."""
    tx.execute(
        "insert into private_stores (job_id, sealed, copied, done, tries, not_before)"
        " values (?, ?, 0, 0, 0, ?) on conflict (job_id) do nothing",
        (job_id, sealed, to_micros(now)),
    )


def sealed_keys(tx: Tx, job_id: str) -> str | None:
    row = tx.one("select sealed from private_stores where job_id = ?", (job_id,))
    return str(row[0]) if row else None


def jobs_with_keys(tx: Tx, owner: str, limit: int) -> list[str]:
    """This owner's jobs with a user bucket, newest first."""
    rows = tx.all(
        "select j.id from jobs j join private_stores p on p.job_id = j.id"
        " where j.owner = ? order by j.number desc limit ?",
        (owner, limit),
    )
    return [str(job_id) for (job_id,) in rows]


def keep_tags(tx: Tx, owner: str, snapshot_id: str, tags: Tags) -> None:
    tx.execute(
        "insert into private_files (owner, snapshot, tags) values (?, ?, ?)"
        " on conflict (owner, snapshot) do nothing",
        (owner, snapshot_id, json.dumps(tags, ensure_ascii=True, separators=(",", ":"))),
    )


def is_in_bucket(tx: Tx, owner: str, snapshot_id: str) -> bool:
    """Whether the files of a snapshot are in their owner's bucket, not in the store."""
    return tx.one(IN_BUCKET, (owner, snapshot_id)) is not None


def get_tags(tx: Tx, owner: str, snapshot_id: str) -> Tags | None:
    row = tx.one(
        "select tags from private_files where owner = ? and snapshot = ?", (owner, snapshot_id)
    )
    if row is None:
        return None
    return {mark: (path, tag) for mark, (path, tag) in json.loads(row[0]).items()}


def to_copy(tx: Tx, now: datetime, limit: int) -> list[ToCopy]:
    """Jobs with an ended attempt whose logs are not copied, longest waiting first.

    The logs of an attempt are copied when the job has ended or a later attempt has started.
    """
    rows = tx.all(
        "select p.job_id, p.copied, p.tries from private_stores p join jobs j on j.id = p.job_id"
        " where p.done = 0 and p.not_before <= ?"
        " and (j.finished_at is not null or j.attempt > p.copied + 1)"
        " order by p.not_before, p.job_id limit ?",
        (to_micros(now), limit),
    )
    return [ToCopy(job_id=job_id, copied=copied, tries=tries) for job_id, copied, tries in rows]


def record_copied(tx: Tx, job_id: str, attempt: int, *, done: bool) -> None:
    tx.execute(
        "update private_stores set copied = ?, done = ?, tries = 0, trouble = null"
        " where job_id = ?",
        (attempt, int(done), job_id),
    )


def record_problem(tx: Tx, job_id: str, reason: Reason, not_before: datetime) -> None:
    tx.execute(
        "update private_stores set tries = tries + 1, trouble = ?, not_before = ? where job_id = ?",
        (to_json(reason), to_micros(not_before), job_id),
    )


def trouble(tx: Tx, job_id: str) -> Reason | None:
    """Why something of this job is not in its bucket yet."""
    row = tx.one("select trouble from private_stores where job_id = ?", (job_id,))
    return _read_reason(row[0]) if row else None
