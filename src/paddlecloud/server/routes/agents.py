"""The agents' routes: orders out, reports and files in. An agent dials out; nobody dials in."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.db.attempts import Want
from paddlecloud.model.errors import Invalid
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Access, Call, Route, SignedBody, decode_body
from paddlecloud.server.services import agents, snapshots
from paddlecloud.server.shapes import (
    EntriesAnswer,
    PollAnswer,
    PollRequest,
    ReplicaQuery,
    Report,
    ReportAnswer,
    UploadAnswer,
    UploadQuery,
)
from paddlecloud.server.threads import in_thread

BYTES = "application/octet-stream"
IDLE_SECONDS = 1.0
"""So long may orders that are no hurry wait for company."""
MAX_REPORT = 16 * 1024 * 1024


async def poll(deps: Deps, call: Call, _request: Request) -> PollAnswer:
    """Orders above the cursor: at once if there are any, else when one comes."""
    asked: PollRequest = call.body
    node = call.caller.user_id
    await in_thread(agents.seen, deps, node, asked)
    began = time.monotonic()
    deadline = began + asked.wait
    with deps.hub.waiter(("agent", node)) as waiter:
        while True:
            answer = await in_thread(agents.orders, deps, node, asked)
            if answer.orders:
                # Forgetting is no hurry, and an answer now would delay the order to run behind it.
                urgent = any(order.want != Want.FORGET for order in answer.orders)
                deadline = min(deadline, 0.0 if urgent else began + IDLE_SECONDS)
            left = deadline - time.monotonic()
            if answer.restart or left <= 0 or deps.hub.closed:
                return answer
            await waiter.wait(min(left, 5.0))


async def report(deps: Deps, call: Call, request: Request) -> ReportAnswer:
    raw = memoryview(await SignedBody(request, call.headers).whole(MAX_REPORT))
    size = int.from_bytes(raw[:4], "big")
    if len(raw) < 4 + size:
        raise Invalid("body_invalid", detail="the report is shorter than its own length says")
    notes = decode_body(bytes(raw[4 : 4 + size]), Report)
    assert isinstance(notes, Report)
    return await in_thread(agents.report, deps, call.caller.user_id, notes, raw[4 + size :])


def manifest(deps: Deps, call: Call) -> EntriesAnswer:
    job = agents.replica_owner(deps, call.caller.user_id, call.query.replica)
    found = snapshots.manifest(deps, job.owner, call.path["snapshot_id"])
    return EntriesAnswer(entries=snapshots.rows_of(found))


def blob(deps: Deps, call: Call) -> Response:
    job = agents.replica_owner(deps, call.caller.user_id, call.query.replica)
    reader = deps.store.read(snapshots.blob_path(job.owner, call.path["sha256"]))
    headers = {"content-length": str(reader.length)}
    return StreamingResponse(iter(reader), media_type=BYTES, headers=headers)


async def upload(deps: Deps, call: Call, request: Request) -> UploadAnswer:
    """One output file: it gets its name when all of it is here and is what was signed."""
    query: UploadQuery = call.query
    assigned = await in_thread(
        agents.upload, deps, call.caller.user_id, call.path["replica"], query.fence
    )
    modified = None if query.mtime is None else datetime.fromtimestamp(query.mtime, UTC)
    sink = agents.open_output(deps, assigned, call.path["area"], call.path["path"], modified)
    try:
        async for piece in SignedBody(request, call.headers).pieces():
            sink.write(piece)
        # Sending takes its time: meanwhile a newer attempt may have come to own this place.
        await in_thread(agents.upload, deps, call.caller.user_id, call.path["replica"], query.fence)
        return UploadAnswer(size=sink.commit().size)
    finally:
        sink.abort()


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/agent/poll",
        summary="Wait for orders",
        streaming=poll,
        access=Access.AGENT,
        body=PollRequest,
        answer=PollAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/agent/report",
        summary="Starts, log bytes, ends",
        streaming=report,
        access=Access.AGENT,
        answer=ReportAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/agent/snapshots/{snapshot_id}",
        summary="A job's file list",
        plain=manifest,
        access=Access.AGENT,
        query=ReplicaQuery,
        answer=EntriesAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/agent/blobs/{sha256}",
        summary="A content of a job's files",
        plain=blob,
        access=Access.AGENT,
        query=ReplicaQuery,
        media=BYTES,
    ),
    Route(
        method="PUT",
        path="/api/v1/agent/replicas/{replica}/files/{area}/{path:path}",
        summary="Bring back an output file",
        streaming=upload,
        access=Access.AGENT,
        query=UploadQuery,
        answer=UploadAnswer,
    ),
)
