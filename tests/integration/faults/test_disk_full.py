"""A disk fills up: the cause in words, nothing corrupt, and all goes on with space again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults.disk import Disk, diagnosis, disk_for
from tests.integration.faults.home import Home, job_id_of, until

pytestmark = pytest.mark.slow(seconds=6)

MIB = 1024 * 1024


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty directory to submit."""
    place = tmp_path / "source"
    place.mkdir()
    return place


@pytest.fixture
def store(home: Home) -> Iterator[Disk]:
    with disk_for(home, "store", "4m") as disk:
        yield disk


@pytest.fixture
def database(home: Home) -> Iterator[Disk]:
    with disk_for(home, "server", "8m") as disk:
        yield disk


@pytest.fixture
def agent(home: Home) -> Iterator[Disk]:
    with disk_for(home, "agent", "8m") as disk:
        yield disk


@pytest.fixture
def everything(home: Home) -> Iterator[Disk]:
    with disk_for(home, "", "24m") as disk:
        yield disk


def try_to_submit(
    home: Home, source: Path, start: str, *more: str
) -> subprocess.CompletedProcess[str]:
    return home.run("submit_job", f"--files={source}", f"--start_cmd={start}", *more)


def submit(home: Home, source: Path, start: str) -> str:
    done = try_to_submit(home, source, start)
    assert done.returncode == 0, done.stderr
    return job_id_of(done.stdout)


def view(home: Home, job_id: str) -> dict[str, Any]:
    done = home.run("query_job", job_id, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def listed(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.run("list_jobs", "-n", "1000", "--json").stdout)
    return found


def await_running(home: Home, job_id: str) -> None:
    """Seen to run, and nothing else: the report of its start may be under way."""
    until(lambda: view(home, job_id)["job_status"] != "schedule", f"the start of {job_id}")
    assert view(home, job_id)["job_status"] == "running"


def await_end(home: Home, job_id: str) -> dict[str, Any]:
    """How it ended; a backoff of half a minute may have to pass first."""
    states = ("success", "failed", "killed", "timeout")
    until(lambda: view(home, job_id)["job_status"] in states, f"the end of {job_id}", 90.0)
    return view(home, job_id)


def check_works(home: Home, source: Path) -> None:
    """A whole job, and every link."""
    job_id = submit(home, source, "echo works")
    assert await_end(home, job_id)["job_status"] == "success"
    assert home.run("logs", job_id).stdout == "works\n"
    assert diagnosis(home) == {}


def check_database(home: Home) -> None:
    database = sqlite3.connect(home.path / "server" / "paddlecloud.db")
    try:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
    finally:
        database.close()


def test_a_log_larger_than_the_store(home: Home, source: Path, store: Disk) -> None:
    """The agent keeps what the server cannot: the log arrives whole when there is space."""
    job_id = submit(home, source, f"yes 0123456 | head -c {6 * MIB}; echo end")
    until(store.is_full_for_files, "the store to be full")
    broken = diagnosis(home)
    assert broken["name"] == "store", broken
    assert "no disk space left" in broken["detail"]
    await_running(home, job_id)
    ours = set(home.of_kind("server", "agent"))
    store.grow("32m")
    assert await_end(home, job_id)["job_status"] == "success"
    log = home.run("logs", job_id).stdout
    assert log == "0123456\n" * (6 * MIB // 8) + "end\n"
    assert set(home.of_kind("server", "agent")) == ours
    check_works(home, source)


def test_a_log_larger_than_the_agent_s_disk(home: Home, source: Path, agent: Disk) -> None:
    """The job waits with its full pipe; nothing it prints is lost when there is space again."""
    job_id = submit(home, source, f"yes 0123456 | head -c {20 * MIB}; exit 9")
    until(agent.is_full, "the agent's disk to be full")
    broken = diagnosis(home)
    assert broken["name"] == "job", broken
    assert "No space left on device" in broken["detail"]
    await_running(home, job_id)
    ours = set(home.of_kind("server", "agent"))
    agent.grow("64m")
    ended = await_end(home, job_id)
    assert (ended["job_status"], ended["exit_code"]) == ("failed", 9)
    assert home.run("logs", job_id).stdout == "0123456\n" * (20 * MIB // 8)
    assert set(home.of_kind("server", "agent")) == ours
    check_works(home, source)


def test_a_job_whose_log_has_no_space_can_be_killed(home: Home, source: Path, agent: Disk) -> None:
    job_id = submit(home, source, "exec yes 0123456")
    until(agent.is_full, "the agent's disk to be full")
    assert home.run("kill_job", job_id).returncode == 0
    assert await_end(home, job_id)["job_status"] == "killed"
    log = home.run("logs", job_id).stdout
    assert len(log) > 4 * MIB
    assert log == ("0123456\n" * (len(log) // 8 + 1))[: len(log)]
    until(lambda: not agent.is_full(), "its directory to go away with it")
    check_works(home, source)


def test_the_database_is_full(home: Home, source: Path, database: Disk) -> None:
    before = submit(home, source, "echo before")
    assert await_end(home, before)["job_status"] == "success"
    gate = source.parent / "gate"
    running = submit(home, source, f"while [ ! -e {gate} ]; do sleep 0.05; done; echo through")
    until(lambda: view(home, running)["job_status"] == "running", "the job to run")
    ours = set(home.of_kind("server", "agent"))
    database.fill()
    # Its log has blocks of its own for a while.
    tries = [try_to_submit(home, source, "echo early", "--cpu=0.01")]
    while tries[-1].returncode == 0 and len(tries) < 500:
        tries.append(try_to_submit(home, source, "echo early", "--cpu=0.01"))
    jobs, refused = 1 + len(tries), tries[-1]
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no disk space left for the database" in refused.stderr
    assert "Traceback" not in refused.stderr
    broken = diagnosis(home)
    assert broken["name"] == "database", broken
    assert "no disk space left" in broken["detail"]
    gate.touch()
    assert "job_status: success" in home.run("query_job", before).stdout
    assert home.run("logs", before).stdout == "before\n"
    assert len(listed(home)) == jobs
    database.empty()
    assert await_end(home, running)["job_status"] == "success"
    assert home.run("logs", running).stdout == "through\n"
    assert len(listed(home)) == jobs
    check_works(home, source)
    assert set(home.of_kind("server", "agent")) == ours
    check_database(home)


def test_a_server_that_cannot_start_on_a_full_disk_says_so(
    home: Home, source: Path, database: Disk
) -> None:
    job_id = submit(home, source, "echo before")
    await_end(home, job_id)
    home.kill_and_await("server")
    database.fill()
    done = home.run("query_job", job_id)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No space left on device" in done.stderr or "no disk space left" in done.stderr
    assert "Traceback" not in done.stderr
    told = home.run("doctor")
    assert told.returncode == 1
    assert "o space" in told.stdout + told.stderr
    database.empty()
    assert home.run("logs", job_id).stdout == "before\n"
    check_works(home, source)
    check_database(home)


def test_a_home_on_a_full_disk_is_one_sentence(home: Home, everything: Disk) -> None:
    """Whatever the server could still say of it: nothing, half a line, or all."""
    for _ in range(2):
        everything.fill()
        refused = home.run("list_jobs")
        assert (refused.returncode, refused.stdout) == (1, "")
        starting, told = refused.stderr.splitlines()
        assert starting == "starting the embedded server ..."
        assert "No space left on device" in told, told
        assert str(home.path) in told
        everything.empty()
        assert home.run("list_jobs").returncode == 0
        home.run("server", "stop")


def test_a_job_whose_log_filled_the_only_disk_can_be_killed(
    home: Home, source: Path, everything: Disk
) -> None:
    check_works(home, source)
    assert (home.path / "server" / "paddlecloud.db-reserve").exists()
    job_id = submit(home, source, "exec cat /dev/zero")
    until(everything.is_full, "the disk to be full")
    killed = home.run("kill_job", job_id)
    assert killed.returncode == 0, killed.stderr
    until(lambda: not home.of_kind("job"), "the end of its processes")
    everything.grow("80m")  # the rest of its log wants to be kept
    assert await_end(home, job_id)["job_status"] == "killed"
    check_works(home, source)
    check_database(home)


def test_an_upload_larger_than_the_store(home: Home, source: Path, store: Disk) -> None:
    for number in range(4):
        (source / f"small-{number}").write_bytes(bytes([number]) * 100_000)
    (source / "zz-large").write_bytes(b"\xff" * (12 * MIB))
    refused = try_to_submit(home, source, "echo never")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "5 files of 12.4 MiB in total do not fit" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert json.loads(home.run("list_jobs", "--json").stdout) == []
    check_blobs(store.place)
    store.fill()
    broken = diagnosis(home)
    assert broken["name"] == "store", broken
    assert "no disk space left" in broken["detail"]
    store.empty()
    store.grow("64m")
    job_id = submit(home, source, "cat small-3 zz-large | wc -c")
    assert await_end(home, job_id)["job_status"] == "success"
    assert int(home.run("logs", job_id).stdout) == 100_000 + 12 * MIB
    check_works(home, source)


def test_a_file_larger_than_the_only_disk_is_refused_and_nothing_else(
    home: Home, source: Path, everything: Disk
) -> None:
    check_works(home, source)
    (source / "large").write_bytes(b"\xff" * (30 * MIB))
    refused = try_to_submit(home, source, "echo never")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "a file of 30 MiB does not fit" in refused.stderr
    (source / "large").unlink()
    check_works(home, source)
    home.run("server", "stop")
    check_works(home, source)


def check_blobs(store: Path) -> None:
    """What has a final name is whole, and nothing half is kept."""
    for path in store.glob("users/*/blobs/*/*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    until(lambda: not any((store / ".tmp").iterdir()), "what was begun to go")


def test_outputs_larger_than_the_store(home: Home, source: Path, store: Disk) -> None:
    """They stay with the agent, which outlives even its own death, until they fit."""
    start = f"yes 0123456 | head -c {8 * MIB} > $OUTPUT_PATH/model.bin; echo $$ > $OUTPUT_PATH/pid"
    job_id = submit(home, source, start)
    ends = home.path / "agent" / "replicas"
    until(lambda: list(ends.glob("*/exit.json")), "the end of the job's processes")
    store.fill()
    broken = diagnosis(home)
    assert broken["name"] == "store", broken
    await_running(home, job_id)
    home.kill_and_await("agent", "zygote")
    store.empty()
    store.grow("32m")
    assert await_end(home, job_id)["job_status"] == "success"
    result = source.parent / "result"
    got = home.run("get_files", job_id, "--download=1", f"--download_dir={result}")
    assert got.returncode == 0, got.stderr
    model = (result / job_id / "rank-0" / "model.bin").read_bytes()
    assert model == b"0123456\n" * MIB
    check_works(home, source)


def test_a_job_that_fills_the_only_disk(home: Home, source: Path, everything: Disk) -> None:
    """Server, database, store and job share it: no manual cleanup is needed."""
    del everything
    check_works(home, source)
    ours = set(home.of_kind("server", "agent"))
    job_id = submit(home, source, "cat /dev/zero > fill; echo lost; exit 5")
    ended = await_end(home, job_id)
    assert (ended["job_status"], ended["exit_code"]) == ("failed", 5)
    assert "a disk was full" in ended["error_msg"], ended["error_msg"]
    assert set(home.of_kind("server", "agent")) == ours
    check_works(home, source)
    check_database(home)


def test_outputs_that_fill_the_only_disk_are_told_and_can_be_killed(
    home: Home, source: Path, everything: Disk
) -> None:
    """Nothing will ever fit: the job says so, and who kills it is told what is where."""
    (everything.place / "server.toml").write_text("[running]\ngrace = 1\n")
    check_works(home, source)
    job_id = submit(home, source, "dd if=/dev/zero of=$OUTPUT_PATH/big bs=1M count=200")
    until(lambda: "no disk space left" in "".join(view(home, job_id)["advice"]), "its cause")
    assert view(home, job_id)["job_status"] == "running"
    assert home.run("kill_job", job_id).returncode == 0
    ended = await_end(home, job_id)
    assert ended["job_status"] == "killed"
    assert "these outputs were not stored: rank-0/big (no disk space left" in ended["error_msg"]
    (kept,) = (home.path / "agent" / "unsent").rglob("big")
    assert kept.stat().st_size > 8 * MIB
    assert str(kept.parents[1]) in ended["error_msg"]
    kept.unlink()
    until(lambda: not everything.is_full_for_files(), "the space to come back")
    check_works(home, source)
    check_database(home)


def test_outputs_that_never_fit_do_not_hold_their_place_for_ever(
    home: Home, source: Path, store: Disk
) -> None:
    (home.path / "server.toml").write_text("[store]\npatience = 2\n")
    job_id = submit(home, source, f"head -c {8 * MIB} /dev/zero > $OUTPUT_PATH/big; echo done")
    ended = await_end(home, job_id)
    assert ended["job_status"] == "failed"
    assert (
        "succeeded, but the server could not store these outputs: rank-0/big (no disk space"
        in (ended["error_msg"])
    )
    assert store.place.is_dir()
    assert home.run("logs", job_id).stdout.startswith("done\n")
