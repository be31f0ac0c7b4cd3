"""Converts a report item to the state of its replica. `reports` decides whether it counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Reason, Replica, ReplicaState
from paddlecloud.server.schemas.agent import ExitNote, ReportItem


def observed(replica: Replica, item: ReportItem) -> Replica:
    """The replica as its agent reports it now: started, lost or exited."""
    if item.started is not None:
        began = replica.started_at or _when(item.started.at)
        pid = item.started.pid
        replica = replace(replica, state=ReplicaState.RUNNING, pid=pid, started_at=began)
    if item.lost and replica.state is not ReplicaState.LOST:
        gone = ExitRecord(cause=ExitCause.UNWATCHED, all_ended=item.all_ended)
        replica = replace(replica, state=ReplicaState.LOST, exit=gone)
    if item.exited is not None:
        record = _exit_record(item.exited)
        size = item.exited.log_size
        replica = replace(replica, state=ReplicaState.EXITED, exit=record, log_bytes=size)
    return replica


def _exit_record(note: ExitNote) -> ExitRecord:
    known = note.cause in list(ExitCause)
    return ExitRecord(
        cause=ExitCause(note.cause) if known else ExitCause.EXIT,
        exit_code=note.exit_code,
        signal=note.signal,
        oom=note.oom,
        memory_limit=note.memory_limit,
        message=note.message,
        started_at=_when(note.started_at),
        finished_at=_when(note.finished_at),
        asked_at=_when(note.stopping_at),
        ran=note.ran,
        max_rss=note.max_rss,
        peak_memory=note.peak_memory,
        cpu_seconds=note.cpu_seconds,
        enforced=note.enforced,
        hint=note.hint[:100],
        said=Reason(code=note.said.code, params=note.said.params) if note.said else None,
    )


def _when(epoch: float | None) -> datetime | None:
    try:
        return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a broken clock must not prevent the end of a job
