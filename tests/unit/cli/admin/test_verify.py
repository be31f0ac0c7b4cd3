"""`admin verify` starts the check with the words and the settings of the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddlecloud.cli.main import main


def test_the_check_is_started_with_the_settings_of_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []

    def call(words: list[str], **_: object) -> int:
        started.append(words)
        return 1

    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "call", call)
    assert main(["admin", "verify"]) == 1
    assert main(["admin", "verify", "--json", "--repair", "--user=ann", "--config=a.toml"]) == 1
    plain, full = started
    assert plain[2:7] == ["-m", "paddlecloud.server", "--home", str(tmp_path), "--verify"]
    assert not {"--repair", "--user", "--settings", "--json"} & {*plain}
    assert {"--verify", "--json", "--repair"} <= {*full}
    assert full[full.index("--user") + 1] == "ann"
    assert full[-2:] == ["--settings", str(Path("a.toml").absolute())]
