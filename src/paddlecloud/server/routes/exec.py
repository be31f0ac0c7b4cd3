"""Commands next to a worker (exec): start, query, read output, stop; and the agent's side."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import BYTES, Access, Call, Route, signed_body
from paddlecloud.server.schemas.exec_usage import (
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


def start(deps: Deps, call: Call) -> CommandView:
    command = commands.start(deps, call.caller, call.path["job_id"], call.body)
    return commands.view(command, call.lang)


def show(deps: Deps, call: Call) -> CommandView:
    command = commands.get(deps, call.caller, call.path["job_id"], call.path["command_id"])
    commands.hold(deps, command)
    return commands.view(command, call.lang)


def stop(deps: Deps, call: Call) -> CommandView:
    command = commands.stop(deps, call.caller, call.path["job_id"], call.path["command_id"])
    return commands.view(command, call.lang)


async def output(deps: Deps, call: Call, _request: Request) -> Response:
    job_id, command_id = call.path["job_id"], call.path["command_id"]
    frames = await stream.open_stream(deps, call.caller, job_id, command_id, call.query, call.lang)
    return StreamingResponse(frames, media_type=BYTES)


def input_of(deps: Deps, call: Call) -> Response:
    data = commands.input_of(deps, call.caller.node, call.path["command_id"])
    return Response(data, media_type=BYTES)


async def store(deps: Deps, call: Call, request: Request) -> StreamAnswer:
    query: StreamQuery = call.query
    data = await signed_body(request, call.headers, MAX_BYTES)
    where = (call.caller.node, call.path["command_id"], query.stream, query.offset)
    return await in_thread(commands.store, deps, *where, data)


def end(deps: Deps, call: Call) -> EndAnswer:
    node, command_id = call.caller.node, call.path["command_id"]
    return EndAnswer(ended=commands.end(deps, node, command_id, call.body))


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs/{job_id}/commands",
        summary="Run a command beside a worker",
        plain=start,
        body=CommandRequest,
        answer=CommandView,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/commands/{command_id}",
        summary="One command",
        plain=show,
        answer=CommandView,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/commands/{command_id}/output",
        summary="What a command prints, in frames",
        streaming=output,
        query=OutputQuery,
        media=BYTES,
    ),
    Route(
        method="POST",
        path="/api/v1/jobs/{job_id}/commands/{command_id}/stop",
        summary="Stop a command",
        plain=stop,
        answer=CommandView,
    ),
    Route(
        method="GET",
        path="/api/v1/agent/commands/{command_id}/input",
        summary="What a command gets on stdin",
        plain=input_of,
        access=Access.AGENT,
        media=BYTES,
    ),
    Route(
        method="PUT",
        path="/api/v1/agent/commands/{command_id}/output",
        summary="Bring back what a command printed",
        streaming=store,
        access=Access.AGENT,
        query=StreamQuery,
        answer=StreamAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/agent/commands/{command_id}/end",
        summary="Tell how a command ended",
        plain=end,
        access=Access.AGENT,
        body=CommandEnd,
        answer=EndAnswer,
    ),
)
