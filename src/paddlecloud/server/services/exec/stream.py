"""Streams the output of a command to its reader, in frames.

A frame is a letter (o, e, x, m), the length in 4 bytes, and the bytes. o is stdout and e is stderr,
each from the requested offset on; what lies before it is deleted. x comes last and contains the
ended command as JSON. With `follow` the response goes on until then, or ends with m: there is more,
ask again from where this one ended.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping

import msgspec

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import Cut
from paddlecloud.server.http.token_recheck import KeyRecheck
from paddlecloud.server.schemas.exec import OutputQuery
from paddlecloud.server.services.exec import commands, output

RESPONSE_BYTES = output.WINDOW // 2
"""Bytes in one response: the next request confirms that they have arrived. The other half of the
window is filled until then."""
RESPONSE_SECONDS = 20.0
"""How long one response waits: a reader that does not ask again is gone."""


async def open_stream(
    deps: Deps, caller: Caller, job_id: str, command_id: str, query: OutputQuery, lang: str
) -> AsyncIterator[bytes]:
    """The frames; raises before the first one if the command or the offsets are not available."""
    offsets = {"out": query.out, "err": query.err}
    await in_thread(_begin, deps, caller, job_id, command_id, offsets)
    recheck = KeyRecheck(deps, caller)
    return _frames(deps, recheck, job_id, command_id, offsets, lang, follow=bool(query.follow))


def _begin(
    deps: Deps, caller: Caller, job_id: str, command_id: str, offsets: Mapping[str, int]
) -> None:
    command = commands.get(deps, caller, job_id, command_id)
    output.check(command, offsets)
    output.take(deps, command, offsets)
    commands.hold(deps, command)


async def _frames(
    deps: Deps,
    recheck: KeyRecheck,
    job_id: str,
    command_id: str,
    offsets: dict[str, int],
    lang: str,
    *,
    follow: bool,
) -> AsyncIterator[bytes]:
    topics = (("command", command_id), ("log", job_id), ("job", job_id), recheck.topic)
    sent, until = 0, time.monotonic() + RESPONSE_SECONDS
    with recheck, deps.hub.waiter(*topics) as waiter:
        while True:
            part = await in_thread(_read, deps, recheck, command_id, offsets)
            for name, data in (("out", part.out), ("err", part.err)):
                offsets[name] += len(data)
                sent += len(data)
                if data:
                    yield _frame(name[:1], data)
            news = bool(part.out or part.err)
            if news and (sent < RESPONSE_BYTES or not follow):
                continue
            if not news and part.command.ended_at is not None:
                yield _frame("x", msgspec.json.encode(commands.view(part.command, lang)))
                return
            if not follow:
                return
            if deps.hub.closed:
                raise Cut("the command goes on; the client reconnects")
            if news or time.monotonic() >= until:
                yield _frame("m", b"")
                return
            await waiter.wait(1.0)


def _read(
    deps: Deps, recheck: KeyRecheck, command_id: str, offsets: Mapping[str, int]
) -> commands.NewOutput:
    recheck.check()
    part = commands.read_output(deps, command_id, offsets)
    if not (part.out or part.err) and commands.is_taken(deps, command_id, offsets):
        raise Cut("another reader has taken the output; the client learns that when it reconnects")
    return part


def _frame(kind: str, data: bytes) -> bytes:
    return kind.encode() + len(data).to_bytes(4, "big") + data
