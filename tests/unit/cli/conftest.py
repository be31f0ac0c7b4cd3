"""A scripted server that the environment points to, and a directory to submit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.fake_server import AK, SK, FakeServer, ok, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server that the environment points to."""
    with serving() as running:
        running.routes["GET /healthz"] = [ok({"ok": True, "version": "1", "boot": "boot-1"})]
        monkeypatch.setenv("PADDLECLOUD_HOST", running.url)
        monkeypatch.setenv("PADDLECLOUD_AK", AK)
        monkeypatch.setenv("PADDLECLOUD_SK", SK)
        yield running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "run.sh").write_text("echo hi\n")
    return tmp_path / "job"
