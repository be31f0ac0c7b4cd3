"""Addresses in buckets: for agents, of their jobs' files; for clients, in their owner's own."""

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
from paddlecloud.server.services.agents import orders
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.transfer import agent_presigned, proxied_outputs
from paddlecloud.server.services.user_buckets import buckets, uploads
from paddlecloud.stores.deadline import be_prompt

T = TypeVar("T")
_JOINING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="join", initializer=be_prompt)
"""The digest of a large output takes its time: no submit stands in line behind it."""


def contents(deps: Deps, call: Call) -> ContentsAnswer:
    body: ContentsRequest = call.body
    job = orders.live(deps, call.caller.user_id, call.path["replica"]).job
    return ContentsAnswer(contents=agent_presigned.contents(deps, job, body.sha256))


async def begin(deps: Deps, call: Call, _request: Request) -> OutputParts:
    assigned = await in_thread(assigned_to, deps, call)
    name = output_name(call)
    return await for_agent(assigned.job, agent_presigned.begin, deps, assigned, name, call.body)


async def finish(deps: Deps, call: Call, _request: Request) -> JoinAnswer:
    assigned = await in_thread(assigned_to, deps, call)
    return await for_agent(assigned.job, _finish, deps, call, threads=_JOINING)


def _finish(deps: Deps, call: Call) -> JoinAnswer:
    # Its turn may have come late: meanwhile a newer attempt may have come to own this place.
    assigned, name, asked = assigned_to(deps, call), output_name(call), call.body
    if proxied_outputs.is_checked(job_files.place_of(deps, assigned.job).store):
        again = partial(assigned_to, deps, call)
        stored = proxied_outputs.finish(deps, assigned, name, asked, again)
        return JoinAnswer(size=asked.size, stored=stored)
    return JoinAnswer(size=agent_presigned.finish(deps, assigned, name, asked))


async def private_files(deps: Deps, call: Call, _request: Request) -> PrivateFilesAnswer:
    """What the directory of a job to be holds; every rule that the job breaks is told here."""
    return await in_bucket_thread(_private_files, deps, call, whose=call.caller.user_id)


def _private_files(deps: Deps, call: Call) -> PrivateFilesAnswer:
    found = buckets.promised(deps, call.caller.user_id, call.body)
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
        summary="Addresses of a job's files in a bucket",
        plain=contents,
        long=True,
        access=Access.AGENT,
        body=ContentsRequest,
        answer=ContentsAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
        summary="Begin to bring an output file in parts, or go on with it",
        streaming=begin,
        access=Access.AGENT,
        query=ListingQuery,
        body=OutputPartsRequest,
        answer=OutputParts,
    ),
    Route(
        method="PUT",
        path="/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
        summary="Join the parts of an output file",
        streaming=finish,
        access=Access.AGENT,
        query=ListingQuery,
        body=JoinRequest,
        answer=JoinAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/files",
        summary="Try the keys of a bucket and list its directory, before a submit",
        streaming=private_files,
        body=SubmitRequest,
        answer=PrivateFilesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/addresses",
        summary="Addresses to put files of a submit into a bucket of your own",
        plain=private_addresses,
        long=True,
        body=PrivateAddressesRequest,
        answer=PrivateAddressesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads",
        summary="Begin to put a large file into a bucket of your own in parts, or go on with it",
        streaming=begin_upload,
        body=PrivateUploadRequest,
        answer=PrivateUpload,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads/addresses",
        summary="Addresses for parts of a large file",
        streaming=upload_addresses,
        body=PrivatePartsRequest,
        answer=PrivateAddressesAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/uploads/join",
        summary="Join the parts of a large file in a bucket of your own",
        streaming=join_upload,
        body=PrivateJoinRequest,
        answer=UploadAnswer,
    ),
)
