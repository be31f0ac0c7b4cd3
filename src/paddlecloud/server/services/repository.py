"""What the repository of a job's files differed in from its commit: kept beside the job's files.

It may be a mebibyte, so it is no part of the row that every look at a job reads; it goes with the
job.
"""

from __future__ import annotations

from paddlecloud.model.errors import NotFound, PaddleCloudError
from paddlecloud.model.job import Job, Reason
from paddlecloud.model.reasons import caused
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.command_output import root_of
from paddlecloud.server.shapes import JobView


def keep(deps: Deps, job: Job, diff: str) -> list[Reason]:
    """Again with the same text: as once. If it cannot be kept that is told, and no more: the job is
    made, and whoever was refused would make another."""
    try:
        deps.store.write(_path(job.owner, job.id), [diff.encode("utf-8", "replace")])
    except PaddleCloudError as error:
        return [caused("diff_unkept", error.code, error.params)]
    return []


def diff(deps: Deps, job: JobView) -> str:
    """The text of a job whose files differed; nothing where it was not kept."""
    try:
        with deps.store.read(_path(job.owner, job.job_id)) as reader:
            return b"".join(reader).decode("utf-8", "replace")
    except NotFound:
        return ""


def _path(owner: str, job_id: str) -> str:
    return f"{root_of(owner, job_id)}/git.diff"
