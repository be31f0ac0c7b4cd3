"""Direct download locations of a job's files: local paths or presigned URLs.

An embedded server gives the path in its store, which belongs to the caller; a store in a bucket
gives presigned URLs. They are optional: a client fetches everything else through the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from paddlecloud.model.files.layout import output_root
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.files import FileRow, FilesAnswer, FilesQuery
from paddlecloud.server.services.files import job_files, snapshots
from paddlecloud.server.services.files.job_files import place_of, user_root
from paddlecloud.server.services.jobs import views
from paddlecloud.stores.base import CanLocalPath, CanPresign

GOOD_FOR = timedelta(hours=6)


def download_urls(deps: Deps, job: Job, rows: Iterable[FileRow]) -> dict[str, str]:
    """Local path or presigned URL by path of a file.

    A presigned URL is given only for a file with a known digest, by which the client detects
    damaged and replaced files.
    """
    files = [row for row in rows if not row.path.endswith("/")]
    place = place_of(deps, job)
    if isinstance(place.store, CanLocalPath) and not deps.settings.team:
        above = place.store.local_path(user_root(job.owner))
        below = len(user_root(job.owner)) + 1
        return {row.path: f"{above}/{_stored_at(job, row)[below:]}" for row in files if above}
    store, now = place.store, deps.clock()
    if not isinstance(store, CanPresign):
        return {}
    own = not job.spec.public_bos
    return {
        row.path: store.presign_read(
            row.path if own else _stored_at(job, row), good_for=GOOD_FOR, now=now
        )
        for row in files
        if row.sha256
    }


def _stored_at(job: Job, row: FileRow) -> str:
    """The path of a file in the server's store."""
    if row.path.startswith(output_root(job.id) + "/") or row.sha256 is None:
        return f"{user_root(job.owner)}/{row.path}"
    return snapshots.blob_path(job.owner, row.sha256)


def list_files(deps: Deps, job: Job, query: FilesQuery, lang: str) -> FilesAnswer:
    """A job's files; with `direct` also their direct download locations, and what is missing."""
    rows = job_files.listed(deps, job, query.prefix)
    if not query.direct:
        return FilesAnswer(job_id=job.id, files=rows, job_status=job.state.value)
    return FilesAnswer(
        job_id=job.id,
        files=rows,
        job_status=job.state.value,
        ways=download_urls(deps, job, rows),
        left_behind=views.left_behind(deps, job, lang),
    )
