"""Addresses in buckets: for agents, of their jobs' files; for clients, in their owner's own."""

from __future__ import annotations

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Access, Call, Route
from paddlecloud.server.services import addresses, agents, jobs, private, private_uploads
from paddlecloud.server.services.agents import Assigned
from paddlecloud.server.shapes import ListingQuery, SubmitRequest, UploadAnswer
from paddlecloud.server.shapes_addresses import (
    ContentsAnswer,
    ContentsRequest,
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
from paddlecloud.server.threads import for_agent, in_bucket_thread, in_thread


def contents(deps: Deps, call: Call) -> ContentsAnswer:
    body: ContentsRequest = call.body
    job = agents.live(deps, call.caller.user_id, call.path["replica"]).job
    return ContentsAnswer(contents=addresses.contents(deps, job, body.sha256))


async def begin(deps: Deps, call: Call, _request: Request) -> OutputParts:
    assigned = await in_thread(_assigned, deps, call)
    name = _name(call)
    return await for_agent(assigned.job, addresses.begin, deps, assigned, name, call.body)


async def finish(deps: Deps, call: Call, _request: Request) -> UploadAnswer:
    assigned = await in_thread(_assigned, deps, call)
    size = await for_agent(assigned.job, _finish, deps, call)
    return UploadAnswer(size=size)


def _finish(deps: Deps, call: Call) -> int:
    # Its turn may have come late: meanwhile a newer attempt may have come to own this place.
    return addresses.finish(deps, _assigned(deps, call), _name(call), call.body)


async def private_files(deps: Deps, call: Call, _request: Request) -> PrivateFilesAnswer:
    """What the directory of a job to be holds; every rule that the job breaks is told here."""
    return await in_bucket_thread(_private_files, deps, call, whose=call.caller.user_id)


def _private_files(deps: Deps, call: Call) -> PrivateFilesAnswer:
    owner = call.caller.user_id
    spec, _ = jobs.admit(deps, owner, call.body)
    found = private.listed(deps, owner, spec, call.body)
    sizes = {entry.sha256: entry.size for entry in found.snapshot.entries}
    return PrivateFilesAnswer(
        files=[(path, sizes[name], tag) for name, (path, tag) in found.tags.items()]
    )


def private_addresses(deps: Deps, call: Call) -> PrivateAddressesAnswer:
    return PrivateAddressesAnswer(addresses=private.addresses(deps, call.body))


async def begin_upload(deps: Deps, call: Call, _request: Request) -> PrivateUpload:
    owner = call.caller.user_id
    return await in_bucket_thread(private_uploads.begin, deps, owner, call.body, whose=owner)


async def upload_addresses(deps: Deps, call: Call, _request: Request) -> PrivateAddressesAnswer:
    owner = call.caller.user_id
    return PrivateAddressesAnswer(
        addresses=await in_bucket_thread(
            private_uploads.addresses, deps, owner, call.body, whose=owner
        )
    )


async def join_upload(deps: Deps, call: Call, _request: Request) -> UploadAnswer:
    owner = call.caller.user_id
    return UploadAnswer(
        size=await in_bucket_thread(private_uploads.join, deps, owner, call.body, whose=owner)
    )


def _assigned(deps: Deps, call: Call) -> Assigned:
    return agents.upload(deps, call.caller.user_id, call.path["replica"], call.query.fence)


def _name(call: Call) -> str:
    return f"{call.path['area']}/{call.path['path']}"


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
        summary="Addresses for the parts of an output file",
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
        answer=UploadAnswer,
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
        long=True,
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
