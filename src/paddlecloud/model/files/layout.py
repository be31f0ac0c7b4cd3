"""Where the files of a job lie and what its workers are called; names only, no disk.

Paths are relative to a user's space in the store, with forward slashes. The layout is the one that
the documents of 2020 print, so that scripts written for it find their files:

    output/<job_id>/rank-0/...              what trainer 0 left in OUTPUT_PATH (pserver-0/ likewise)
    output/<job_id>/log/trainer-0.log       its stdout and stderr
    output/<job_id>/log/rank-0/...          what it left in LOCAL_LOG_PATH
    output/<job_id>/log/attempt-1/...       logs of an earlier attempt, laid out as under log/
"""

from __future__ import annotations

from paddlecloud.model.jobs.job import Role

_DIRECTORIES = {Role.TRAINER: "rank", Role.PSERVER: "pserver"}


def output_root(job_id: str) -> str:
    """The directory of everything a job brought forth; get_files lists it first."""
    return f"output/{job_id}"


def output_directory(job_id: str, role: Role, rank: int) -> str:
    """Where OUTPUT_PATH of one replica ends up."""
    return f"{output_root(job_id)}/{_DIRECTORIES[role]}-{rank}"


def log_root(job_id: str, earlier_attempt: int | None = None) -> str:
    """The directory of the logs of the current attempt, or of the earlier one with that number."""
    root = f"{output_root(job_id)}/log"
    return root if earlier_attempt is None else f"{root}/attempt-{earlier_attempt}"


def log_file(job_id: str, worker: str, earlier_attempt: int | None = None) -> str:
    """stdout and stderr of one worker."""
    return f"{log_root(job_id, earlier_attempt)}/{worker}.log"


def log_directory(job_id: str, role: Role, rank: int, earlier_attempt: int | None = None) -> str:
    """Where LOCAL_LOG_PATH of one replica ends up."""
    return f"{log_root(job_id, earlier_attempt)}/{_DIRECTORIES[role]}-{rank}"


def worker_name(role: Role, rank: int) -> str:
    """The name users know: trainer-0, pserver-1."""
    return f"{role.lower()}-{rank}"


def replica_id(job_id: str, attempt: int, worker: str) -> str:
    """Unique over all jobs and attempts, and fit to be a directory's name."""
    return f"{job_id}.{attempt}.{worker}"


def shown(replica: str, name: str) -> str:
    """How users know an output that the agent of this replica calls `output/d` or `log/d`: below
    the directory of its job, `rank-0/d` or `log/rank-0/d`."""
    role, _, rank = replica.rpartition(".")[2].rpartition("-")
    area, slash, path = name.partition("/")
    above = {"output": "", "log": "log/"}.get(area)
    if above is None or not slash or role.upper() not in list(Role):
        return name
    return f"{above}{_DIRECTORIES[Role(role.upper())]}-{rank}/{path}"


def public_bos_url(server_name: str, user_id: str, directory: str) -> str:
    """What query_job shows as bos_url for files in the platform's own storage."""
    return f"paddlecloud-public.{server_name}/{user_id}/{directory}".rstrip("/")
