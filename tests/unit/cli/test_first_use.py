"""What a person who knows nothing of us does first, and what they are told then."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.cli import registry
from paddlecloud.cli.main import main
from paddlecloud.cli.parser import parse
from paddlecloud.client.config.resolve import resolve
from tests.unit.cli.scripted import ID, JOB, VIEW, Captured
from tests.unit.client.fake_server import Answer, FakeServer, error, ok

QUEUED = {**VIEW, "job_status": "queue", "queue_reason": "no CPU is free", "attempts": 0}
WAITS = f"{ID} has not started; it is waiting (queue): no CPU is free\n"
SILENT = Answer(b"", 200, {"x-log-offset": "0"})


def rows(*paths: str) -> Answer:
    files = [{"path": path, "size": 0, "time": "", "sha256": ""} for path in paths]
    return ok({"files": files})


@pytest.mark.parametrize("words", [["logs", ID], ["logs", "-f", ID]])
def test_the_log_of_a_job_that_waits_says_so_once(
    server: FakeServer, capsys: Captured, words: list[str]
) -> None:
    server.routes[f"GET {JOB}"] = [ok(QUEUED)]
    server.routes[f"GET {JOB}/logs"] = [SILENT]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", WAITS)


def test_as_json_too(server: FakeServer, capsys: Captured) -> None:
    server.routes[f"GET {JOB}"] = [ok(QUEUED)]
    server.routes[f"GET {JOB}/logs"] = [SILENT]
    assert main(["logs", ID, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["log"], err) == ("", WAITS)


def test_a_job_that_printed_nothing_is_not_said_to_wait(
    server: FakeServer, capsys: Captured
) -> None:
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    server.routes[f"GET {JOB}/logs"] = [SILENT]
    assert main(["logs", ID]) == 0
    assert capsys.readouterr() == ("", "")


def test_files_of_a_job_that_waits_are_not_downloaded(
    server: FakeServer, tmp_path: Path, capsys: Captured
) -> None:
    server.routes[f"GET {JOB}/files"] = [rows(f"output/{ID}/")]
    server.routes[f"GET {JOB}"] = [ok(QUEUED)]
    into = tmp_path / "result"
    assert main(["get_files", ID, "--download=1", f"--download_dir={into}"]) == 1
    assert capsys.readouterr().err == WAITS
    assert not into.exists()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("state", "path", "says"),
    [
        ("killing", f"output/{ID}/a", True),
        ("running", f"output/{ID}/a", True),
        ("running", "run.sh", False),
        ("killed", f"output/{ID}/a", False),
        (None, f"output/{ID}/a", False),
    ],
)
def test_whoever_downloads_before_the_end_hears_that_there_may_be_more(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured,
    state: str | None, path: str, says: bool, lang: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("PADDLECLOUD_LANG", lang)
    files = [{"path": path, "size": 0, "time": ""}]
    server.routes[f"GET {JOB}/files"] = [ok({"files": files, "job_status": state})]
    server.routes[f"GET {JOB}/files/{path}"] = [Answer(hashlib.sha256().digest())]
    into = tmp_path / "result"
    assert main(["get_files", ID, "--download=1", f"--download_dir={into}"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert (f"{ID} has not ended ({state})" in last or f"尚未结束（{state}）" in last) is says
    assert ("--resume" in last) is says


@pytest.mark.parametrize(
    ("words", "flag", "other"),
    [
        (["get_files", ID, "--download_dir=x"], "--download_dir", "--download=1"),
        (["get_files", ID, "--download=0", "--resume"], "--resume", "--download=1"),
        (["quota", "--days=7"], "--days", "--history"),
        (["quota", "--days=0"], "--days", "--history"),
    ],
)
def test_a_flag_that_would_count_for_nothing_is_refused(
    server: FakeServer, capsys: Captured, words: list[str], flag: str, other: str
) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert f"{flag} only works together with {other}" in told
    assert not server.seen


def test_files_may_be_listed_with_the_download_switched_off(
    server: FakeServer, capsys: Captured
) -> None:
    server.routes[f"GET {JOB}/files"] = [rows(f"output/{ID}/a")]
    assert main(["get_files", ID, "--download=0", "--download_dir=x"]) == 0
    assert capsys.readouterr().out.startswith(f"output/{ID}/a\t")


def test_there_are_more_jobs_only_for_who_gave_no_number(
    server: FakeServer, capsys: Captured
) -> None:
    page = ok({"jobs": [VIEW] * 51, "next": None})
    server.routes["GET /api/v1/jobs"] = [page]
    assert main(["list_jobs"]) == 0
    assert capsys.readouterr().err == "more jobs exist; --all shows every job\n"
    assert main(["list_jobs", "-n", "50"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (50, "")


@pytest.mark.parametrize(
    ("given", "want"), [("~/job", "/home/me/job"), ("~", "/home/me"), ("~x", "~x")]
)
def test_a_tilde_after_an_equals_sign_is_the_home(
    monkeypatch: pytest.MonkeyPatch, given: str, want: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    command = registry.load("submit_job")
    assert command is not None
    assert parse(command, [f"--files={given}"])["files"] == want
    assert parse(command, [f"--start_cmd={given}"])["start_cmd"] == given


def test_a_relative_home_begins_at_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve({}, {"HOME": "x"}).home == f"{tmp_path}/x/.paddlecloud"
    assert resolve({}, {"HOME": "/h"}).home == "/h/.paddlecloud"


def test_ctrl_c_among_the_imports_says_nothing() -> None:
    """As the program itself: until `main` listens, the signal simply ends it."""
    code = (
        "import os, signal, sys; sys.argv = ['/usr/bin/paddlecloud']; import paddlecloud.cli; "
        "os.kill(os.getpid(), signal.SIGINT)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_main_hears_ctrl_c_again_and_others_keep_their_handler() -> None:
    code = (
        "import os, signal, sys; sys.argv = [{program!r}]; import paddlecloud.cli.main as m; "
        "m.run = lambda *_: os.kill(os.getpid(), signal.SIGINT); sys.exit(m.main(['version']))"
    )
    for program in ("/usr/bin/paddlecloud", "/usr/bin/other"):
        words = [sys.executable, "-c", code.format(program=program)]
        ended = subprocess.run(words, capture_output=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (130, b"interrupted\n")


def test_doctor_tells_how_far_the_clocks_are_apart(server: FakeServer, capsys: Captured) -> None:
    said = "the server time is 2026-01-01T01:00:00Z, 3600 s later; check this machine's clock"
    server.routes["GET /api/v1/whoami"] = [error(401, "Unauthenticated", "auth_expired", said)]
    assert main(["doctor"]) == 1
    assert "3600 s later" in capsys.readouterr().out
