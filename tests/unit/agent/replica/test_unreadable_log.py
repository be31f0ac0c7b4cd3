"""The end of a job whose log cannot be read: it waits for that, says so, and comes all the same."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.replica.lifecycle import Lifecycle
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.agent.server_link.report import Reporter
from paddlecloud.agent.supervisor.zygote import Spawner


class Scene:
    """A replica that ended well, and a server that has two bytes of its log."""

    def __init__(self, folder: Path) -> None:
        config = AgentConfig(
            path=folder / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
        )
        self.context = Context(config, AgentLog(folder / "agent.log"), cast("Spawner", None))
        self.context.link.channel = lambda: cast("Any", self)  # type: ignore[method-assign]
        self.error: OSError | None = OSError(errno.EIO, "Input/output error")
        self.items: list[dict[str, Any]] = []
        self.ended = False
        self.tracked = Tracked(id="a", fence=1, root=folder / "a", run=None, acked=2)
        self.tracked.root.mkdir()
        self.log = self.tracked.root / "stdout.log"
        self.log.write_bytes(b"line")
        self.tracked.end({**exit_record("exit", now=5.0), "exit_code": 0})
        self.tracked.shipped = True
        self.context.registry.add(self.tracked)
        self.reporter = Reporter(self.context, cast("Lifecycle", self))

    def call(self, _method: str, _path: str, body: bytes) -> bytes:
        (length,) = struct.unpack(">I", body[:4])
        self.items = json.loads(body[4 : 4 + length])["items"]
        ended = any("exited" in item for item in self.items)
        ack = {"replica": "a", "log_size": 2, "exited": ended}
        return json.dumps({"acks": [ack]}).encode()

    def parsed(self, answer: bytes) -> Any:
        return json.loads(answer)

    def finished(self, _tracked: Tracked) -> None:
        self.ended = True

    def told_at(self, now: float) -> dict[str, Any]:
        """What is told of it then; nothing if it is not spoken of."""
        self.items, self.tracked.hold_until = [], 0.0
        self.reporter._report(now)
        return self.items[0] if self.items else {}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path)
    real = os.open

    def open_if_it_can(path: Any, *rest: Any, **named: Any) -> int:
        if made.error is not None and str(path) == str(made.log):
            raise made.error
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", open_if_it_can)
    yield made
    made.reporter._notices.close()


def test_it_is_waited_for_and_that_is_told(scene: Scene) -> None:
    assert scene.told_at(1000.0) == {}
    item = scene.told_at(1003.0)
    assert item["held"]["code"] == "output_unreadable"
    assert item["held"]["params"] == {"path": "stdout.log", "reason": "Input/output error"}
    scene.error = None
    item = scene.told_at(1119.0)
    assert (item["log"]["offset"], item["log"]["length"]) == (2, 2)
    assert item["exited"]["log_size"] == 4
    assert "said" not in item["exited"]


def test_after_two_minutes_the_end_comes_without_it_and_says_so(scene: Scene) -> None:
    scene.tracked.store_timeout = 3600.0
    scene.told_at(1000.0)
    assert "exited" not in scene.told_at(1119.0)
    scene.told_at(1121.0)
    item = scene.told_at(1123.0)
    assert scene.ended
    assert (item["exited"]["log_size"], item["exited"]["cause"]) == (2, "exit")
    assert item["exited"]["said"]["code"] == "unsent_kept"
    assert item["exited"]["said"]["params"]["files"] == "stdout.log"
    kept = scene.context.directory / unsent.DIRECTORY / "a" / "stdout.log"
    assert kept.read_bytes() == b"line"


def test_a_log_that_is_no_file_any_more_is_no_reason_to_run_for_ever(scene: Scene) -> None:
    scene.error = None
    scene.log.unlink()
    scene.log.mkdir()
    for now in (1000.0, 1121.0):
        assert "exited" not in scene.told_at(now)
    assert scene.told_at(1123.0)["exited"]["said"]["code"] == "unsent_given_up"


def test_an_agent_that_began_anew_asks_first_what_the_server_has_of_it(scene: Scene) -> None:
    scene.tracked.acked = None
    for now in (1000.0, 1121.0):
        scene.told_at(now)
        scene.tracked.acked = None
    assert "exited" not in scene.told_at(1123.0)
    assert scene.told_at(1125.0)["exited"]["log_size"] == 2


def test_the_two_minutes_begin_with_the_end_of_the_job(scene: Scene) -> None:
    scene.tracked.shipped = False
    scene.told_at(1000.0)
    scene.tracked.shipped = True
    for now in (1500.0, 1619.0):
        scene.told_at(now)
    assert not scene.tracked.log_given_up


def test_and_anew_when_it_could_be_read_meanwhile(scene: Scene) -> None:
    scene.told_at(1000.0)
    error, scene.error, scene.tracked.shipped = scene.error, None, False
    scene.told_at(1100.0)
    scene.error, scene.tracked.shipped = error, True
    scene.told_at(1121.0)
    assert not scene.tracked.log_given_up


def test_who_kills_a_job_does_not_wait_so_long(scene: Scene) -> None:
    scene.tracked.store_timeout = 40.0
    for now in (1000.0, 1041.0):
        scene.told_at(now)
    assert "exited" in scene.told_at(1043.0)


def test_what_the_agent_itself_lacks_is_waited_for_as_a_store_is(scene: Scene) -> None:
    scene.tracked.store_timeout = 3600.0
    scene.error = OSError(errno.EMFILE, "Too many open files")
    for now in (1000.0, 4599.0):
        scene.told_at(now)
    assert not scene.tracked.log_given_up
    scene.told_at(4601.0)
    assert scene.tracked.log_given_up


def test_that_a_job_has_started_needs_no_log(scene: Scene) -> None:
    scene.tracked.started = {"pid": 7, "at": 4.0}
    assert scene.told_at(1000.0)["started"] == {"pid": 7, "at": 4.0}
    assert "started" not in scene.told_at(1001.0)
