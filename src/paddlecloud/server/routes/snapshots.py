"""Submitted files: which blobs are missing, pack streams of small ones, big ones in parts."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_checking_thread, in_long_thread, in_thread
from paddlecloud.server.http.request_body import signed_batches
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.http.socket_body import with_part
from paddlecloud.server.schemas.files import BlobsAnswer, SnapshotAnswer, SnapshotRequest
from paddlecloud.server.schemas.transfer import (
    FinishAnswer,
    FinishRequest,
    PartAnswer,
    PartsAnswer,
    PartsRequest,
    PlaceAnswer,
    PlaceRequest,
)
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.transfer import blobs as blob_uploads

router = Router()


@router.post(
    "/api/v1/snapshots",
    "Announce a snapshot; which blobs are missing?",
    long=True,
    body=SnapshotRequest,
)
def offer(deps: Deps, call: Call) -> SnapshotAnswer:
    return snapshots.offer(
        deps, call.caller.user_id, call.body.entries, dry_run=bool(call.body.dry_run)
    )


@router.post("/api/v1/blobs", "Upload missing blobs as a pack stream")
async def blobs(deps: Deps, call: Call, request: Request) -> BlobsAnswer:
    """Store the blobs of a pack stream, each verified by its digest."""
    receiver = await in_long_thread(snapshots.Receiver, deps, call.caller.user_id)
    try:
        async for batch in signed_batches(request, call.headers):
            await in_long_thread(receiver.feed, batch)
        return BlobsAnswer(stored=await in_long_thread(receiver.finish))
    finally:
        await in_long_thread(receiver.close)


@router.post(
    "/api/v1/uploads",
    "Begin or resume the upload of a big file in parts",
    long=True,
    body=PartsRequest,
)
def upload(deps: Deps, call: Call) -> PartsAnswer:
    return blob_uploads.begin(deps, call.caller.user_id, call.body)


@router.post(
    "/api/v1/uploads/place",
    "Where a client on the same machine may copy big files to",
    body=PlaceRequest,
)
def place(deps: Deps, call: Call) -> PlaceAnswer:
    return blob_uploads.place(deps)


@router.put("/api/v1/uploads/{sha256}/{number}", "Upload one part")
async def part(deps: Deps, call: Call, request: Request) -> PartAnswer:
    """Store one part; its CRC-32 or its digest is signed, and the whole is verified at the end."""
    word = call.path["number"]
    number = int(word) if word.isascii() and word.isdigit() and len(word) < 9 else 0
    upload = blob_uploads.BlobUpload(deps, call.caller.user_id, call.path["sha256"])
    record = await in_thread(upload.open)
    await with_part(call, request, record, number, partial(upload.put_part, record, number))
    return PartAnswer(number=number)


@router.post(
    "/api/v1/uploads/{sha256}/finish", "Complete the upload of a big file", body=FinishRequest
)
async def finish(deps: Deps, call: Call, _request: Request) -> FinishAnswer:
    asked = deps, call.caller.user_id, call.path["sha256"]
    return FinishAnswer(stored=await in_checking_thread(blob_uploads.finish, *asked))
