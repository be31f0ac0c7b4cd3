"""What the repository of a job's files differed in from its commit: kept beside the job's files.

It may be a mebibyte, so it is no part of the row that every look at a job reads; it goes with the
job.
"""

from __future__ import annotations

from paddlecloud.model.errors import NotFound
from paddlecloud.model.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.command_output import root_of


def keep(deps: Deps, job: Job, diff: str) -> None:
    """Again with the same text: as once."""
    deps.store.write(_path(job), [diff.encode("utf-8", "replace")])


def diff(deps: Deps, job: Job) -> str:
    """The text, or nothing where nothing differed."""
    if job.spec.git.get("dirty") != "1":
        return ""
    try:
        with deps.store.read(_path(job)) as reader:
            return b"".join(reader).decode("utf-8", "replace")
    except NotFound:
        return ""


def _path(job: Job) -> str:
    return f"{root_of(job.owner, job.id)}/git.diff"
