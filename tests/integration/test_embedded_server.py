"""The embedded server as a person meets it: started by the first command, never twice, replaced
when it is old, found again after a crash. Real processes throughout."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client, __version__
from paddlecloud.client import local_server
from paddlecloud.model.errors import Refused, Unreachable

WAIT = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home; whatever was started in it is ended, the agent too."""
    place = tmp_path / "home"
    monkeypatch.setenv("PADDLECLOUD_HOME", str(place))
    yield place
    local_server.stop(str(place))
    _end_agent(place)


def _end_agent(home: Path) -> None:
    def is_gone() -> bool:
        """Whoever was forked while the others were looked for is asked the next time."""
        found = _processes("paddlecloud.agent", str(home))
        for process in found:
            with suppress(ProcessLookupError):  # it may be ending by itself
                os.kill(process, signal.SIGTERM)
        return not found

    until(is_gone)


def _processes(*parts: str) -> list[int]:
    """Pids whose command line has all these parts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if all(part in command for part in parts):
                found.append(int(entry.name))
    return found


def servers(home: Path) -> list[int]:
    return _processes("paddlecloud.server", str(home))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "paddlecloud", *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=60)


def status() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("server", "status", "--json").stdout)
    return found


def test_start_status_stop(home: Path) -> None:
    assert command("server", "status").returncode == 1
    assert status() == {"ready": False, "url": None, "pid": None, "version": None}
    assert not home.exists(), "asking starts nothing and writes nothing"
    started = command("server", "start")
    assert started.returncode == 0
    found = status()
    assert found["ready"] is True
    assert found["url"] == started.stdout.strip()
    assert found["version"] == __version__
    assert servers(home) == [found["pid"]]
    assert command("server", "start").stdout == started.stdout
    assert "ready at" in command("server", "logs", "-n", "20").stdout
    stopped = command("server", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert servers(home) == []
    assert command("server", "stop").returncode == 0
    assert not status()["ready"]


def test_the_files_of_a_home_are_private(home: Path) -> None:
    assert command("list_jobs").returncode == 0
    assert home.stat().st_mode & 0o077 == 0
    for name in ("credentials.json", "server.key", "server.log", "server.json"):
        assert (home / "server" / name).stat().st_mode & 0o077 == 0, name


def test_commands_at_the_same_moment_start_one_server(home: Path) -> None:
    results: list[subprocess.CompletedProcess[str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(command("list_jobs"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.returncode for done in results] == [0] * 6
    assert len(servers(home)) == 1
    assert sum("starting" in done.stderr for done in results) == 1
    assert (home / "server" / "server.log").read_text().count("ready at") == 1


def test_threads_of_one_client_start_one_server(home: Path) -> None:
    names: list[str] = []
    with Client() as client:
        threads = [
            threading.Thread(target=lambda: names.append(client.whoami()["server"]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(names) == 8
    assert len(servers(home)) == 1


def test_a_crashed_server_is_started_again_and_knows_its_jobs(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    with Client() as client:
        job = client.submit_job(files=tmp_path / "job", start_cmd="echo hello")
        client.wait(job.id, WAIT)
        first = local_server.read_info(str(home))
        os.kill(first["pid"], signal.SIGKILL)
        until(lambda: not local_server.is_alive(str(home)))
        assert (home / "server" / "server.json").exists(), "the crash left it behind"
        assert client.query_job(job.id).state == "success"
        assert b"".join(client.logs(job.id)) == b"hello\n"
        assert local_server.read_info(str(home))["boot"] != first["boot"]


class _Foreign(BaseHTTPRequestHandler):
    """Another program, which says yes to everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_another_program_on_the_old_port_is_not_taken_for_the_server(home: Path) -> None:
    assert command("server", "start").returncode == 0
    info = local_server.read_info(str(home))
    os.kill(info["pid"], signal.SIGKILL)
    until(lambda: not local_server.is_alive(str(home)))
    port = int(info["url"].rpartition(":")[2])
    with HTTPServer(("127.0.0.1", port), _Foreign) as foreign:
        thread = threading.Thread(target=foreign.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            done = command("list_jobs", "--json")
        finally:
            foreign.shutdown()
            thread.join()
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert not local_server.read_info(str(home))["url"].endswith(f":{port}")


def test_a_pid_that_belongs_to_another_is_never_signalled(home: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        (home / "server").mkdir(parents=True)
        facts = {
            "url": "http://127.0.0.1:1", "pid": bystander.pid, "version": "0.0.1", "boot": "old",
        }  # fmt: skip
        (home / "server" / "server.json").write_text(json.dumps(facts))
        assert local_server.stop(str(home)) is False
        assert command("list_jobs").returncode == 0
        assert command("server", "stop").returncode == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.slow
def test_an_older_server_is_replaced_and_a_newer_one_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def note(code: str, **_: object) -> None:
        told.append(code)

    local_server.ensure(str(home), os.environ, note)
    first = local_server.read_info(str(home))
    monkeypatch.setattr(local_server, "__version__", "0.0.9")
    assert local_server.find(str(home)) is None
    local_server.ensure(str(home), os.environ, note)
    assert local_server.read_info(str(home)) == first
    monkeypatch.setattr(local_server, "__version__", "99.0.0")
    local_server.ensure(str(home), os.environ, note)
    assert local_server.read_info(str(home))["boot"] != first["boot"]
    assert told == ["server_starting", "server_replaced", "server_starting"]
    assert len(servers(home)) == 1


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why_in_the_person_s_language(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home).mkdir()
    (home / "server.toml").write_text("no_such_setting = 1\n")
    done = command("list_jobs")
    assert done.returncode == 1
    assert "no_such_setting" in done.stderr
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("PADDLECLOUD_LANG", "zh")
    told = command("list_jobs").stderr
    assert "在就绪前退出（代码 1）：" in told
    assert "没有设置项 no_such_setting" in told
    assert "unknown setting" not in told
    (home / "server.toml").unlink()
    assert command("list_jobs").returncode == 0


def test_a_server_that_never_gets_ready_is_given_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds its lock and says nothing; the deadline is shortened so that nobody waits."""
    monkeypatch.setattr(local_server, "START_DEADLINE", 0.2)
    (home / "server").mkdir(parents=True)
    holder = _hold(home / "server" / "lock")
    try:
        with pytest.raises(Unreachable) as caught:
            local_server.ensure(str(home), os.environ)
        assert caught.value.code == "server_not_ready"
        assert local_server.status(str(home))["ready"] is False
        with pytest.raises(Unreachable) as caught:
            local_server.stop(str(home), deadline=0.2)
        assert caught.value.code == "server_does_not_stop"
    finally:
        holder.kill()
        holder.wait()


def test_a_start_that_hangs_elsewhere_is_not_waited_for_for_ever(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "START_DEADLINE", 0.1)
    (home / "server").mkdir(parents=True)
    holder = _hold(home / "server" / "start.lock")
    try:
        with pytest.raises(Unreachable) as caught:
            local_server.ensure(str(home), os.environ)
        assert caught.value.code == "server_start_blocked"
    finally:
        holder.kill()
        holder.wait()


def _hold(path: Path) -> subprocess.Popen[str]:
    """A process that has the lock."""
    program = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.stdout.close()
    return holder


def test_a_home_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PADDLECLOUD_HOME", str(tmp_path / "file"))
    done = command("list_jobs")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["uvicorn", "prometheus_client", "re2"])
def test_what_is_not_installed_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else object()
    )
    with pytest.raises(Refused) as caught:
        local_server.ensure(str(home), os.environ)
    assert f"needs the package {missing}: pip install 'paddlecloud[server]'" in str(caught.value)


def test_a_system_without_flock_is_told_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(Refused) as caught:
        local_server.ensure(str(home), os.environ)
    assert "[openapi] host" in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setenv("PADDLECLOUD_HOME", str(home))


def test_the_client_s_own_settings_do_not_reach_the_server(home: Path) -> None:
    """Jobs have the uid of their embedded server, and may look at what it was started with."""
    names = ("SK", "BOS_AK", "BOS_SK", "BOS_SESSION_TOKEN", "CONFIG")
    ours = {f"PADDLECLOUD_{name}": "/hush" for name in names}
    environ = {**os.environ, **ours, "PORT": "1"}
    local_server.ensure(str(home), environ)
    (pid,) = servers(home)
    inside = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"PORT=1" in inside
    assert not [item for item in inside if item.endswith(b"=/hush")]
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")


def test_doctor_finds_everything_well(home: Path) -> None:
    done = command("doctor", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"]) == (0, True), answer
    names = [check["name"] for check in answer["checks"]]
    assert names[:3] == ["configuration", "server", "signature"]
    assert names[-1] == "job"
    assert {"database", "store", "agent"} <= set(names)
    assert command("list_jobs", "--json").stdout.strip() == "[]", "its job is deleted"


@pytest.mark.slow
def test_watching_survives_the_death_of_the_server(home: Path, tmp_path: Path) -> None:
    """kill -9 in the middle: the job goes on, and the watcher loses no byte of its log."""
    (tmp_path / "job").mkdir()
    gate = tmp_path / "gate"
    start = f"echo before; while [ ! -e {gate} ]; do sleep 0.05; done; echo after"
    words = ["submit_job", f"--files={tmp_path / 'job'}", f"--start_cmd={start}", "--watch_mode=1"]
    watcher = subprocess.Popen(
        [sys.executable, "-m", "paddlecloud", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watcher.stdout is not None
    job_id = watcher.stdout.readline().removeprefix("job_id: ").strip()
    assert watcher.stdout.readline() == "before\n"
    info = local_server.read_info(str(home))
    os.kill(info["pid"], signal.SIGKILL)
    until(lambda: local_server.read_info(str(home)).get("boot") not in (None, info["boot"]))
    gate.touch()
    out, told = watcher.communicate(timeout=WAIT)
    assert (watcher.returncode, out) == (0, "after\n")
    assert f"{job_id}: success" in told


def test_the_first_job_needs_no_set_up(home: Path, tmp_path: Path) -> None:
    """The whole way by the command line: submit, state, log, files, download."""
    source = tmp_path / "job"
    source.mkdir()
    (source / "run.sh").write_text("cat data.txt\ncp data.txt $OUTPUT_PATH/模型.txt\n")
    (source / "data.txt").write_text("你好\n")
    words = ["submit_job", "--files", str(source), "--start_cmd", "sh run.sh", "--watch_mode", "1"]
    done = command(*words)
    assert done.returncode == 0
    first, *log = done.stdout.splitlines()
    assert log == ["你好"]
    job_id = first.removeprefix("job_id: ")
    assert "job_status: success\n" in command("query_job", job_id).stdout
    assert command("logs", job_id).stdout == "你好\n"
    listed = command("get_files", job_id).stdout.splitlines()
    assert listed[0].startswith(f"output/{job_id}/\t0\t")
    assert [line.split("\t")[:2] for line in listed[1:]] == [
        [f"output/{job_id}/log/trainer-0.log", "7"],
        [f"output/{job_id}/rank-0/模型.txt", "7"],
    ]
    result = tmp_path / "result"
    assert command("get_files", job_id, "--download=1", f"--download_dir={result}").returncode == 0
    assert (result / job_id / "rank-0" / "模型.txt").read_text() == "你好\n"
    shutil.rmtree(result)


@pytest.mark.slow
def test_a_busy_port_of_last_time_is_no_obstacle(home: Path) -> None:
    assert command("server", "start").returncode == 0
    port = int(local_server.read_info(str(home))["url"].rpartition(":")[2])
    assert command("server", "stop").returncode == 0
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert command("list_jobs").returncode == 0
        assert not local_server.read_info(str(home))["url"].endswith(f":{port}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("logs", "-f"), id="logs", marks=pytest.mark.slow),
        pytest.param(("submit_job",), id="watch"),
    ],
)
def test_a_server_that_was_stopped_stays_so_while_somebody_watches(
    home: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "job").mkdir()
    gate = tmp_path / "gate"
    given = [f"--files={tmp_path / 'job'}"]
    given.append(f"--start_cmd=echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two")
    if words == ("submit_job",):
        given.append("--watch_mode=1")
    else:
        job_id = command("submit_job", *given).stdout.removeprefix("job_id: ").strip()
        given = [job_id]
    program = [sys.executable, "-m", "paddlecloud", *words, *given]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        lines = iter(follower.stdout.readline, "")
        assert next(line for line in lines if not line.startswith("job_id")) == "one\n"
        assert command("server", "stop").returncode == 0
        told = next(line for line in follower.stderr if "waiting for the server" in line)
        assert "paddlecloud server start" in told
        assert servers(home) == []
        assert command("server", "start").returncode == 0
        gate.touch()
        out, err = follower.communicate(timeout=60)
    assert (out, follower.returncode) == ("two\n", 0)
    assert "waiting" not in err and "starting" not in err


@pytest.mark.slow
def test_a_job_asks_the_server_that_runs_it_and_starts_none(home: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    ours = f"{shlex.quote(sys.executable)} -m paddlecloud"
    done = tmp_path / "done"
    script = (
        f"unset HOME; {ours} query_job $JOB_ID; {ours} server stop; {ours} list_jobs; echo $?; "
        f"touch {done}"
    )
    with Client() as client:
        job = client.submit_job(files=tmp_path / "job", start_cmd=script)
        until(done.exists)
        assert not local_server.is_alive(str(home)), "the job started a server of its own"
        assert client.wait(job.id).state == "success"
        log = b"".join(client.logs(job.id)).decode()
    assert f"job_id: {job.id}\n" in log
    assert f"a job ({job.id}.1.trainer-0) cannot start the embedded server" in log
    assert log.endswith("\n1\n")
