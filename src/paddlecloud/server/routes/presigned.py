"""Presigned URLs in buckets: for agents, of their jobs' files; for clients, in their own bucket.

They are signed in `stores/s3/sigv4`; the bucket verifies them, never this server.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import for_agent, in_bucket_thread, in_thread
from paddlecloud.server.http.routing import Access, Call, Router
from paddlecloud.server.routes.agent_outputs import assigned_to, output_name
from paddlecloud.server.schemas.agent import ListingQuery, UploadAnswer
from paddlecloud.server.schemas.jobs import SubmitRequest
from paddlecloud.server.schemas.transfer import (
    ContentsAnswer,
    ContentsRequest,
    JoinAnswer,
    JoinRequest,
    OutputParts,
    OutputPartsRequest,
    PrivateAddressesAnswer,
    PrivateAddressesRequest,
    PrivateFilesAnswer,
    PrivateJoinRequest,
    PrivatePartsRequest,
    PrivateUpload,
    PrivateUploadRequest,
)
from paddlecloud.server.services.agents import assignment
from paddlecloud.server.services.jobs import submit
from paddlecloud.server.services.transfer import agent_inputs, output_uploads
from paddlecloud.server.services.user_buckets import buckets, uploads
from paddlecloud.stores.deadline import be_prompt

T = TypeVar("T")
_JOINING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="join", initializer=be_prompt)
"""Separate threads: submits do not wait behind the verification of large outputs."""
router = Router()


@router.post(
    "/api/v1/agent/replicas/{replica}/contents",
    "Presigned URLs of a job's files in a bucket",
    access=Access.AGENT,
    long=True,
    body=ContentsRequest,
)
def contents(deps: Deps, call: Call) -> ContentsAnswer:
    job = assignment.live(deps, call.caller.node, call.path["replica"]).job
    return ContentsAnswer(contents=agent_inputs.contents(deps, job, call.body.sha256))


@router.post(
    "/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
    "Begin or resume the upload of an output file in parts",
    access=Access.AGENT,
    query=ListingQuery,
    body=OutputPartsRequest,
)
async def begin(deps: Deps, call: Call, _request: Request) -> OutputParts:
    assigned = await in_thread(assigned_to, deps, call)
    name = output_name(call)
    return await for_agent(assigned.job, output_uploads.begin, deps, assigned, name, call.body)


@router.put(
    "/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
    "Complete the upload of an output file",
    access=Access.AGENT,
    query=ListingQuery,
    body=JoinRequest,
)
async def finish(deps: Deps, call: Call, _request: Request) -> JoinAnswer:
    assigned = await in_thread(assigned_to, deps, call)
    return await for_agent(assigned.job, _finish, deps, call, threads=_JOINING)


def _finish(deps: Deps, call: Call) -> JoinAnswer:
    # The call may have waited for a thread: check again that no newer attempt owns this path.
    assigned, name, asked = assigned_to(deps, call), output_name(call), call.body
    still_assigned = partial(assigned_to, deps, call)
    stored = output_uploads.finish(deps, assigned, name, asked, still_assigned)
    return JoinAnswer(size=asked.size, stored=stored)


@router.post(
    "/api/v1/private/files",
    "Check the keys of a bucket and list its directory, before a submit",
    body=SubmitRequest,
)
async def private_files(deps: Deps, call: Call, _request: Request) -> PrivateFilesAnswer:
    """List the directory of a job that is to be submitted, and check every rule for that job."""
    return await _in_own_bucket(submit.list_private_files, deps, call)


@router.post(
    "/api/v1/private/addresses",
    "Presigned URLs to put files of a submit into a bucket of your own",
    long=True,
    body=PrivateAddressesRequest,
)
def private_addresses(deps: Deps, call: Call) -> PrivateAddressesAnswer:
    return PrivateAddressesAnswer(addresses=buckets.addresses(deps, call.body))


@router.post(
    "/api/v1/private/uploads",
    "Begin or resume the upload of a large file into a bucket of your own",
    body=PrivateUploadRequest,
)
async def begin_upload(deps: Deps, call: Call, _request: Request) -> PrivateUpload:
    return await _in_own_bucket(uploads.begin, deps, call)


@router.post(
    "/api/v1/private/uploads/addresses",
    "Presigned URLs for parts of a large file",
    body=PrivatePartsRequest,
)
async def upload_addresses(deps: Deps, call: Call, _request: Request) -> PrivateAddressesAnswer:
    found = await _in_own_bucket(uploads.addresses, deps, call)
    return PrivateAddressesAnswer(addresses=found)


@router.post(
    "/api/v1/private/uploads/join",
    "Complete the upload of a large file in a bucket of your own",
    body=PrivateJoinRequest,
)
async def join_upload(deps: Deps, call: Call, _request: Request) -> UploadAnswer:
    return UploadAnswer(size=await _in_own_bucket(uploads.join, deps, call))


async def _in_own_bucket(work: Callable[[Deps, str, Any], T], deps: Deps, call: Call) -> T:
    owner = call.caller.user_id
    return await in_bucket_thread(work, deps, owner, call.body, whose=owner)
