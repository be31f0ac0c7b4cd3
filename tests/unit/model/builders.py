"""Small builders: each test says only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from paddlecloud.model.files.layout import replica_id, worker_name
from paddlecloud.model.jobs.job import (
    Attempt,
    DistributeMode,
    ExitCause,
    ExitRecord,
    Job,
    JobSpec,
    JobType,
    Replica,
    ReplicaGroup,
    ReplicaState,
    Resources,
    Role,
)
from paddlecloud.model.jobs.states import JobState

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOB_ID = "job-0123456789abcdef0123456789abcdef"
SNAPSHOT = "sha256:" + "a" * 64


def a_spec(
    *,
    start_cmd: str = "sh run.sh",
    trainers: int = 1,
    pservers: int = 0,
    job_type: JobType | None = JobType.CPU,
    resources: Resources | None = None,
    **changes: object,
) -> JobSpec:
    asks = resources or Resources()
    groups = [ReplicaGroup(role=Role.TRAINER, count=trainers, resources=asks)]
    if pservers:
        groups.insert(0, ReplicaGroup(role=Role.PSERVER, count=pservers, resources=asks))
    mode = DistributeMode.PSERVER if pservers else DistributeMode.NCCL2
    values: dict[str, object] = {
        "start_cmd": start_cmd,
        "groups": tuple(groups),
        "job_type": job_type,
        "snapshot": SNAPSHOT,
        "directory": "job",
        "distribute_mode": mode if trainers + pservers > 1 else None,
    }
    return JobSpec(**(values | changes))  # type: ignore[arg-type]


def a_job(
    *, state: JobState = JobState.RUNNING, spec: JobSpec | None = None, **changes: object
) -> Job:
    values: dict[str, object] = {
        "id": JOB_ID,
        "number": 1,
        "owner": "zhang.san@example.com",
        "spec": spec or a_spec(),
        "state": state,
        "version": 1,
        "created_at": NOW,
        "waiting_since": NOW,
        "attempt": 1,
        "pool": "local",
    }
    return Job(**(values | changes))  # type: ignore[arg-type]


def a_replica(
    *,
    role: Role = Role.TRAINER,
    rank: int = 0,
    ended: ExitRecord | None = None,
    state: ReplicaState | None = None,
    **changes: object,
) -> Replica:
    values: dict[str, object] = {
        "id": replica_id(JOB_ID, 1, worker_name(role, rank)),
        "role": role,
        "rank": rank,
        "node": "node-1",
        "resources": Resources(),
        "state": state or (ReplicaState.EXITED if ended else ReplicaState.RUNNING),
        "exit": ended,
    }
    return Replica(**(values | changes))  # type: ignore[arg-type]


def an_attempt(*replicas: Replica, number: int = 1, **changes: object) -> Attempt:
    values: dict[str, object] = {
        "job_id": JOB_ID,
        "number": number,
        "fence": number,
        "pool": "local",
        "replicas": replicas,
        "created_at": NOW,
    }
    return Attempt(**(values | changes))  # type: ignore[arg-type]


def ended(
    code: int | None = None,
    *,
    by_signal: int | None = None,
    cause: ExitCause = ExitCause.EXIT,
    after: float = 10,
    ran: bool = True,
    **changes: object,
) -> ExitRecord:
    values: dict[str, object] = {
        "cause": cause,
        "exit_code": code,
        "signal": by_signal,
        "started_at": NOW if ran else None,
        "finished_at": NOW + timedelta(seconds=after),
    }
    return ExitRecord(**(values | changes))  # type: ignore[arg-type]
