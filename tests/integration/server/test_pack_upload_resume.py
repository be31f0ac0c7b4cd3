"""Small files over a line that breaks once: what arrived before is not sent a second time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from paddlecloud.client.upload import blobs
from tests.faulty_proxy import FaultyProxy, faulty_proxy
from tests.integration.server.world import World, a_directory

MB = 1_000_000


class CutOnce:
    """Counts what goes to the server, and cuts the line at one moment."""

    def __init__(self, way: FaultyProxy, at: int) -> None:
        self.sent = 0
        self._at = at
        self._lock = threading.Lock()
        way.there = self.pass_on

    def pass_on(self, data: bytes) -> bytes | None:
        with self._lock:
            before, self.sent = self.sent, self.sent + len(data)
            return None if before < self._at <= self.sent else data


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(5 * MB, marks=pytest.mark.slow),
        7 * MB,
        pytest.param(12 * MB, marks=pytest.mark.slow),
        pytest.param(23 * MB, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("count", "size"), [(24, MB), (480, MB // 20)])
def test_a_cut_costs_a_twentieth_at_most(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, count: int, size: int
) -> None:
    monkeypatch.setattr("paddlecloud.net.retry.TRANSPORT.first_pause", 0.001)
    monkeypatch.setattr("paddlecloud.net.retry.RESUME.first_pause", 0.0)
    contents = {f"f{number}": os.urandom(size) for number in range(count)}
    found = a_directory(tmp_path / "job", None, **contents)
    heard: list[int] = []
    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        line = CutOnce(way, at)
        blobs.upload(world.transport(way.url), found, lambda count, _: heard.append(count))
    total = count * size
    # The lists of what is missing are a few times as long as the names of all files.
    assert line.sent < 1.05 * total + 3 * len(found.canonical)
    assert sum(heard) == total
    assert all(world.blob(data).read_bytes() == data for data in contents.values())


def test_what_arrived_although_its_answer_did_not_is_not_sent_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlecloud.net.retry.TRANSPORT.first_pause", 0.001)
    monkeypatch.setattr("paddlecloud.net.retry.RESUME.first_pause", 0.0)
    data = os.urandom(MB)
    found = a_directory(tmp_path / "job", only=data)
    answers: list[bytes] = []

    def second_is_lost(answer: bytes) -> bytes | None:
        answers.append(answer)
        return None if len(answers) == 2 else answer

    with faulty_proxy(f"http://127.0.0.1:{world.stage.port}") as way:
        line = CutOnce(way, 10**9)
        way.back = second_is_lost
        blobs.upload(world.transport(way.url), found)
    assert line.sent < 1.1 * MB
    assert world.blob(data).read_bytes() == data
