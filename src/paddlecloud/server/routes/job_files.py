"""Files of jobs, to list and to fetch. Logs and submitted files have modules of their own.

Those of a bucket are asked for in other threads than those of a disk: a bucket may be silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import bucket_pieces, in_bucket_thread, in_thread
from paddlecloud.server.http.routing import BYTES, Call, Route
from paddlecloud.server.schemas.files import FileQuery, FilesAnswer, FilesQuery
from paddlecloud.server.services.files import download_urls, job_files
from paddlecloud.server.services.jobs import actions, views

T = TypeVar("T")
Work = Callable[[Deps, Call, Job], T]


async def listed(deps: Deps, call: Call, _request: Request) -> FilesAnswer:
    return await _answer(deps, call, _listed)


async def fetch(deps: Deps, call: Call, _request: Request) -> Response:
    return await _answer(deps, call, _fetched)


async def _answer(deps: Deps, call: Call, work: Work[T]) -> T:
    job, found = await in_thread(_near, deps, call, work)
    if found is not None:
        return found
    return await in_bucket_thread(work, deps, call, job, whose=_whose(job))


def _near(deps: Deps, call: Call, work: Work[T]) -> tuple[Job, T | None]:
    """The job, and the answer unless a bucket has to be asked for it."""
    job = actions.get(deps, call.caller, call.path["job_id"])
    near = job_files.are_near(deps, job)
    return job, work(deps, call, job) if near else None


def _whose(job: Job) -> str:
    """Who waits for a bucket with this job: its owner's, or everybody for the server's."""
    return "" if job.spec.public_bos else job.owner


def _listed(deps: Deps, call: Call, job: Job) -> FilesAnswer:
    query: FilesQuery = call.query
    rows = job_files.listed(deps, job, query.prefix)
    if not query.direct:
        return FilesAnswer(files=rows, job_status=job.state.value)
    return FilesAnswer(
        files=rows,
        job_status=job.state.value,
        ways=download_urls.ways(deps, job, rows),
        left_behind=views.left_behind(deps, job, call.lang),
    )


def _fetched(deps: Deps, call: Call, job: Job) -> Response:
    query: FileQuery = call.query
    found = job_files.opened(deps, job, call.path["path"], query.offset, query.length)
    reader = found.reader
    headers = {"content-length": str(reader.length), "x-content-version": found.version}
    if found.sha256 is not None:
        headers["x-content-sha256"] = found.sha256
    pieces: Iterable[bytes] = reader
    if query.digest:
        headers["content-length"] = str(reader.length + job_files.DIGEST_BYTES)
        pieces = job_files.with_digest(reader)
    body = iter(pieces) if job.spec.public_bos else bucket_pieces(pieces, _whose(job))
    return StreamingResponse(body, media_type=BYTES, headers=headers)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/files",
        summary="List a job's files",
        streaming=listed,
        query=FilesQuery,
        answer=FilesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/files/{path:path}",
        summary="One file's bytes",
        streaming=fetch,
        query=FileQuery,
        media=BYTES,
    ),
)
