"""A scripted server and a client of it, for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud import Client
from paddlecloud.client.download import _ranges
from paddlecloud.net import retry
from tests.unit.client.download_server import PIECE
from tests.unit.client.fake_server import AK, SK, FakeServer, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(host=server.url, ak=AK, sk=SK) as made:
        yield made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where downloads go, in small pieces and without pauses."""
    monkeypatch.setattr(_ranges, "MAX_RANGE", PIECE)
    monkeypatch.setattr(retry.RESUME, "attempts", 1)
    monkeypatch.setattr(retry.TRANSPORT, "first_pause", 0.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def one_by_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, one piece after the other."""
    monkeypatch.setattr(_ranges, "concurrency", lambda *_, **__: 1)
    return here
