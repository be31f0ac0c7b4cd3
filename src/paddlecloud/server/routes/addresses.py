"""Addresses in buckets: for agents, of their jobs' files; for clients, in their owner's own."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Access, Call, Route
from paddlecloud.server.services import addresses, agents, jobs, private
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
)


def contents(deps: Deps, call: Call) -> ContentsAnswer:
    body: ContentsRequest = call.body
    job = agents.live(deps, call.caller.user_id, call.path["replica"]).job
    return ContentsAnswer(contents=addresses.contents(deps, job, body.sha256))


def begin(deps: Deps, call: Call) -> OutputParts:
    return addresses.begin(deps, _assigned(deps, call), _name(call), call.body)


def finish(deps: Deps, call: Call) -> UploadAnswer:
    return UploadAnswer(size=addresses.finish(deps, _assigned(deps, call), _name(call), call.body))


def private_files(deps: Deps, call: Call) -> PrivateFilesAnswer:
    """What the directory of a job to be holds; every rule that the job breaks is told here."""
    owner = call.caller.user_id
    spec, _ = jobs.admit(deps, owner, call.body)
    found = private.listed(deps, owner, spec, call.body)
    sizes = {entry.sha256: entry.size for entry in found.snapshot.entries}
    return PrivateFilesAnswer(
        files=[(path, sizes[name], tag) for name, (path, tag) in found.tags.items()]
    )


def private_addresses(deps: Deps, call: Call) -> PrivateAddressesAnswer:
    return PrivateAddressesAnswer(addresses=private.addresses(deps, call.body))


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
        plain=begin,
        long=True,
        access=Access.AGENT,
        query=ListingQuery,
        body=OutputPartsRequest,
        answer=OutputParts,
    ),
    Route(
        method="PUT",
        path="/api/v1/agent/replicas/{replica}/parts/{area}/{path:path}",
        summary="Join the parts of an output file",
        plain=finish,
        long=True,
        access=Access.AGENT,
        query=ListingQuery,
        body=JoinRequest,
        answer=UploadAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/private/files",
        summary="Try the keys of a bucket and list its directory, before a submit",
        plain=private_files,
        long=True,
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
)
