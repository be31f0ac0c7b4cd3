"""The git diff of a job: how its files differed from their commit when it was submitted.

It may be a mebibyte, so it is stored as a file and not in the row of the job. It is deleted with
the job.
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
    """Store the diff; idempotent. If that fails, a note for the user is returned: the job is
    accepted, and an error would make the client submit it again."""
    try:
        with _in_words(deps):
            deps.store.write(_path(job.owner, job.id), [diff.encode("utf-8", "replace")])
    except PaddleCloudError as error:
        return [caused("diff_unkept", error.code, error.params)]
    return []


def diff(deps: Deps, job: JobView) -> str:
    """The stored diff, or empty text."""
    try:
        with _in_words(deps), deps.store.read(_path(job.owner, job.job_id)) as reader:
            return b"".join(reader).decode("utf-8", "replace")
    except NotFound:
        return ""


@contextmanager
def _in_words(deps: Deps) -> Iterator[None]:
    """Raise errors of the disk like those of a bucket: the job does not depend on them."""
    try:
        yield
    except OSError as error:
        place, detail = deps.settings.store.kind, error.strerror or str(error)
        raise Retry("store_failed", place=place, detail=detail) from error


def _path(owner: str, job_id: str) -> str:
    return f"{root_of(owner, job_id)}/git.diff"
