"""Frames of a command's output, however the network cuts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from paddlecloud.client import exec as client_exec
from paddlecloud.client.exec import Command
from paddlecloud.model.errors import Invalid, Retry, TooLarge, Unreachable
from paddlecloud.net.http1 import Response

ENDED = {"id": "c", "job_id": "J", "exit_code": 7, "ended_at": "T", "cause": "exit", "message": ""}


def frame(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "big") + data


class Answer(Response):
    """An answer that arrives in pieces of `step` bytes."""

    def __init__(self, body: bytes, step: int) -> None:
        self._body, self._step = body, step

    def read(self, size: int = -1) -> bytes:
        taken = self._body[: min(size, self._step)]
        self._body = self._body[len(taken) :]
        return taken

    def close(self) -> None:
        pass


class Endpoint:
    url = "http://server"


class Server:
    """Gives one answer after the other; notes what it was asked for."""

    answered = True
    endpoint = Endpoint()

    def __init__(self, *answers: Answer | Retry) -> None:
        self._answers: Iterator[Answer | Retry] = iter(answers)
        self.asked: list[dict[str, Any]] = []

    def open(self, path: str, query: dict[str, Any], *_: object, **__: object) -> Answer:
        assert path == "/jobs/J/commands/c/output"
        self.asked.append(query)
        answer = next(self._answers)
        if isinstance(answer, Retry):
            raise answer
        return answer


class Client:
    waiting_noted = False
    note = None

    def __init__(self, transport: Server) -> None:
        self.transport = transport


def a_command(server: Server) -> Command:
    view = {**ENDED, "ended_at": None, "exit_code": None}
    return Command(Client(server), view)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_streams_come_apart_and_the_end_is_known(step: int) -> None:
    body = frame(b"o", b"one") + frame(b"e", b"two") + frame(b"o", b"three")
    command = a_command(Server(Answer(body + frame(b"x", json.dumps(ENDED).encode()), step)))
    assert command.exit_code is None
    assert [*command.output()] == [("out", b"one"), ("err", b"two"), ("out", b"three")]
    assert command.exit_code == 7


def test_a_broken_answer_is_taken_up_where_it_broke() -> None:
    last = frame(b"o", b"four") + frame(b"x", json.dumps(ENDED).encode())
    server = Server(
        Answer(frame(b"o", b"one") + frame(b"e", b"two") + frame(b"o", b"four")[:7], 4),
        Unreachable("server_closed", address=""),
        Retry("database_failed", path="", detail=""),
        Answer(last, 4),
    )
    command = a_command(server)
    assert [*command.output()] == [("out", b"one"), ("err", b"two"), ("out", b"four")]
    assert [(query["out"], query["err"]) for query in server.asked] == [(0, 0)] + 3 * [(3, 3)]


def test_what_no_server_would_take_is_not_sent() -> None:
    client: Any = Client(Server())
    with pytest.raises(Invalid):
        client_exec.begin(client, "J", [])
    with pytest.raises(TooLarge):
        client_exec.begin(client, "J", ["cat"], stdin=bytes(client_exec.MOST_STDIN + 1))
