"""Snapshots: which files, by hash, an owner may refer to in a job.

The bytes are in the store. A snapshot that a job refers to cannot be deleted: the database itself
refuses, so a submit and a clean-up at the same moment cannot leave a job without its files.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import from_micros, to_micros
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, canonical_json

USE_STEP = timedelta(hours=1)
"""Resolution of the stored time of last use: most submits name the same files."""

_OUT_OF_USE = 0
"""The time of last use of a snapshot with a missing blob: none can be that old."""

_UNUSED = (
    "used_at < ? and not exists (select 1 from jobs"
    " where jobs.owner = snapshots.owner and jobs.snapshot = snapshots.id)"
)


def put_snapshot(tx: Tx, owner: str, snapshot: Snapshot, now: datetime) -> None:
    """Store a snapshot, or update its time of last use."""
    tx.execute(
        "insert into snapshots (owner, id, size, used_at, entries) values (?, ?, ?, ?, ?)"
        " on conflict (owner, id) do update set used_at = excluded.used_at",
        (owner, snapshot.id, snapshot.size, to_micros(now), canonical_json(snapshot.entries)),
    )


def get_snapshot(tx: Tx, owner: str, snapshot_id: str) -> Snapshot | None:
    text = get_entries(tx, owner, snapshot_id)
    if text is None:
        return None
    return Snapshot(id=snapshot_id, entries=tuple(_entry(row) for row in json.loads(text)))


def get_entries(tx: Tx, owner: str, snapshot_id: str) -> str | None:
    """The entries as the JSON text that is sent over HTTP, without parsing it."""
    row = tx.one("select entries from snapshots where owner = ? and id = ?", (owner, snapshot_id))
    return str(row[0]) if row else None


def last_use(tx: Tx, owner: str, snapshot_id: str) -> datetime | None:
    """When it was last used, to the hour; None if no new job of this owner may refer to it."""
    row = tx.one("select used_at from snapshots where owner = ? and id = ?", (owner, snapshot_id))
    return from_micros(row[0]) if row and row[0] != _OUT_OF_USE else None


def touch(tx: Tx, owner: str, snapshot_id: str, now: datetime) -> bool:
    """Update its time of last use if that is an hour old; False if there is none."""
    used_at = last_use(tx, owner, snapshot_id)
    if used_at is not None and now - used_at >= USE_STEP:
        tx.execute(
            "update snapshots set used_at = ? where owner = ? and id = ?",
            (to_micros(now), owner, snapshot_id),
        )
    return used_at is not None


def unused_snapshots(tx: Tx, before: datetime, limit: int = 1000) -> list[tuple[str, str]]:
    """(owner, id) of snapshots that no job refers to and that were not used since `before`."""
    rows = tx.all(
        f"select owner, id from snapshots where {_UNUSED} order by used_at limit ?",
        (to_micros(before), limit),
    )
    return [(owner, snapshot_id) for owner, snapshot_id in rows]


def delete_snapshot(tx: Tx, owner: str, snapshot_id: str, before: datetime) -> bool:
    """Delete a snapshot if it is still unused; False if it was used in between."""
    changed = tx.execute(
        f"delete from snapshots where owner = ? and id = ? and {_UNUSED}",
        (owner, snapshot_id, to_micros(before)),
    )
    return changed == 1


def take_out_of_use(tx: Tx, owner: str, sha256: str) -> int:
    """Bar new jobs from snapshots with this blob until they are put again; returns how many."""
    return tx.execute(
        "update snapshots set used_at = ? where owner = ? and entries like ?",
        (_OUT_OF_USE, owner, _with(sha256)),
    )


def naming(tx: Tx, owner: str, sha256: str, limit: int) -> list[str]:
    """Ids of snapshots with this blob."""
    rows = tx.all(
        "select id from snapshots where owner = ? and entries like ? order by id limit ?",
        (owner, _with(sha256), limit),
    )
    return [str(row[0]) for row in rows]


def jobs_of(tx: Tx, owner: str, snapshot_id: str, limit: int) -> list[str]:
    """Ids of jobs that were given this snapshot, newest first."""
    rows = tx.all(
        "select id from jobs where owner = ? and snapshot = ? order by number desc limit ?",
        (owner, snapshot_id, limit),
    )
    return [str(row[0]) for row in rows]


def ids_by_use(tx: Tx, owner: str) -> list[str]:
    """Every snapshot of this owner, least recently used first."""
    rows = tx.all("select id from snapshots where owner = ? order by used_at, id", (owner,))
    return [str(row[0]) for row in rows]


def get_digests(tx: Tx, owner: str, snapshot_id: str) -> set[str] | None:
    """The blobs of this snapshot, without creating entries."""
    text = get_entries(tx, owner, snapshot_id)
    if text is None:
        return None
    return {sha256 for _, kind, _, sha256, *_ in json.loads(text) if kind == EntryKind.FILE}


def _with(sha256: str) -> str:
    """The LIKE pattern of entries with this blob."""
    return f'%,"{sha256}",%'


def _entry(row: list[str]) -> Entry:
    path, kind, size, sha256, executable, target = row
    return Entry(
        path=path,
        kind=EntryKind(kind),
        size=int(size),
        sha256=sha256,
        executable=bool(executable),
        target=target,
    )
