"""Uploads in parts as a server has them in its mind: the ones that go on stay there."""

from __future__ import annotations

import pytest

from paddlecloud.server import arriving
from paddlecloud.server.arriving import Record, Target, Upload, Uploads


def an_upload(name: str = "x", size: int = 3) -> Upload:
    target = Target(owner="me", sha256="", path=name, record=name)
    return Upload(target, Record(upload=name, size=size, part_size=2))


def test_whoever_goes_on_is_not_forgotten_for_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "KEPT", 2)
    uploads, long, short = Uploads(), an_upload("long"), an_upload("short")
    uploads.put(long)
    uploads.put(short)
    assert uploads.get(long.target) is long
    uploads.put(an_upload("new"))
    assert uploads.get(long.target) is long
    assert uploads.get(short.target) is None
