"""Output files that agents send: appended, in bundles, in parts; and their list at the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.requests import Request

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.protocol.bce_auth import CONTENT_SHA256, UNSIGNED
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import agents_of, for_agent, in_long_thread, in_thread
from paddlecloud.server.http.request_body import decode_body, signed_body
from paddlecloud.server.http.routing import Access, Call, Router
from paddlecloud.server.http.socket_body import AT_ONCE, slot, with_part
from paddlecloud.server.schemas.agent import (
    AppendQuery,
    ListingAnswer,
    ListingQuery,
    ListingRequest,
    UploadAnswer,
)
from paddlecloud.server.schemas.transfer import OutputPartQuery, PartAnswer
from paddlecloud.server.services.agents import assignment
from paddlecloud.server.services.agents.assignment import Assigned
from paddlecloud.server.services.files import job_files, outputs
from paddlecloud.server.services.transfer.open_uploads import Record
from paddlecloud.server.services.transfer.output_uploads import OutputUpload
from paddlecloud.stores.deadline import be_prompt

MAX_APPEND = 16 * 1024 * 1024
MAX_BUNDLE = 4 * 1024 * 1024
MAX_LISTING = 256 * 1024 * 1024
_SLOW = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="output", initializer=be_prompt)
"""Separate threads: submits do not wait behind the outputs of many, or far away, machines."""
router = Router()


@router.post(
    "/api/v1/agent/replicas/{replica}/files/{area}/{path:path}",
    "Append to an output file",
    access=Access.AGENT,
    query=AppendQuery,
)
async def append(deps: Deps, call: Call, request: Request) -> UploadAnswer:
    """Append to an output file; nothing counts before the whole body is here and verified."""
    data = await signed_body(request, call.headers, MAX_APPEND)
    return await in_long_thread(_append, deps, call, data)


def _append(deps: Deps, call: Call, data: bytes) -> UploadAnswer:
    query: AppendQuery = call.query
    what = (assigned_to(deps, call), output_name(call))
    return UploadAnswer(size=outputs.append(deps, *what, query.offset, data, query.mtime))


@router.put(
    "/api/v1/agent/replicas/{replica}/part/{area}/{path:path}",
    "Upload one part of a large output file",
    access=Access.AGENT,
    query=OutputPartQuery,
)
async def part(deps: Deps, call: Call, request: Request) -> PartAnswer:
    """Store one part of a large output file that does not go to a bucket by presigned URL."""
    query: OutputPartQuery = call.query
    number = query.number
    assigned = await in_thread(assigned_to, deps, call)
    near = job_files.are_near(deps, assigned.job)
    if not near and call.headers[CONTENT_SHA256] == UNSIGNED:
        # What a bucket joins is not verified as a whole, so each part has to be.
        raise Unauthenticated("auth_body_hash")

    def open_upload() -> tuple[OutputUpload, Record]:
        upload = OutputUpload(deps, assigned, output_name(call))
        return upload, upload.open(query.upload)

    found = in_thread(open_upload) if near else for_agent(assigned.job, open_upload)
    upload, record = await found
    keep = partial(upload.put_part, record, number)
    if assigned.job.spec.public_bos:
        await with_part(call, request, record, number, keep, _SLOW)
    else:
        # A user's bucket may be silent: the threads of bodies do not wait for it.
        async with slot(agents_of(assigned.job)):
            data = await with_part(call, request, record, number, bytes, _SLOW)
            await for_agent(assigned.job, keep, data)
    return PartAnswer(number=number)


def output_name(call: Call) -> str:
    """Which output file a route is about."""
    return f"{call.path['area']}/{call.path['path']}"


def assigned_to(deps: Deps, call: Call) -> Assigned:
    """The replica that a route is about; StaleFence if it may not send files now."""
    return assignment.for_upload(deps, call.caller.node, call.path["replica"], call.query.fence)


@router.post(
    "/api/v1/agent/replicas/{replica}/bundle",
    "Upload many small output files",
    access=Access.AGENT,
    query=ListingQuery,
)
async def bundle(deps: Deps, call: Call, request: Request) -> ListingAnswer:
    """Store many small files: a line of JSON about them, and their bytes; answered with those that
    have to be sent by themselves."""
    raw = await signed_body(request, call.headers, MAX_BUNDLE)
    assigned = await in_long_thread(assigned_to, deps, call)
    return await for_agent(assigned.job, _bundle, deps, call, raw)


def _bundle(deps: Deps, call: Call, raw: bytes) -> ListingAnswer:
    return outputs.take_bundle(deps, assigned_to(deps, call), raw)


@router.post(
    "/api/v1/agent/replicas/{replica}/listing",
    "List all output files of a worker that ended",
    access=Access.AGENT,
    query=ListingQuery,
)
async def listing(deps: Deps, call: Call, request: Request) -> ListingAnswer:
    """Take the list of all files of a worker that ended; answered with those that are missing."""
    raw = await signed_body(request, call.headers, MAX_LISTING)
    assigned = await in_long_thread(assigned_to, deps, call)
    return await for_agent(assigned.job, _listing, deps, call, raw)


def _listing(deps: Deps, call: Call, raw: bytes) -> ListingAnswer:
    rows = decode_body(raw, ListingRequest).files
    return outputs.take_listing(deps, assigned_to(deps, call), rows)
