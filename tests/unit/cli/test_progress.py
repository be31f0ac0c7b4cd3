"""The line that tells how much was read: on a terminal, after a while, and never in the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddlecloud.cli.gen2020 import submit_job
from paddlecloud.cli.main import main
from paddlecloud.cli.output import Output
from paddlecloud.cli.progress import ScanStatusLine, shows
from paddlecloud.client.scan.walk import ScanProgress
from tests.unit.cli.scripted import ID, VIEW, submits
from tests.unit.client.fake_server import FakeServer

Captured = pytest.CaptureFixture[str]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_shows_and_gives_way_to_what_is_told(capsys: Captured) -> None:
    scan_progress, out = ScanProgress(), Output("en", {})
    line = ScanStatusLine(out, scan_progress, delay=0.0)
    line.start()
    scan_progress.files, scan_progress.bytes = 12_345, 3 * 1024**3 // 2
    shown: list[str] = []

    def drawn() -> bool:
        shown.append(capsys.readouterr().err)
        return "reading: 12,345 files, 1.5 GiB" in "".join(shown)

    until(drawn)
    line.stop()
    out.message("files: 7")
    line.join(20)
    last = capsys.readouterr().err
    assert last.endswith("files: 7\n")
    assert "".join([*shown, last]).split("\r")[-1] == "files: 7\n"


def test_nothing_is_drawn_after_its_end(capsys: Captured) -> None:
    scan_progress, out = ScanProgress(), Output("zh", {})
    scan_progress.files, scan_progress.bytes = 1, 17
    line = ScanStatusLine(out, scan_progress, delay=0.0)
    line.stop()
    line.start()
    line.join(20)
    assert not line.is_alive()
    assert capsys.readouterr().err == ""
    assert out.text("reading_one", size="17 B") == "读取中：1 个文件，共 17 B"


def test_only_a_terminal_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Output("en", {})
    assert not shows(out)
    monkeypatch.setattr(out, "errors_on_terminal", True)
    assert shows(out)
    out.json = True
    assert not shows(out)


def test_a_submit_counts_what_it_reads(
    server: FakeServer, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """With a terminal on stderr: the notes and the answer come out whole all the same."""
    submits(server, VIEW)
    made: list[ScanProgress] = []

    class Line(ScanStatusLine):
        def __init__(self, out: Output, scan_progress: ScanProgress) -> None:
            super().__init__(out, scan_progress, delay=0.0)
            made.append(scan_progress)

    monkeypatch.setattr(submit_job, "ScanStatusLine", Line)
    monkeypatch.setattr(submit_job, "shows", lambda out: True)
    assert main(["submit_job", f"--files={directory}", "--start_cmd=sh run.sh"]) == 0
    assert [(scan_progress.files, scan_progress.bytes) for scan_progress in made] == [(1, 8)]
    out, told = capsys.readouterr()
    assert out == f"job_id: {ID}\n"
    assert told.split("\r")[-1].startswith("files: 1 (8 B)")
