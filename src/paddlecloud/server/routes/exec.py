"""Commands beside a worker: begin, look, follow, stop; and the agent's side of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import BYTES, Access, Call, Cut, Route, signed_body
from paddlecloud.server.http.token_recheck import Stay
from paddlecloud.server.schemas.exec_usage import (
    CommandEnd,
    CommandRequest,
    CommandView,
    EndAnswer,
    OutputQuery,
    StreamAnswer,
    StreamQuery,
)
from paddlecloud.server.services.exec import commands
from paddlecloud.server.services.exec import output as exec_output

MAX_PIECE = 4 * 1024 * 1024
ANSWER_BYTES = exec_output.WINDOW // 2
"""So much one answer brings: the next question says that it has arrived. The other half of the
window is filled meanwhile."""
ANSWER_SECONDS = 20.0
"""So long one answer waits: who asks no more is gone, even if nobody has seen him go."""


def start(deps: Deps, call: Call) -> CommandView:
    command = commands.start(deps, call.caller, call.path["job_id"], call.body)
    return commands.view(command, call.lang)


def look(deps: Deps, call: Call) -> CommandView:
    command = commands.look(deps, call.caller, call.path["job_id"], call.path["command_id"])
    commands.hold(deps, command)
    return commands.view(command, call.lang)


def stop(deps: Deps, call: Call) -> CommandView:
    command = commands.stop(deps, call.caller, call.path["job_id"], call.path["command_id"])
    return commands.view(command, call.lang)


async def output(deps: Deps, call: Call, _request: Request) -> Response:
    """What the command printed, in frames: a letter (o, e, x, m), the length in 4 bytes, the bytes.

    o is stdout and e is stderr, each from the offset asked for on; what lies before it is let go.
    x comes last and holds the command as it ended, in JSON. With follow the answer goes on until
    then, or ends with m: there is more, ask again from where this one came to.
    """
    await in_thread(_begin, deps, call)
    return StreamingResponse(_frames(deps, call), media_type=BYTES)


def _begin(deps: Deps, call: Call) -> None:
    command = commands.look(deps, call.caller, call.path["job_id"], call.path["command_id"])
    offsets = {"out": call.query.out, "err": call.query.err}
    exec_output.check(command, offsets)
    exec_output.take(deps, command, offsets)
    commands.hold(deps, command)


async def _frames(deps: Deps, call: Call) -> AsyncIterator[bytes]:
    query: OutputQuery = call.query
    job_id, command_id = call.path["job_id"], call.path["command_id"]
    offsets = {"out": query.out, "err": query.err}
    stay = Stay(deps, call.caller)
    topics = (("command", command_id), ("log", job_id), ("job", job_id), stay.topic)
    sent, until = 0, time.monotonic() + ANSWER_SECONDS
    with stay, deps.hub.waiter(*topics) as waiter:
        while True:
            piece = await in_thread(_piece, deps, stay, command_id, offsets)
            for name, data in (("out", piece.out), ("err", piece.err)):
                offsets[name] += len(data)
                sent += len(data)
                if data:
                    yield _frame(name[:1], data)
            news = bool(piece.out or piece.err)
            if news and (sent < ANSWER_BYTES or not query.follow):
                continue
            if not news and piece.command.ended_at is not None:
                yield _frame("x", msgspec.json.encode(commands.view(piece.command, call.lang)))
                return
            if not query.follow:
                return
            if deps.hub.closed:
                raise Cut("the command goes on; the follower comes back for it")
            if news or time.monotonic() >= until:
                yield _frame("m", b"")
                return
            await waiter.wait(1.0)


def _piece(deps: Deps, stay: Stay, command_id: str, offsets: Mapping[str, int]) -> commands.Piece:
    stay.check()
    piece = commands.piece(deps, command_id, offsets)
    if not (piece.out or piece.err) and commands.is_taken(deps, command_id, offsets):
        raise Cut("somebody else has taken it; whoever comes back hears so")
    return piece


def _frame(kind: str, data: bytes) -> bytes:
    return kind.encode() + len(data).to_bytes(4, "big") + data


def input_of(deps: Deps, call: Call) -> Response:
    data = commands.input_of(deps, call.caller.user_id, call.path["command_id"])
    return Response(data, media_type=BYTES)


async def store(deps: Deps, call: Call, request: Request) -> StreamAnswer:
    query: StreamQuery = call.query
    data = await signed_body(request, call.headers, MAX_PIECE)
    where = (call.caller.user_id, call.path["command_id"], query.stream, query.offset)
    return await in_thread(commands.store, deps, *where, data)


def end(deps: Deps, call: Call) -> EndAnswer:
    node, command_id = call.caller.user_id, call.path["command_id"]
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
        plain=look,
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
