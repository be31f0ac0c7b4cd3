"""What the agent sends of a command's streams, to servers of other versions as well."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddlecloud.agent.context import Context
from paddlecloud.agent.exec import _spool, runner
from paddlecloud.agent.exec.commands import Commands, _Command
from paddlecloud.agent.replica import records
from paddlecloud.agent.server_link.channel import Channel
from paddlecloud.model.errors import TooLarge

WHOLE = bytes(range(251)) * 20


class Server:
    """Takes output without a word of room, as an earlier version does; `full` from there on."""

    def __init__(self, full: int | None = None, refuses: bool = False) -> None:
        self.got = b""
        self.asked = 0
        self.ends: list[dict[str, Any]] = []
        self._full = full
        self._refuses = refuses

    def call(self, _method: str, _path: str, body: bytes, query: dict[str, Any]) -> bytes:
        self.asked += 1
        if self._refuses:
            raise TooLarge("body_too_large", limit=1)
        assert query["offset"] <= len(self.got)
        self.got = (self.got[: query["offset"]] + body)[: self._full]
        return json.dumps({"size": len(self.got)}).encode()

    def parsed(self, raw: bytes) -> Any:
        return json.loads(raw)

    def json(self, _method: str, _path: str, note: dict[str, Any]) -> dict[str, Any]:
        self.ends.append(note)
        return {"ended": True}

    @property
    def channel(self) -> Channel:
        return cast(Channel, self)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spool, "CHUNK_BYTES", 1000)


@pytest.fixture
def agent(tmp_path: Path) -> Commands:
    log = SimpleNamespace(warning=lambda *_: None)
    return Commands(cast(Context, SimpleNamespace(directory=tmp_path, log=log)))


@pytest.fixture
def one(tmp_path: Path) -> _Command:
    root = tmp_path / "commands" / "c1"
    root.mkdir(parents=True)
    return _Command("c1", {"replica": "r"}, root)


def test_what_an_earlier_version_wrote_into_one_file_is_sent_whole(
    agent: Commands, one: _Command
) -> None:
    records.write(one.root / runner.COMMAND, {"beside": "", "argv": ["ls"], "timeout": None})
    (one.root / "out").write_bytes(WHOLE[:4000])
    server = Server()
    assert agent._start(one, server.channel)
    assert one.streams[0].ship(one, server.channel)
    (one.root / "out").write_bytes(WHOLE)
    assert one.streams[0].ship(one, server.channel)
    assert server.got == WHOLE


def test_a_server_that_takes_nothing_is_not_asked_without_a_pause(one: _Command) -> None:
    (one.root / "out").write_bytes(WHOLE[:1000])
    server, stream = Server(full=400), one.streams[0]
    assert not stream.ship(one, server.channel)
    assert (server.asked, stream.acked, stream.has_more) == (2, 400, False)


def test_one_whose_output_is_refused_ends_for_who_waits(agent: Commands, one: _Command) -> None:
    (one.root / "out").write_bytes(b"much")
    one.started_at = time.monotonic()
    server = Server(refuses=True)
    assert agent._is_done(one, server.channel)
    (end,) = server.ends
    assert (end["cause"], end["exit_code"], end["out_size"]) == ("failed", None, 0)
