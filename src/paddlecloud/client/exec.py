"""Runs a command beside a running worker (`exec`) and reads its output.

The output comes in frames, each stream at its own offset, over one response after the other. Each
request acknowledges everything before its offsets, which the server then deletes. After a broken
connection the client reconnects and continues where it broke, without a byte lost or doubled.
"""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client._follow import LOG_SILENCE, Reconnection
from paddlecloud.client.response_checks import check, parse, refuse
from paddlecloud.client.transport import DONE
from paddlecloud.model.errors import Invalid, Retry, TooLarge, Unreachable
from paddlecloud.model.protocol.bce_auth import quote
from paddlecloud.net.retry import IMMEDIATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from paddlecloud.client.sdk import Client
    from paddlecloud.net.http1 import Response
    from paddlecloud.net.websocket import WebSocket

MOST_STDIN = 1024 * 1024
#: Seconds for the server to reach the agent: it waits 15.
OPEN_SECONDS = 25.0
STREAMS = {b"o": "out", b"e": "err"}
_END = b"x"
_MORE = b"m"
_HEAD = 5
#: Bytes of one frame.
_MOST_FRAME = 16 * 1024 * 1024


class Command:
    """A command that was started; `view` is its last state on the server."""

    def __init__(self, client: Client, view: dict[str, Any]) -> None:
        self._client = client
        self.view = view
        self._offsets = {"out": 0, "err": 0}
        self._more = False
        """Whether the last response announced another one."""

    @property
    def id(self) -> str:
        return str(self.view["id"])

    @property
    def exit_code(self) -> int | None:
        """As in a shell; None while it runs, or when it is unknown."""
        code = self.view["exit_code"]
        return None if code is None else int(code)

    def output(self) -> Iterator[tuple[str, bytes]]:
        """What it prints, as pairs of "out" or "err" and bytes, until it has ended.

        The command blocks while its output is not read, and is stopped after two minutes without a
        request: a caller that reads nothing for longer has to call `hold`.
        """
        reconnection = Reconnection(self._client)
        while not self.view.get("ended_at"):
            reading = False
            query = {**self._offsets, "follow": 1}
            try:
                with self._client.transport.open(
                    f"{self._path}/output",
                    query,
                    LOG_SILENCE,
                    wake=not reconnection.begun,
                    policy=IMMEDIATE,
                ) as stream:
                    reading = True
                    reconnection.renew()
                    yield from self._frames(stream)
                if not self.view.get("ended_at") and not self._more:
                    address = self._client.transport.endpoint.url
                    reconnection.pause(Unreachable("server_closed", address=address))
            except Retry as error:
                if not (reading and error.code == "server_timeout"):
                    reconnection.pause(error)

    def open_terminal(self) -> WebSocket:
        """The tunnel to its terminal; once."""
        return self._client.transport.websocket(f"{self._path}/terminal", None, OPEN_SECONDS)

    def hold(self) -> None:
        """Keep it running while its output is not read."""
        self._client.transport.get(self._path, schema=DONE, wake=False)

    def stop(self) -> None:
        """Stop it."""
        self._client.transport.post(f"{self._path}/stop", {}, schema=DONE, idempotent=True)

    @property
    def _path(self) -> str:
        return f"/jobs/{quote(self.view['job_id'])}/commands/{quote(self.id)}"

    def _frames(self, stream: Response) -> Iterator[tuple[str, bytes]]:
        self._more = False
        while len(head := stream.take(_HEAD)) == _HEAD:
            kind, size = head[:1], int.from_bytes(head[1:], "big")
            if size > _MOST_FRAME:
                refuse("frame", size, "response_count", most=_MOST_FRAME)
            data = stream.take(size)
            if len(data) < size:
                return
            if kind == _END:
                try:
                    view = parse(data)
                except ValueError:
                    view = None
                check(view, response_schemas.COMMAND)
                self.view = view
            elif kind == _MORE:
                self._more = True
            elif kind in STREAMS:
                name = STREAMS[kind]
                self._offsets[name] += len(data)
                yield name, data


def begin(
    client: Client,
    job: str,
    command: Sequence[str],
    *,
    worker: str | None = None,
    timeout: float | None = None,
    stdin: bytes = b"",
    terminal: dict[str, object] | None = None,
) -> Command:
    """Start `command` beside a worker of the job with this path; it has started when this
    returns. One with a terminal (TERM, rows, columns) starts when `open_terminal` connects."""
    if not command:
        raise Invalid("exec_command_missing")
    if isinstance(command, str | bytes) or not all(isinstance(word, str) for word in command):
        raise Invalid("exec_command_words", value=repr(command)[:100])
    if len(stdin) > MOST_STDIN:
        raise TooLarge("exec_stdin_large", limit=MOST_STDIN)
    from base64 import b64encode  # noqa: PLC0415 - only this call needs it

    asked: dict[str, object] = {
        "argv": list(command),
        "worker": worker,
        "timeout": timeout,
        "stdin": b64encode(stdin).decode(),
    }
    if terminal is not None:
        asked["terminal"] = terminal
    how = {"schema": response_schemas.COMMAND}
    return Command(client, client.transport.post(f"{job}/commands", asked, **how))
