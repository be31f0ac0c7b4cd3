"""Files of jobs and their logs, out; snapshots and their contents, in."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, GoingDown, Route, SignedBody
from paddlecloud.server.services import files, jobs, snapshots
from paddlecloud.server.services.files import LogPlace
from paddlecloud.server.shapes import (
    BlobsAnswer,
    FileQuery,
    FilesAnswer,
    FilesQuery,
    LogsQuery,
    SnapshotAnswer,
    SnapshotRequest,
)
from paddlecloud.server.threads import in_long_thread, in_thread

BYTES = "application/octet-stream"


def listed(deps: Deps, call: Call) -> FilesAnswer:
    job = jobs.get(deps, call.caller, call.path["job_id"])
    return FilesAnswer(files=files.listed(deps, job, call.query.prefix))


def fetch(deps: Deps, call: Call) -> Response:
    query: FileQuery = call.query
    job = jobs.get(deps, call.caller, call.path["job_id"])
    reader, sha256 = files.opened(deps, job, call.path["path"], query.offset)
    headers = {"content-length": str(reader.length)}
    if sha256 is not None:
        headers["x-content-sha256"] = sha256
    return StreamingResponse(iter(reader), media_type=BYTES, headers=headers)


async def logs(deps: Deps, call: Call, _request: Request) -> Response:
    """The bytes of one worker's log from an offset on; with follow, until that attempt is over.

    Of a job that is tried again the next attempt has a log of its own, which begins at 0: the
    follower asks for it. x-log-attempt says whose log this is.
    """
    query: LogsQuery = call.query
    job = await in_thread(jobs.get, deps, call.caller, call.path["job_id"])
    place = await in_thread(files.log_place, deps, job, query.worker, query.attempt)
    offset = query.offset
    if query.tail is not None:
        offset = await in_thread(deps.logs.tail_offset, place.path, query.tail)
    pieces = _pieces(deps, call, place, offset)
    headers = {
        "x-log-offset": str(offset),
        "x-log-worker": place.worker,
        "x-log-attempt": str(place.attempt),
    }
    return StreamingResponse(pieces, media_type=BYTES, headers=headers)


async def _pieces(deps: Deps, call: Call, place: LogPlace, offset: int) -> AsyncIterator[bytes]:
    query: LogsQuery = call.query
    job_id = call.path["job_id"]
    with deps.hub.waiter(("log", job_id), ("job", job_id)) as waiter:
        while True:
            piece = await in_thread(files.log_piece, deps, job_id, place, offset)
            if piece.data:
                offset += len(piece.data)
                yield piece.data
            elif piece.final or piece.newer or not query.follow:
                return
            elif deps.hub.closed:
                raise GoingDown("the log goes on; the follower comes back for it")
            else:
                await waiter.wait(1.0)


def offer(deps: Deps, call: Call) -> SnapshotAnswer:
    request: SnapshotRequest = call.body
    snapshot, missing = snapshots.offer(deps, call.caller.user_id, request.entries)
    return SnapshotAnswer(id=snapshot.id, missing=missing)


async def blobs(deps: Deps, call: Call, request: Request) -> BlobsAnswer:
    """A pack stream of contents; each is checked against its digest and stored."""
    receiver = snapshots.receiver(deps, call.caller.user_id)
    try:
        async for batch in SignedBody(request, call.headers).batches():
            await in_long_thread(receiver.feed, batch)
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
        long=True,
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
