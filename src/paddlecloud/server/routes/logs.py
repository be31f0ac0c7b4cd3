"""The route of logs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.connection_limits import connection_of
from paddlecloud.server.http.routing import BYTES, Call, Router
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.logs import follow

router = Router()


@router.get("/api/v1/jobs/{job_id}/logs", "A worker's log", query=LogsQuery, media=BYTES)
async def read(deps: Deps, call: Call, request: Request) -> Response:
    """The bytes of one worker's log from an offset on; with follow, until that attempt is over.

    After a retry the next attempt has a log of its own, which starts at 0: the follower requests
    it. x-log-attempt is the attempt of this log.
    """
    query: LogsQuery = call.query
    connection = connection_of(request.scope)
    found = await follow.stream(deps, call.caller, call.path["job_id"], query, connection)
    reading = found.reading
    headers = {"x-log-attempt": str(reading.attempt)}
    if reading.merged:
        headers["x-log-merged"] = "1"
    else:
        headers |= {"x-log-offset": str(reading.offsets[0]), "x-log-worker": reading.workers[0]}
    return StreamingResponse(found.chunks, media_type=BYTES, headers=headers)
