"""A home of its own for each test; whatever it started is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.faults.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    place = Home(tmp_path / "home")
    monkeypatch.setenv("PADDLECLOUD_HOME", str(place.path))
    yield place
    place.clear()
