"""Streams that take nothing, a directory that is gone, names that would speak to a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.cli.main import main
from tests.unit.cli.scripted import ID, JOB, VIEW, Captured, submits
from tests.unit.client.fake_server import FakeServer, ok


def lost(where: str, *words: str, cwd: Path | None = None) -> tuple[int, str]:
    """Exit code and stderr of a command whose streams the shell redirects as `where` says."""
    line = f'exec "$@" {where}'
    program = [sys.executable, "-m", "paddlecloud", *words]
    done = subprocess.run(
        ["sh", "-c", line, "sh", *program], stderr=subprocess.PIPE, cwd=cwd, timeout=60, check=False
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_an_answer_that_cannot_be_written_is_told(server: FakeServer, where: str) -> None:
    server.routes[f"GET {JOB}"] = [ok(VIEW)]
    code, told = lost(where, "query_job", ID)
    assert code == 1
    assert told.startswith("paddlecloud: cannot write the result to stdout")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_the_id_of_an_accepted_job_is_told_without_stdout(
    server: FakeServer, directory: Path, where: str
) -> None:
    submits(server)
    code, told = lost(where, "submit_job", f"--files={directory}", "--start_cmd=sh run.sh")
    assert code == 1
    assert f"the job was accepted as {ID}" in told.splitlines()[-1]


def test_without_stderr_the_answer_is_alone_on_stdout(server: FakeServer, directory: Path) -> None:
    submits(server)
    words = ("submit_job", f"--files={directory}", "--start_cmd=sh run.sh")
    for where in ("2>&-", "2>/dev/full"):
        program = [sys.executable, "-m", "paddlecloud", *words]
        line = ["sh", "-c", f'exec "$@" {where}', "sh", *program]
        done = subprocess.run(line, stdout=subprocess.PIPE, timeout=60, check=False)
        assert (done.returncode, done.stdout.decode()) == (0, f"job_id: {ID}\n")


@pytest.mark.parametrize("is_one_place", [False, True])
def test_the_id_comes_although_nobody_reads_stderr(
    server: FakeServer, directory: Path, is_one_place: bool
) -> None:
    """But whoever closed the pipe of both has read enough."""
    submits(server)
    program = [sys.executable, "-m", "paddlecloud", "submit_job", f"--files={directory}"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*program, "--start_cmd=sh run.sh"],
        stdout=writer if is_one_place else subprocess.PIPE,
        stderr=writer,
        timeout=60,
        check=False,
    )
    os.close(writer)
    want = (141, None) if is_one_place else (0, f"job_id: {ID}\n".encode())
    assert (done.returncode, done.stdout) == want


@pytest.mark.parametrize(
    "words",
    [
        ("submit_job", "--files=.", "--start_cmd=true"),
        ("get_files", ID, "--download=1"),
    ],
)
def test_a_deleted_current_directory_is_named(
    server: FakeServer, tmp_path: Path, words: tuple[str, ...]
) -> None:
    server.routes[f"GET {JOB}/files"] = [
        ok({"files": [{"path": "output/a", "size": 1, "time": ""}], "ways": {}})
    ]
    gone = tmp_path / "gone"
    gone.mkdir()
    # Deleted once it runs: some interpreters cannot even begin in a directory that is gone.
    program = "import os, sys; os.rmdir(os.getcwd())\nfrom paddlecloud.cli.main import main"
    # -P as for an installed command, whose first entry of sys.path is its own directory: without a
    # current directory Python 3.13.0 fails where that entry is "".
    line = [sys.executable, "-P", "-c", f"{program}\nsys.exit(main())", *words]
    done = subprocess.run(line, capture_output=True, cwd=gone, timeout=60, check=False)
    assert done.returncode == 1
    assert b"the current directory was deleted" in done.stderr
    assert b"mistake" not in done.stderr


def test_names_of_files_cannot_speak_to_the_terminal(server: FakeServer, capsys: Captured) -> None:
    name = "output/\x1b[2Jred\nfake\t7"
    rows = [{"path": name, "size": 1, "time": "2026-01-01T00:00:00Z"}]
    server.routes[f"GET {JOB}/files"] = [ok({"files": rows})]
    assert main(["get_files", ID]) == 0
    printed = capsys.readouterr().out
    assert printed == "output/\\033[2Jred\\nfake\\t7\t1\t2026-01-01T00:00:00Z\n"
    assert main(["get_files", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["path"] == name
    server.routes[f"GET {JOB}"] = [ok(VIEW | {"job_name": "a\x1b]0;title\x07b"})]
    assert main(["query_job", ID]) == 0
    assert "job_name: a\\033]0;title\\007b" in capsys.readouterr().out.splitlines()
