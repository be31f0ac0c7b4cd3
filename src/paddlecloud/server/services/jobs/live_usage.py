"""Current resource usage of running jobs: reported by agents, shown to owners."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs, live_usage
from paddlecloud.db.tables.live_usage import ReplicaUse, Use
from paddlecloud.model.diagnosis.overprovisioning import peak_memory
from paddlecloud.model.files.layout import worker_name
from paddlecloud.model.jobs.job import Job, Replica, ReplicaState, Role
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.agent import UseNote
from paddlecloud.server.schemas.usage import UseAnswer, UseRow
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.jobs.views import use_view

MAX_ROWS = 5_000


def take_in(tx: Tx, notes: Mapping[str, UseNote], now: datetime) -> None:
    """Store what an agent reports of its replicas; need not be durable, since it is repeated."""
    uses = {
        replica: Use(
            at=now,
            cpu=note.cpu,
            memory=note.memory,
            peak_memory=note.peak_memory,
            gpu=note.gpu,
            gpu_memory=note.gpu_memory,
            quiet_since=now - timedelta(seconds=min(note.quiet, _MAX_QUIET)),
        )
        for replica, note in notes.items()
    }
    live_usage.save(tx, uses)


def of_job(deps: Deps, caller: Caller, job_id: str) -> UseAnswer:
    """Every worker of the current attempt, running or ended."""
    job = queries.get(deps, caller, job_id)

    def read(tx: Tx) -> tuple[tuple[Replica, ...], dict[str, Use]]:
        attempt = attempts.get_attempt(tx, job.id, job.attempt) if job.attempt else None
        uses = live_usage.of_attempt(tx, job.id, job.attempt)
        return (attempt.replicas if attempt else ()), uses

    replicas, uses = deps.db.read(read)
    workers = [_row_of(deps, job, replica, uses.get(replica.id)) for replica in replicas]
    return UseAnswer(workers=workers)


def of_owner(deps: Deps, owner: str) -> UseAnswer:
    """Every placed worker of this user, newest job first."""

    def read(tx: Tx) -> tuple[list[ReplicaUse], dict[str, Job]]:
        rows = live_usage.of_owner(tx, owner, MAX_ROWS)
        names = dict.fromkeys(row.job_id for row in rows)
        found = [job for name in names if (job := jobs.get_job(tx, name)) is not None]
        return rows, {job.id: job for job in found}

    rows, known = deps.db.read(read)
    workers = [_row(deps, known[row.job_id], row) for row in rows if row.job_id in known]
    return UseAnswer(workers=workers)


def _row_of(deps: Deps, job: Job, replica: Replica, use: Use | None) -> UseRow:
    running = replica.state is ReplicaState.RUNNING
    return UseRow(
        job_id=job.id,
        job_name=job.spec.job_name,
        worker=replica.worker,
        state=replica.state.value,
        node=replica.node,
        asked=_asked(job, replica.role),
        usage=use_view(deps, use) if running else None,
        peak_memory=peak_memory(replica, use.peak_memory if use else 0) or None,
    )


def _row(deps: Deps, job: Job, replica: ReplicaUse) -> UseRow:
    role = Role(replica.role)
    return UseRow(
        job_id=job.id,
        job_name=job.spec.job_name,
        worker=worker_name(role, replica.rank),
        state=replica.state,
        node=replica.node,
        asked=_asked(job, role),
        usage=use_view(deps, replica.use) if replica.state == ReplicaState.RUNNING else None,
        peak_memory=replica.use.peak_memory if replica.use else None,
    )


def _asked(job: Job, role: Role) -> dict[str, float]:
    asked = job.spec.asked_for(role)
    return {"cpu": asked.cpu, "memory": asked.memory, "gpu": asked.gpu}


_MAX_QUIET = 10 * 365 * 86_400.0
