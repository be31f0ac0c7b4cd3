"""Homes whose database or key is damaged, as a person meets them: one sentence, exit code 1, and
nothing that is there is touched. Real processes throughout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddlecloud.client import local_server
from tests.integration.faults.home import Home, job_id_of, until

pytestmark = pytest.mark.slow
SUBMIT = ("submit_job", "--job_type=cpu", "--cpu=0.1")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.clear()


@pytest.fixture
def files(tmp_path: Path) -> str:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "data").write_text("data")
    return f"--files={tmp_path / 'job'}"


def refusals(home: Home) -> Iterator[tuple[str, subprocess.CompletedProcess[str]]]:
    """Every way to start a server, and what it answers."""
    for words in (["list_jobs"], ["doctor"], ["server", "start"], ["server", "run"]):
        yield " ".join(words), home.run(*words)
    program = [sys.executable, "-m", "paddlecloud.server", "--home", str(home.path)]
    for more in ([], ["--foreground"]):
        done = subprocess.run(
            [*program, *more], capture_output=True, text=True, timeout=60, env=home.environ
        )
        yield " ".join(more) or "module", done


def check_refused(home: Home, *parts: str) -> None:
    for how, done in refusals(home):
        told = done.stdout + done.stderr
        assert done.returncode == 1, (how, told)
        assert "Traceback" not in told, how
        for part in parts:
            assert part in told, how
    assert not local_server.is_alive(str(home.path))
    log = Path(local_server.log_path(str(home.path))).read_text()
    assert "Traceback" not in log


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_a_lost_database(home: Home, files: str, lose: Callable[[Path], object]) -> None:
    submitted = home.run(*SUBMIT, files, "--start_cmd=true", "--watch_mode=1")
    assert submitted.returncode == 0
    job_id = job_id_of(submitted.stdout)
    home.run("server", "stop")
    database = home.path / "server" / "paddlecloud.db"
    kept = database.read_bytes()
    lose(database)
    check_refused(
        home, str(database), "restore it from a backup", "paddlecloud server start --fresh"
    )
    assert not database.exists() or database.stat().st_size == 0
    home.environ["PADDLECLOUD_LANG"] = "zh"
    assert "从备份恢复" in home.run("list_jobs").stderr
    home.environ["PADDLECLOUD_LANG"] = "en"

    database.write_bytes(kept)
    assert job_id in home.run("list_jobs").stdout
    home.run("server", "stop")

    lose(database)
    started = home.run("server", "start", "--fresh")
    assert started.returncode == 0, started.stderr
    asides = {path.name.partition(".")[0] for path in home.path.glob("*.aside-*")}
    assert asides == {"agent", "server", "store"}
    for path in home.path.glob("*.aside-*"):
        assert str(path) in started.stderr
    assert home.run("list_jobs").stdout == ""
    refused = home.run("server", "start", "--fresh")
    assert (refused.returncode, "already running" in refused.stderr) == (1, True)
    assert '"ok": true' in home.run("doctor", "--json").stdout


def test_a_fresh_start_waits_for_running_jobs(home: Home, files: str) -> None:
    job_id = job_id_of(home.run(*SUBMIT, files, "--start_cmd=sleep 1000").stdout)
    until(lambda: "job_status: running" in home.run("query_job", job_id).stdout, "the job")
    home.run("server", "stop")
    (home.path / "server" / "paddlecloud.db").unlink()
    refused = home.run("server", "start", "--fresh")
    assert refused.returncode == 1
    assert f"still running ({job_id}" in refused.stderr
    assert home.of_kind("job"), "it was left alone"
    assert not list(home.path.glob("*.aside-*"))
    home.kill("job")
    until(lambda: not home.of_kind("job", "supervisor"), "the end of the job")
    assert home.run("server", "start", "--fresh").returncode == 0


def spoil(path: Path, how: bytes | None) -> None:
    path.unlink()
    if how is None:
        path.mkdir()
    else:
        path.write_bytes(how)


@pytest.mark.parametrize(
    "how",
    [bytes(range(256)), b"", b"ab" * 31, b"ab" * 33, b"zz" * 32, None],
    ids=["random", "empty", "short", "long", "letters", "directory"],
)
def test_a_damaged_key(home: Home, how: bytes | None) -> None:
    assert home.run("server", "start").returncode == 0
    home.run("server", "stop")
    key = home.path / "server" / "server.key"
    spoil(key, how)
    check_refused(home, str(key), "restore it from a backup")
    home.environ["PADDLECLOUD_LANG"] = "zh"
    assert "从备份恢复" in home.run("list_jobs").stderr


def test_a_database_that_is_none_keeps_its_sentence(home: Home) -> None:
    assert home.run("server", "start").returncode == 0
    home.run("server", "stop")
    database = home.path / "server" / "paddlecloud.db"
    database.write_bytes(b"not a database, " * 1000)
    check_refused(home, str(database), "file is not a database")
    os.truncate(database, 100)
    check_refused(home, str(database), "cannot use the database")
