"""Ctrl-C in a notebook: the process lives on, and with it the threads of the download that ended.

They write nothing any more, for the next download may be at it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.download import _ranges
from paddlecloud.client.download.staging import staging_dir
from paddlecloud.client.upload import copy_file
from tests.unit.client.download_server import JOB, LARGE, MODEL, PIECE, Answer, Server, found, get

pytestmark = pytest.mark.usefixtures("two_at_once")


@pytest.fixture
def two_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ranges, "concurrency", lambda *_, **__: 2)


class Slow(Server):
    """The caller is interrupted once another thread has a piece half way; that comes later."""

    def __init__(self, files: Mapping[str, bytes], halves: int) -> None:
        super().__init__(files)
        self._caller = threading.current_thread()
        self._halves = halves
        self.half_way = threading.Event()
        self.goes_on = threading.Event()

    def open(self, target: str, query: Mapping[str, Any], **_: object) -> Answer:
        answer = super().open(target, query)
        if threading.current_thread() is not self._caller:
            return Waiting(answer, self._halves, self)
        assert self.half_way.wait(20)
        raise KeyboardInterrupt


class Waiting(Answer):
    def __init__(self, answer: Answer, halves: int, server: Slow) -> None:
        self.headers = answer.headers
        self._answer = answer
        self._left = halves
        self._server = server

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._server.half_way.set()
            assert self._server.goes_on.wait(20)
        self._left -= 1
        return self._answer.read(size)


def ended(others: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - others:
        thread.join(20)
        assert not thread.is_alive()


def left() -> dict[str, bytes]:
    return found(staging_dir("output"))


@pytest.mark.parametrize("halves", [0, 1, 4], ids=["nothing", "a part", "all but its digest"])
def test_a_thread_that_outlives_its_download_writes_nothing(halves: int) -> None:
    before = set(threading.enumerate())
    server = Slow({MODEL: LARGE}, halves)
    with pytest.raises(KeyboardInterrupt):
        get(server)
    then = left()
    server.goes_on.set()
    ended(before)
    assert left() == then
    again = Server({MODEL: LARGE})
    assert get(again, resume=True).kept == 0
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


def test_nor_does_one_that_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    caller = threading.current_thread()
    half_way, goes_on = threading.Event(), threading.Event()
    stored = tmp_path / "stored"
    stored.write_bytes(LARGE)
    other = f"output/{JOB}/rank-0/other"

    def copy(_source: int, target: int, size: int, *, report: Any, **_: Any) -> str:
        if threading.current_thread() is caller:
            assert half_way.wait(20)
            raise KeyboardInterrupt
        half_way.set()
        assert goes_on.wait(20)
        report(PIECE)
        went_on.append(size)
        raise OSError

    went_on: list[int] = []
    monkeypatch.setattr(copy_file, "copy_and_hash", copy)
    server = Server({MODEL: LARGE, other: LARGE})
    with pytest.raises(KeyboardInterrupt):
        get(server, known=True, locations={MODEL: str(stored), other: str(stored)})
    goes_on.set()
    ended(before)
    assert went_on == []
