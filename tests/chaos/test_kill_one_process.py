"""One part is killed at the worst moment: what ran goes on, what was written arrives."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults.home import WAIT, Home, job_id_of, until
from tests.working_directory import kill_in

pytestmark = pytest.mark.chaos

BIG = 96 * 1024 * 1024
NO_CGROUPS = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]
"""Runs a command for which no control group is writable."""


class Gated:
    """A job that writes a line, waits for the gate, writes another and exits with 7."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.gate = folder / "gate"
        self._source = folder / "job"
        self._source.mkdir()
        self._pid = folder / "pid"
        start = (
            f"echo $$ > {self._pid}.new; mv {self._pid}.new {self._pid}; echo before; "
            f"while [ ! -e {self.gate} ]; do sleep 0.02; done; echo after; exit 7"
        )
        done = home.run("submit_job", f"--files={self._source}", f"--start_cmd={start}")
        assert done.returncode == 0, done.stderr
        self.id = job_id_of(done.stdout)
        until(self._pid.exists, "the job's first act")
        self.pid = int(self._pid.read_text())

    def view(self) -> dict[str, Any]:
        done = self.home.run("query_job", self.id, "--json")
        assert done.returncode == 0, done.stderr
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    def state(self) -> str:
        return str(self.view()["job_status"])

    def check_goes_on(self) -> None:
        """Known as running, under the pid that it always had."""
        until(lambda: self.state() == "running", "the job to be seen running")
        assert self.view()["workers"][0]["pid"] == self.pid
        os.kill(self.pid, 0)

    def check_end(self) -> None:
        until(lambda: self.state() == "failed", "the job's end")
        view = self.view()
        assert (view["exit_code"], view["attempts"]) == (7, 1)
        assert self.home.run("logs", self.id).stdout == "before\nafter\n"
        assert self.home.of_kind("supervisor", "job") == []


def test_a_server_that_is_killed_while_it_starts_is_started_again(home: Home) -> None:
    command = home.start("list_jobs", "--json")
    until(lambda: home.kill("server"), "the server to be there")
    out, told = command.communicate(timeout=WAIT)
    assert (command.returncode, out) == (0, "[]\n"), told


def test_a_command_whose_server_dies_over_it_starts_another(home: Home) -> None:
    assert home.run("server", "start").returncode == 0
    (server,) = home.of_kind("server")
    os.kill(server, signal.SIGSTOP)
    command = home.start("list_jobs", "--json")
    until(lambda: _has_socket(command.pid), "the command to connect")
    os.kill(server, signal.SIGKILL)
    out, told = command.communicate(timeout=WAIT)
    assert (command.returncode, out) == (0, "[]\n"), told


def _has_socket(pid: int) -> bool:
    with suppress(OSError):
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
        return any(str(link).startswith("socket:") for link in links)
    return False


@pytest.fixture
def job(home: Home, tmp_path: Path) -> Gated:
    return Gated(home, tmp_path)


@pytest.mark.parametrize(
    "victims", [("server",), ("agent",), ("zygote",), ("server", "agent", "zygote")], ids="+".join
)
def test_a_job_does_not_notice(home: Home, job: Gated, victims: tuple[str, ...]) -> None:
    home.kill_and_await(*victims)
    job.check_goes_on()
    job.gate.touch()
    job.check_end()


def test_stopping_the_server_leaves_jobs_running(home: Home, job: Gated) -> None:
    assert home.run("server", "stop").returncode == 0
    assert home.of_kind("server") == []
    os.kill(job.pid, 0)
    job.check_goes_on()
    job.gate.touch()
    job.check_end()


@pytest.mark.parametrize("victims", [("server",), ("server", "agent", "zygote")], ids="+".join)
def test_an_end_that_nobody_saw_arrives(home: Home, job: Gated, victims: tuple[str, ...]) -> None:
    """The server, or everybody, is away while the job writes and exits."""
    home.kill_and_await(*victims)
    job.gate.touch()
    until(lambda: not home.of_kind("supervisor", "job"), "the end of the job's processes")
    assert not home.of_kind("server")
    job.check_end()


def test_a_killed_supervisor_loses_the_end_and_says_so(home: Home, job: Gated) -> None:
    log = home.path / "agent" / "replicas" / f"{job.id}.1.trainer-0" / "stdout.log"
    until(lambda: log.exists() and log.read_text() == "before\n", "its first line")
    home.kill_and_await("supervisor")
    until(lambda: job.state() == "failed", "the job's end")
    view = job.view()
    assert view["exit_code"] is None
    assert "trainer-0" in view["error_msg"], view["error_msg"]
    assert view["failure"]["advice"]
    assert view["failure"]["last_lines"] == ["before"]
    assert home.run("logs", job.id).stdout == "before\n"
    assert home.of_kind("supervisor", "job") == [], "its processes outlived it"


class Escaping:
    """A job on a machine where no control group is writable, with a process in a session of its
    own, without environment and without parents."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        words = [*NO_CGROUPS, sys.executable, "-m", "paddlecloud", "server", "start"]
        subprocess.run(words, env=home.environ, check=True, timeout=WAIT, stdout=subprocess.DEVNULL)
        (folder / "job").mkdir()
        file = folder / "escaped"
        escape = f"env -i setsid sh -c 'sleep 600 & echo $! > {file}.new; mv {file}.new {file}'"
        start = f"--start_cmd={escape}; echo up; exec sleep 600"
        done = home.run("submit_job", f"--files={folder / 'job'}", start)
        assert done.returncode == 0, done.stderr
        self.id = job_id_of(done.stdout)
        until(file.exists, "the escape")
        self.pid = int(file.read_text())
        until(lambda: self.view()["job_status"] == "running", "the job to be seen running")

    def view(self) -> dict[str, Any]:
        done = self.home.run("query_job", self.id, "--json")
        assert done.returncode == 0, done.stderr
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    def end(self) -> dict[str, Any]:
        until(lambda: self.view()["job_status"] in ("failed", "killed"), "the job's end")
        return self.view()

    def runs(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()


@pytest.fixture
def escaping(home: Home, tmp_path: Path) -> Iterator[Escaping]:
    if subprocess.run([*NO_CGROUPS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs Linux and the right to mount")
    made = Escaping(home, tmp_path)
    yield made
    kill_in(home.path)


def test_what_left_the_process_tree_is_dead_when_the_job_says_so(
    home: Home, escaping: Escaping
) -> None:
    home.kill_and_await("supervisor")
    view = escaping.end()
    assert not escaping.runs()
    assert "all its processes were stopped" in view["error_msg"]


def test_killing_a_job_whose_supervisor_died_kills_what_left_its_tree(
    home: Home, escaping: Escaping
) -> None:
    (agent,) = home.of_kind("agent")
    os.kill(agent, signal.SIGSTOP)
    home.kill_and_await("supervisor")
    assert home.run("kill_job", escaping.id).returncode == 0
    assert escaping.view()["job_status"] == "killing"
    os.kill(agent, signal.SIGCONT)
    view = escaping.end()
    assert (view["job_status"], escaping.runs()) == ("killed", False)
    assert view["error_msg"] == "killed on request while running"


def test_a_job_of_which_processes_may_run_does_not_say_that_all_were_stopped(
    home: Home, escaping: Escaping
) -> None:
    home.kill_and_await("agent", "zygote", "supervisor")
    view = escaping.end()
    assert escaping.runs()
    assert "processes that left its process tree may still be running" in view["error_msg"]
    assert view["failure"]["advice"]


def test_killing_a_job_while_the_agent_is_dead_kills_it(home: Home, job: Gated) -> None:
    home.kill_and_await("agent", "zygote")
    assert home.run("kill_job", job.id).returncode == 0
    until(lambda: job.state() == "killed", "the job's end")
    assert home.of_kind("supervisor", "job") == []


@pytest.mark.parametrize("victim", ["server", "agent"])
def test_an_upload_that_was_cut_arrives_whole(home: Home, tmp_path: Path, victim: str) -> None:
    """Killed in the middle of a big output file: it is sent again, and no half of it is seen."""
    (tmp_path / "job").mkdir()
    line = b"0123456789abcdef" * 64
    start = f"yes {line.decode()} | tr -d '\\n' | head -c {BIG} > $OUTPUT_PATH/model.bin"
    done = home.run("submit_job", f"--files={tmp_path / 'job'}", f"--start_cmd={start}")
    job_id = job_id_of(done.stdout)
    until(lambda: len(home.of_kind(victim)) == 1, f"the {victim}, which forks when it starts")
    (pid,) = home.of_kind(victim)
    store = home.path / "store"
    wait_for_upload(store / ".tmp")
    os.kill(pid, signal.SIGKILL)
    place = f"users/*/output/{job_id}/rank-0/*"
    assert list(store.glob(place)) == [], "it was over before it could be cut, or half is seen"

    def ended() -> bool:
        return '"job_status": "success"' in home.run("query_job", job_id, "--json").stdout

    until(ended, "the job's end", 60.0)
    (stored,) = store.glob(place)
    want = hashlib.sha256(line * (BIG // len(line))).hexdigest()
    assert hashlib.sha256(stored.read_bytes()).hexdigest() == want
    if victim == "agent":
        assert not any((store / ".tmp").iterdir()), "the server kept half a file"


def wait_for_upload(scratch: Path) -> None:
    """Return with the first bytes of a file; without sleeping, because it will not be long."""
    deadline = time.monotonic() + WAIT
    while True:
        for path in scratch.glob("*"):
            with suppress(FileNotFoundError):
                if path.stat().st_size:
                    return
        assert time.monotonic() < deadline, "no upload began"
