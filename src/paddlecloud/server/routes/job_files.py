"""Files of jobs: listing and download. Submitted files and logs have routes of their own.

Files in a bucket are read in other threads than files on a disk, because a bucket may not respond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import bucket_chunks, in_bucket_thread, in_thread
from paddlecloud.server.http.routing import BYTES, Call, Router
from paddlecloud.server.schemas.files import FileQuery, FilesAnswer, FilesQuery
from paddlecloud.server.services.files import download_urls, job_files
from paddlecloud.server.services.jobs import queries

T = TypeVar("T")
router = Router()


@router.get("/api/v1/jobs/{job_id}/files", "List a job's files", query=FilesQuery)
async def list_files(deps: Deps, call: Call, _request: Request) -> FilesAnswer:
    return await _in_thread(
        deps, call, lambda job: download_urls.list_files(deps, job, call.query, call.lang)
    )


@router.get(
    "/api/v1/jobs/{job_id}/files/{path:path}", "One file's bytes", query=FileQuery, media=BYTES
)
async def download(deps: Deps, call: Call, _request: Request) -> Response:
    return await _in_thread(deps, call, lambda job: _response(deps, call, job))


async def _in_thread(deps: Deps, call: Call, work: Callable[[Job], T]) -> T:
    job = await in_thread(queries.get, deps, call.caller, call.path["job_id"])
    if job_files.are_near(deps, job):
        return await in_thread(work, job)
    return await in_bucket_thread(work, job, whose=_bucket_owner(job))


def _bucket_owner(job: Job) -> str:
    """Whose threads wait for the bucket: the owner's, or for public storage the server's."""
    return "" if job.spec.public_bos else job.owner


def _response(deps: Deps, call: Call, job: Job) -> Response:
    query: FileQuery = call.query
    found = job_files.opened(deps, job, call.path["path"], query.offset, query.length)
    length = found.reader.length + (job_files.DIGEST_BYTES if query.digest else 0)
    headers = {"content-length": str(length), "x-content-version": found.version}
    if found.sha256 is not None:
        headers["x-content-sha256"] = found.sha256
    chunks = job_files.with_digest(found.reader) if query.digest else found.reader
    public = job.spec.public_bos
    body = iter(chunks) if public else bucket_chunks(chunks, _bucket_owner(job))
    return StreamingResponse(body, media_type=BYTES, headers=headers)
