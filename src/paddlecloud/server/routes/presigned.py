"""Presigned URLs in buckets: for agents, of their jobs' files; for clients, in their own bucket."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import for_agent, in_bucket_thread, in_thread
from paddlecloud.server.http.routing import Access, Call, Route
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


def contents(deps: Deps, call: Call) -> ContentsAnswer:
    body: ContentsRequest = call.body
    job = assignment.live(deps, call.caller.node, call.path["replica"]).job
    return ContentsAnswer(contents=agent_inputs.contents(deps, job, body.sha256))


async def begin(deps: Deps, call: Call, _request: Request) -> OutputParts:
    assigned = await in_thread(assigned_to, deps, call)
    name = output_name(call)
    return await for_agent(assigned.job, output_uploads.begin, deps, assigned, name, call.body)


async def finish(deps: Deps, call: Call, _request: Request) -> JoinAnswer:
    assigned = await in_thread(assigned_to, deps, call)
    return await for_agent(assigned.job, _finish, deps, call, threads=_JOINING)


def _finish(deps: Deps, call: Call) -> JoinAnswer:
    # The call may have waited for a thread: check again that no newer attempt owns this path.
    assigned, name, asked = assigned_to(deps, call), output_name(call), call.body
    still_assigned = partial(assigned_to, deps, call)
    stored = output_uploads.finish(deps, assigned, name, asked, still_assigned)
    return JoinAnswer(size=asked.size, stored=stored)


async def private_files(deps: Deps, call: Call, _request: Request) -> PrivateFilesAnswer:
    """List the directory of a job that is to be submitted, and check every rule for that job."""
    return await in_bucket_thread(_private_files, deps, call, whose=call.caller.user_id)


def _private_files(deps: Deps, call: Call) -> PrivateFilesAnswer:
    found = submit.list_private_files(deps, call.caller.user_id, call.body)
    sizes = {entry.sha256: entry.size for entry in found.snapshot.entries}
    return PrivateFilesAnswer(
        files=[(path, sizes[name], tag) for name, (path, tag) in found.tags.items()]
    )


def private_addresses(deps: Deps, call: Call) -> PrivateAddressesAnswer:
    return PrivateAddressesAnswer(addresses=buckets.addresses(deps, call.body))


async def begin_upload(deps: Deps, call: Call, _request: Request) -> PrivateUpload:
    return await _in_own_bucket(uploads.begin, deps, call)


async def upload_addresses(deps: Deps, call: Call, _request: Request) -> PrivateAddressesAnswer:
    found = await _in_own_bucket(uploads.addresses, deps, call)
    return PrivateAddressesAnswer(addresses=found)


async def join_upload(deps: Deps, call: Call, _request: Request) -> UploadAnswer:
    return UploadAnswer(size=await _in_own_bucket(uploads.join, deps, call))


async def _in_own_bucket(work: Callable[[Deps, str, Any], T], deps: Deps, call: Call) -> T:
    owner = call.caller.user_id
    return await in_bucket_thread(work, deps, owner, call.body, whose=owner)


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/agent/replicas/{replica}/contents",
        summary="Presigned URLs of a job's files in a bucket",
        plain=contents,
        long=True,
        access=Access.AGENT,
        body=ContentsRequest,
        answer=ContentsAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
        summary="Begin or resume the upload of an output file in parts",
        streaming=begin,
        access=Access.AGENT,
        query=ListingQuery,
        body=OutputPartsRequest,
        answer=OutputParts,
    ),
    Route(
        method="PUT",
        path="/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
        summary="Complete the upload of an output file",
        streaming=finish,
        access=Access.AGENT,
        query=ListingQuery,
        body=JoinRequest,
        answer=JoinAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/files",
        summary="Check the keys of a bucket and list its directory, before a submit",
        streaming=private_files,
        body=SubmitRequest,
        answer=PrivateFilesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/addresses",
        summary="Presigned URLs to put files of a submit into a bucket of your own",
        plain=private_addresses,
        long=True,
        body=PrivateAddressesRequest,
        answer=PrivateAddressesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads",
        summary="Begin or resume the upload of a large file into a bucket of your own",
        streaming=begin_upload,
        body=PrivateUploadRequest,
        answer=PrivateUpload,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads/addresses",
        summary="Presigned URLs for parts of a large file",
        streaming=upload_addresses,
        body=PrivatePartsRequest,
        answer=PrivateAddressesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads/join",
        summary="Complete the upload of a large file in a bucket of your own",
        streaming=join_upload,
        body=PrivateJoinRequest,
        answer=UploadAnswer,
    ),
)
