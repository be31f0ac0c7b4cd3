"""A home of its own for each test, and the worlds of the agent's and the server's own tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.whole.conftest import idle_world
from tests.integration.faults.home import Home
from tests.integration.server.conftest import make_world, stage, world

__all__ = ["home", "idle_world", "make_world", "stage", "world"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Whatever was started in it is gone afterwards."""
    place = Home(tmp_path / "home")
    monkeypatch.setenv("PADDLECLOUD_HOME", str(place.path))
    yield place
    place.clear()
