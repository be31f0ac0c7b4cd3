"""`admin backup` and `admin restore` start the server's program with absolute paths."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddlecloud.cli.main import main


def test_paths_are_absolute_and_the_directory_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def call(words: list[str], **_: object) -> int:
        started.append(words[4:])
        return 0

    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "call", call)
    here, home = Path.cwd(), ["--home", str(tmp_path)]
    assert main(["admin", "backup", "monday", "--no-blobs"]) == 0
    assert main(["admin", "restore", "monday", "--json"]) == 0
    assert started == [
        [*home, "--backup", str(here / "monday"), "--no-blobs", "--lang", "en"],
        [*home, "--restore", str(here / "monday"), "--lang", "en", "--json"],
    ]
    for name in ("backup", "restore"):
        assert main(["admin", name]) == 2
        assert f"paddlecloud admin {name} DIR" in capsys.readouterr().err
