"""What a submit takes: links that lead out, whole homes, dry runs and job files."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.person import PROGRAM, WAIT, Person


@pytest.fixture(scope="module")
def person(shared: Person) -> Person:
    return shared


def a_job(folder: Path, command: str) -> Path:
    (folder / "job").mkdir(exist_ok=True)
    (folder / "job" / "run.sh").write_text(command)
    return folder / "job"


def test_a_link_that_leads_out_works_in_a_job_on_this_machine(
    person: Person, tmp_path: Path
) -> None:
    job = a_job(tmp_path, "cat data/x $LOCAL_MOUNT_PATH/data/x; echo more > data/y\n")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").write_text("large\n")
    (job / "data").symlink_to("../set")
    done = person.types("submit_job", f"--files={job}", "--start_cmd=sh run.sh", "--watch_mode=1")
    assert (done.code, done.out.splitlines()[1:]) == (0, ["large", "large"])
    assert f"data -> {tmp_path / 'set'}" in done.err
    assert (tmp_path / "set" / "y").read_text() == "more\n"
    job_id = done.out.splitlines()[0].removeprefix("job_id: ")
    into = tmp_path / "all"
    all_of_it = ("get_files", job_id, "--prefix=/", "--download=1", f"--download_dir={into}")
    assert person.types(*all_of_it).code == 0
    assert (into / "data").readlink() == tmp_path / "set"


def test_a_dry_run_reports_and_changes_nothing(person: Person, tmp_path: Path) -> None:
    job = a_job(tmp_path, f"echo {os.urandom(8).hex()}\n")
    (job / "__pycache__").mkdir()
    flags = (f"--files={job}", "--start_cmd=sh run.sh", "--env", "EPOCHS=3")
    before = person.types("list_jobs", "--json").json
    first, second = (person.types("submit_job", *flags, "--dry_run", "--json") for _ in range(2))
    assert (first.code, first.json) == (0, second.json)
    found = first.json
    size = (job / "run.sh").stat().st_size
    want = {"count": 1, "bytes": size, "new_files": 1, "new_bytes": size}
    assert want.items() <= found["files"].items()
    assert found["files"]["ignored"] == {"default": ["__pycache__/"]}
    assert found["job"]["env"] == {"EPOCHS": "3"}
    assert "PATH" in found["job"]["inherited_env"]
    assert found["plan"]["pools"] == ["local"]
    assert found["plan"]["workers"] == [
        {"role": "TRAINER", "count": 1, "cpu": 1.0, "memory": 0, "gpu": 0}
    ]
    assert person.types("list_jobs", "--json").json == before
    assert person.types("submit_job", *flags).code == 0
    told = person.types("submit_job", *flags, "--dry_run")
    assert "files to upload: 0 (0 B)" in told.out
    assert told.err == ""


def test_a_dry_run_names_everything_that_is_refused(person: Person, tmp_path: Path) -> None:
    job = a_job(tmp_path, "true\n")
    (job / "self").symlink_to(".")
    flags = (f"--files={job}", "--start_cmd=true", "--cpu=1000", "--dry_run")
    done = person.types("submit_job", *flags, "--json")
    assert done.code == 1
    assert [error["code"] for error in done.json["refused"]] == [
        "resources_never",
        "files_link_whole",
    ]
    told = person.types("submit_job", *flags, PADDLECLOUD_LANG="zh")
    assert (told.code, told.out.count("会被拒绝：")) == (1, 2)
    assert person.types("submit_job", "--cpu=x", *flags[:2], "--dry_run").code == 2


def test_a_job_file_is_submitted_and_flags_win(person: Person, tmp_path: Path) -> None:
    a_job(tmp_path, "echo $EPOCHS $RATE\n")
    (tmp_path / "job.toml").write_text(
        'start_cmd = "sh run.sh"\nfiles = "job"\nwatch_mode = 1\n[env]\nEPOCHS = 1\nRATE = 2\n'
    )
    done = person.types("submit_job", "-f", str(tmp_path / "job.toml"), "--env", "EPOCHS=7")
    assert (done.code, done.out.splitlines()[1:]) == (0, ["7 2"])


def test_a_whole_home_or_disk_needs_a_flag_where_nobody_can_be_asked(person: Person) -> None:
    for path in ("/", "//", str(person.here), str(person.here.parent), ".", ".."):
        done = person.types("submit_job", f"--files={path}", "--start_cmd=true", stdin="y\n")
        assert done.code == 2, path
        assert "--yes" in done.err
    done = person.types("submit_job", "--files=.", "--start_cmd=true", "--dry_run", "--yes")
    assert done.code == 0


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"\n", 2)])
def test_a_whole_home_is_asked_for_on_a_terminal(person: Person, typed: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        done = subprocess.run(
            [PROGRAM, "submit_job", "--files=.", "--start_cmd=true", "--dry_run"],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            cwd=person.here,
            env=person.environ(),
            timeout=WAIT,
            check=False,
        )
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code
    assert "whole home directory; read and submit all of it? [y/N]" in shown
