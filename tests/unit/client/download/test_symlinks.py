"""Links of a download: how they are written down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlecloud.client.download._symlinks import make_links


def test_a_link_has_the_separators_of_its_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows follows no link with forward slashes in it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").touch()
    made: list[str] = []
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os, "symlink", lambda target, link: made.append(target))
    assert make_links(str(tmp_path), {"l": "a/b", "a/up": "../a/b"}) == []
    assert made == ["a\\b", "..\\a\\b"]


def test_a_link_of_the_users_own_server_may_lead_out(tmp_path: Path) -> None:
    """Only one that the user submitted with an absolute target; relative ones are checked."""
    (tmp_path / "d").mkdir()
    targets = {"data": "/data/set", "up": "../x", "d/in": "../data"}
    assert make_links(str(tmp_path), targets) == ["data", "up"]
    (tmp_path / "d" / "in").unlink()
    assert make_links(str(tmp_path), targets, outside=True) == ["up", "d/in"]
    assert (tmp_path / "data").readlink() == Path("/data/set")
