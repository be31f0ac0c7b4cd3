"""Commands next to a worker (exec): start, query, read output, stop; and the agent's side."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.request_body import signed_body
from paddlecloud.server.http.routing import BYTES, Access, Call, Router
from paddlecloud.server.schemas.exec import (
    CommandEnd,
    CommandRequest,
    CommandView,
    EndAnswer,
    OutputQuery,
    StreamAnswer,
    StreamQuery,
)
from paddlecloud.server.services.exec import commands, stream

MAX_BYTES = 4 * 1024 * 1024
"""Output in one request of an agent."""
router = Router()


@router.post("/api/v1/jobs/{job_id}/commands", "Run a command beside a worker", body=CommandRequest)
def start(deps: Deps, call: Call) -> CommandView:
    command = commands.start(deps, call.caller, call.path["job_id"], call.body)
    return commands.view(command, call.lang)


@router.get("/api/v1/jobs/{job_id}/commands/{command_id}", "One command")
def show(deps: Deps, call: Call) -> CommandView:
    command = commands.get(deps, call.caller, call.path["job_id"], call.path["command_id"])
    commands.hold(deps, command)
    return commands.view(command, call.lang)


@router.get(
    "/api/v1/jobs/{job_id}/commands/{command_id}/output",
    "What a command prints, in frames",
    query=OutputQuery,
    media=BYTES,
)
async def output(deps: Deps, call: Call, _request: Request) -> Response:
    job_id, command_id = call.path["job_id"], call.path["command_id"]
    frames = await stream.open_stream(deps, call.caller, job_id, command_id, call.query, call.lang)
    return StreamingResponse(frames, media_type=BYTES)


@router.post("/api/v1/jobs/{job_id}/commands/{command_id}/stop", "Stop a command")
def stop(deps: Deps, call: Call) -> CommandView:
    command = commands.stop(deps, call.caller, call.path["job_id"], call.path["command_id"])
    return commands.view(command, call.lang)


@router.get(
    "/api/v1/agent/commands/{command_id}/input",
    "What a command gets on stdin",
    access=Access.AGENT,
    media=BYTES,
)
def input_of(deps: Deps, call: Call) -> Response:
    data = commands.input_of(deps, call.caller.node, call.path["command_id"])
    return Response(data, media_type=BYTES)


@router.put(
    "/api/v1/agent/commands/{command_id}/output",
    "Bring back what a command printed",
    access=Access.AGENT,
    query=StreamQuery,
)
async def store(deps: Deps, call: Call, request: Request) -> StreamAnswer:
    query: StreamQuery = call.query
    data = await signed_body(request, call.headers, MAX_BYTES)
    where = (call.caller.node, call.path["command_id"], query.stream, query.offset)
    return await in_thread(commands.store, deps, *where, data)


@router.post(
    "/api/v1/agent/commands/{command_id}/end",
    "Tell how a command ended",
    access=Access.AGENT,
    body=CommandEnd,
)
def end(deps: Deps, call: Call) -> EndAnswer:
    node, command_id = call.caller.node, call.path["command_id"]
    return EndAnswer(ended=commands.end(deps, node, command_id, call.body))
