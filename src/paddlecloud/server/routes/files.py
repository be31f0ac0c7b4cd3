"""Files of jobs, to list and to fetch. Logs and submitted files have modules of their own."""

from __future__ import annotations

from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, Route
from paddlecloud.server.services import files, jobs, ways
from paddlecloud.server.shapes import FileQuery, FilesAnswer, FilesQuery

BYTES = "application/octet-stream"


def listed(deps: Deps, call: Call) -> FilesAnswer:
    job = jobs.get(deps, call.caller, call.path["job_id"])
    query: FilesQuery = call.query
    rows = files.listed(deps, job, query.prefix)
    found = ways.ways(deps, job, rows) if query.direct else UNSET
    return FilesAnswer(files=rows, ways=found)


def fetch(deps: Deps, call: Call) -> Response:
    query: FileQuery = call.query
    job = jobs.get(deps, call.caller, call.path["job_id"])
    found = files.opened(deps, job, call.path["path"], query.offset, query.length)
    reader = found.reader
    headers = {"content-length": str(reader.length), "x-content-version": found.version}
    if found.sha256 is not None:
        headers["x-content-sha256"] = found.sha256
    if not query.digest:
        return StreamingResponse(iter(reader), media_type=BYTES, headers=headers)
    headers["content-length"] = str(reader.length + files.DIGEST_BYTES)
    return StreamingResponse(files.with_digest(reader), media_type=BYTES, headers=headers)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/files",
        summary="List a job's files",
        plain=listed,
        query=FilesQuery,
        answer=FilesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/files/{path:path}",
        summary="One file's bytes",
        plain=fetch,
        query=FileQuery,
        media=BYTES,
    ),
)
