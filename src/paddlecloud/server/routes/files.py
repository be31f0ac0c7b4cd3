"""Files of jobs and their logs, out; snapshots and their contents, in."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, Route, SignedBody
from paddlecloud.server.services import files, jobs, snapshots
from paddlecloud.server.shapes import (
    BlobsAnswer,
    FileQuery,
    FilesAnswer,
    FilesQuery,
    LogsQuery,
    SnapshotAnswer,
    SnapshotRequest,
)

BYTES = "application/octet-stream"
LOG_CHUNK = 256 * 1024


def listed(deps: Deps, call: Call) -> FilesAnswer:
    job = jobs.get(deps, call.caller.user_id, call.path["job_id"])
    return FilesAnswer(files=files.listed(deps, job, call.query.prefix))


def fetch(deps: Deps, call: Call) -> Response:
    query: FileQuery = call.query
    job = jobs.get(deps, call.caller.user_id, call.path["job_id"])
    reader = files.opened(deps, job, call.path["path"], query.offset)
    headers = {"content-length": str(reader.length)}
    return StreamingResponse(iter(reader), media_type=BYTES, headers=headers)


async def logs(deps: Deps, call: Call, _request: Request) -> Response:
    """The bytes of one worker's log from an offset on; with follow, until the job is over."""
    query: LogsQuery = call.query
    job = await run_in_threadpool(jobs.get, deps, call.caller.user_id, call.path["job_id"])
    place = await run_in_threadpool(files.log_place, deps, job, query.worker, query.attempt)
    offset = query.offset
    if query.tail is not None:
        offset = await run_in_threadpool(deps.logs.tail_offset, place.path, query.tail)
    following = bool(query.follow) and place.attempt >= job.attempt
    pieces = _pieces(deps, call, place.path, offset, follow=following)
    headers = {"x-log-offset": str(offset), "x-log-worker": place.worker}
    return StreamingResponse(pieces, media_type=BYTES, headers=headers)


async def _pieces(
    deps: Deps, call: Call, path: str, offset: int, *, follow: bool
) -> AsyncIterator[bytes]:
    job_id, owner = call.path["job_id"], call.caller.user_id
    over = not follow
    with deps.hub.waiter(("log", job_id), ("job", job_id)) as waiter:
        while True:
            data = await run_in_threadpool(deps.logs.read, path, offset, LOG_CHUNK)
            if data:
                offset += len(data)
                yield data
            elif over or deps.hub.closed:
                return
            else:
                # The end is looked at before the last read, so that no byte slips in between.
                over = (await run_in_threadpool(jobs.get, deps, owner, job_id)).final
                if not over:
                    await waiter.wait(1.0)


def offer(deps: Deps, call: Call) -> SnapshotAnswer:
    request: SnapshotRequest = call.body
    snapshot, missing = snapshots.offer(deps, call.caller.user_id, request.entries)
    return SnapshotAnswer(id=snapshot.id, missing=missing)


async def blobs(deps: Deps, call: Call, request: Request) -> BlobsAnswer:
    """A pack stream of contents; each is checked against its digest and stored."""
    receiver = snapshots.receiver(deps, call.caller.user_id)
    try:
        async for piece in SignedBody(request, call.headers).pieces():
            receiver.feed(piece)
        return BlobsAnswer(stored=receiver.finish())
    finally:
        receiver.abort()


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
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/logs",
        summary="A worker's log",
        streaming=logs,
        query=LogsQuery,
        media=BYTES,
    ),
    Route(
        method="POST",
        path="/api/v1/snapshots",
        summary="Name files by content; what is missing?",
        plain=offer,
        body=SnapshotRequest,
        answer=SnapshotAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/blobs",
        summary="Upload missing contents as a pack stream",
        streaming=blobs,
        answer=BlobsAnswer,
    ),
)
