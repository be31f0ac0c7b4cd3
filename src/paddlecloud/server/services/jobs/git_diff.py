"""What the repository of a job's files differed in from its commit: kept beside the job's files.

It may be a mebibyte, so it is no part of the row that every look at a job reads; it goes with the
job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry
from paddlecloud.model.jobs.job import Job, Reason
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.jobs import JobView
from paddlecloud.server.services.exec.output import root_of


def keep(deps: Deps, job: Job, diff: str) -> list[Reason]:
    """Again with the same text: as once. If it cannot be kept that is told, and no more: the job is
    made, and whoever was refused would make another."""
    try:
        with _in_words(deps):
            deps.store.write(_path(job.owner, job.id), [diff.encode("utf-8", "replace")])
    except PaddleCloudError as error:
        return [caused("diff_unkept", error.code, error.params)]
    return []


def diff(deps: Deps, job: JobView) -> str:
    """The text of a job whose files differed; nothing where it was not kept."""
    try:
        with _in_words(deps), deps.store.read(_path(job.owner, job.job_id)) as reader:
            return b"".join(reader).decode("utf-8", "replace")
    except NotFound:
        return ""


@contextmanager
def _in_words(deps: Deps) -> Iterator[None]:
    """A disk that gives an error is told of as a bucket is: the job does not depend on it."""
    try:
        yield
    except OSError as error:
        place, detail = deps.settings.store.kind, error.strerror or str(error)
        raise Retry("store_failed", place=place, detail=detail) from error


def _path(owner: str, job_id: str) -> str:
    return f"{root_of(owner, job_id)}/git.diff"
