"""Output files that agents bring piece by piece, and the list of them at the end of a worker."""

from __future__ import annotations

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Access, Call, Route, SignedBody, decode_body
from paddlecloud.server.services import agents, outputs
from paddlecloud.server.services.agents import Assigned
from paddlecloud.server.shapes import (
    AppendQuery,
    ListingAnswer,
    ListingQuery,
    ListingRequest,
    UploadAnswer,
)
from paddlecloud.server.threads import for_agent, in_long_thread

MAX_PIECE = 16 * 1024 * 1024
MAX_LISTING = 256 * 1024 * 1024


async def append(deps: Deps, call: Call, request: Request) -> UploadAnswer:
    """What grew of an output file; nothing of it counts before all is here and is as signed."""
    data = await SignedBody(request, call.headers).whole(MAX_PIECE)
    return await in_long_thread(_append, deps, call, data)


def _append(deps: Deps, call: Call, data: bytes) -> UploadAnswer:
    query: AppendQuery = call.query
    name = f"{call.path['area']}/{call.path['path']}"
    assigned = _assigned(deps, call)
    return UploadAnswer(size=outputs.append(deps, assigned, name, query.offset, data, query.mtime))


async def listing(deps: Deps, call: Call, request: Request) -> ListingAnswer:
    """All files of a worker that is over; answered with those that are not here as named."""
    raw = await SignedBody(request, call.headers).whole(MAX_LISTING)
    assigned = await in_long_thread(_assigned, deps, call)
    return await for_agent(assigned.job, _listing, deps, call, raw)


def _listing(deps: Deps, call: Call, raw: bytes) -> ListingAnswer:
    asked = decode_body(raw, ListingRequest)
    assert isinstance(asked, ListingRequest)
    return ListingAnswer(missing=outputs.take_listing(deps, _assigned(deps, call), asked.files))


def _assigned(deps: Deps, call: Call) -> Assigned:
    return agents.upload(deps, call.caller.user_id, call.path["replica"], call.query.fence)


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/agent/replicas/{replica}/files/{area}/{path:path}",
        summary="Bring what grew of an output file",
        streaming=append,
        access=Access.AGENT,
        query=AppendQuery,
        answer=UploadAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/agent/replicas/{replica}/listing",
        summary="Name all output files of a worker that is over",
        streaming=listing,
        access=Access.AGENT,
        query=ListingQuery,
        answer=ListingAnswer,
    ),
)
