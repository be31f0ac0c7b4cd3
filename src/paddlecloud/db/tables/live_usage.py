"""Live resource usage of replicas, as last reported by their agents; one row each.

A row is overwritten again and again and is worthless after a power cut, so it is written without a
disk flush. It stays after the replica has ended, for its peak, and is deleted with the job. Minutes
and quotas are in `usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, to_micros

_COLUMNS = "u.at, u.cpu, u.memory, u.peak_memory, u.gpu, u.gpu_memory, u.quiet_since"


@dataclass(frozen=True, kw_only=True)
class Use:
    at: datetime
    cpu: float
    """Cores."""
    memory: int
    peak_memory: int
    gpu: float | None
    """Sum of the utilisation of its GPUs; None where it cannot be measured."""
    gpu_memory: int | None
    quiet_since: datetime
    """When it last wrote to its log or used its CPU."""


def save(tx: Tx, uses: Mapping[str, Use]) -> None:
    """Store the usage of these replicas; a peak never shrinks."""
    for replica, use in uses.items():
        tx.run(
            "insert into replica_usage"
            " (replica, at, cpu, memory, peak_memory, gpu, gpu_memory, quiet_since)"
            " values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (replica) do update set"
            " at = excluded.at, cpu = excluded.cpu, memory = excluded.memory,"
            " peak_memory = case when replica_usage.peak_memory > excluded.peak_memory"
            " then replica_usage.peak_memory else excluded.peak_memory end,"
            " gpu = excluded.gpu, gpu_memory = excluded.gpu_memory,"
            " quiet_since = excluded.quiet_since",
            (
                replica,
                to_micros(use.at),
                use.cpu,
                use.memory,
                use.peak_memory,
                use.gpu,
                use.gpu_memory,
                to_micros(use.quiet_since),
            ),
        )


def of_attempt(tx: Tx, job_id: str, attempt: int) -> dict[str, Use]:
    """By replica id; replicas without a report are absent."""
    rows = tx.all(
        f"select u.replica, {_COLUMNS} from replica_usage u"
        " join replicas r on r.id = u.replica where r.job_id = ? and r.attempt = ?",
        (job_id, attempt),
    )
    return {row[0]: _use(row[1:]) for row in rows}


@dataclass(frozen=True, kw_only=True)
class ReplicaUse:
    """A placed replica and its last reported usage."""

    job_id: str
    role: str
    rank: int
    state: str
    node: str
    use: Use | None


def of_owner(tx: Tx, owner: str, limit: int) -> list[ReplicaUse]:
    """Every replica of this owner that has not ended, newest job first."""
    rows = tx.all(
        f"select r.job_id, r.role, r.rank, r.state, r.node, {_COLUMNS} from replicas r"
        " join jobs j on j.id = r.job_id left join replica_usage u on u.replica = r.id"
        " where j.owner = ? and r.state in ('ordered', 'running')"
        " order by j.number desc, r.role desc, r.rank limit ?",
        (owner, limit),
    )
    return [
        ReplicaUse(
            job_id=row[0],
            role=row[1],
            rank=row[2],
            state=row[3],
            node=row[4],
            use=None if row[5] is None else _use(row[5:]),
        )
        for row in rows
    ]


def _use(row: Row) -> Use:
    at, cpu, memory, peak_memory, gpu, gpu_memory, quiet_since = row
    return Use(
        at=from_micros(at),
        cpu=cpu,
        memory=memory,
        peak_memory=peak_memory,
        gpu=gpu,
        gpu_memory=gpu_memory,
        quiet_since=from_micros(quiet_since),
    )
