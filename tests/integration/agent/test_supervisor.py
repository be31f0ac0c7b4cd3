"""What a replica's command sees, and how its end is recorded."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.replica.inspect import Phase, inspect, request_stop
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import Bench, ended, eventually, running

SHOW_YOURSELF = """
import json, os, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
fds = {}
for fd in os.listdir("/proc/self/fd"):
    try: fds[fd] = os.readlink("/proc/self/fd/" + fd)
    except OSError: pass
print(json.dumps({"SigBlk": status["SigBlk"], "SigIgn": status["SigIgn"], "fds": fds,
    "core": resource.getrlimit(resource.RLIMIT_CORE), "cwd": os.getcwd(),
    "session": os.getsid(0), "pid": os.getpid()}))
"""


@pytest.mark.parametrize("code", [0, 1, 42, 127, 255])
def test_exit_codes_are_kept(bench: Bench, code: int) -> None:
    _, end = bench.run(f"exit {code}")
    assert (end["cause"], end["exit_code"], end["signal"]) == ("exit", code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_death_by_signal_is_kept_as_such(bench: Bench, number: signal.Signals) -> None:
    _, end = bench.run(f"kill -{number.value} $$")
    assert (end["cause"], end["exit_code"], end["signal"]) == ("exit", None, number.value)
    assert end["oom"] is False


def test_times_and_usage_are_recorded(bench: Bench) -> None:
    _, end = bench.run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    assert end["started_at"] is not None
    assert end["started_at"] <= end["finished_at"]
    assert end["cpu_seconds"] is not None
    assert end["cpu_seconds"] > 0
    assert end["max_rss"] is not None
    assert end["max_rss"] > 100_000


def test_both_streams_go_to_one_file_in_order(bench: Bench) -> None:
    root, _ = bench.run("echo one; echo two >&2; echo three")
    assert (root / "stdout.log").read_text() == "one\ntwo\nthree\n"


def test_the_log_is_appended_to_and_never_cut(bench: Bench) -> None:
    launch = bench.order("echo after")
    root = Path(launch["root"])
    (root / "stdout.log").write_text("before\n")
    bench.spawner.spawn(launch)
    ended(root)
    assert (root / "stdout.log").read_text() == "before\nafter\n"


def test_the_environment_is_exact(bench: Bench) -> None:
    root, _ = bench.run("exec env", env={"A": "1 2", "B": "中文"})
    seen = set((root / "stdout.log").read_text().splitlines())
    replica_id = bench.launches[0]["replica_id"]
    # PWD is the shell's own addition.
    want = {"A=1 2", "B=中文", f"PADDLECLOUD_REPLICA={replica_id}", f"PWD={root}/work"}
    assert seen - {"SHLVL=0", "SHLVL=1", "_=/usr/bin/env"} == want


@pytest.mark.parametrize("special", [{}, {"pids_limit": 1000}], ids=["plain way", "long way"])
def test_the_process_is_clean(bench: Bench, special: dict[str, int]) -> None:
    root, _ = bench.run(f"exec {shlex.quote(sys.executable)} -S -c '{SHOW_YOURSELF}'", **special)
    shown = json.loads((root / "stdout.log").read_text())
    assert int(shown["SigBlk"], 16) == 0
    # Python ignores 13 and 25; 32 and 33 belong to the C library, which ignores them on its own.
    assert int(shown["SigIgn"], 16) & ~(1 << 12 | 1 << 24 | 0b11 << 31) == 0
    stream = shown["fds"].get("1", "")
    assert stream.startswith("pipe:")
    assert shown["fds"] == {"0": "/dev/null", "1": stream, "2": stream}
    assert shown["core"] == [0, 0]
    assert shown["cwd"] == f"{root}/work"
    assert shown["session"] == shown["pid"]


def test_a_broken_pipe_ends_a_writer(bench: Bench) -> None:
    # Python ignores SIGPIPE; a command that inherited this would write for ever.
    _, end = bench.run("(yes; echo $? > status) | true; grep -q 141 status")
    assert end["exit_code"] == 0


@pytest.mark.parametrize("special", [{}, {"pids_limit": 1000}], ids=["plain way", "long way"])
def test_a_missing_working_directory_is_told(bench: Bench, special: dict[str, int]) -> None:
    launch = bench.order("true", **special)
    root = Path(launch["root"])
    (root / "work").rmdir()
    bench.spawner.spawn(launch)
    end = ended(root)
    assert (end["cause"], end["start_errno"]) == ("start_failed", errno.ENOENT)
    assert end["message"] == f"working directory {root}/work: No such file or directory"
    assert end["exit_code"] is None


@pytest.mark.parametrize("special", [{}, {"pids_limit": 1000}], ids=["plain way", "long way"])
def test_a_failed_exec_is_told(bench: Bench, special: dict[str, int]) -> None:
    _, end = bench.run("true", env={"BIG": "x" * 200_000}, **special)
    assert (end["cause"], end["start_errno"]) == ("start_failed", errno.E2BIG)
    assert end["message"] == "command: Argument list too long"


def test_an_impossible_environment_is_told(bench: Bench) -> None:
    _, end = bench.run("true", env={"A": "nul\0inside"})
    assert end["cause"] == "start_failed"
    assert "null" in end["message"]


@pytest.mark.parametrize("left", ["", "{", "[]"])
def test_what_a_loss_of_power_left_of_an_order_is_lost_and_never_run(
    bench: Bench, left: str
) -> None:
    launch = bench.order("touch ran")
    root = Path(launch["root"])
    (root / "order.json").write_text(left)
    assert inspect(root).phase is Phase.LOST
    supervisor_pid = bench.spawner.spawn(launch)
    eventually(lambda: not processes.alive(supervisor_pid))
    assert inspect(root).phase is Phase.LOST
    assert not (root / "work" / "ran").exists()


@pytest.mark.parametrize("name", ["run.json", "exit.json"])
def test_what_has_an_empty_record_is_lost_and_never_run(bench: Bench, name: str) -> None:
    launch = bench.order("touch ran")
    root = Path(launch["root"])
    (root / name).touch()
    supervisor_pid = bench.spawner.spawn(launch)
    eventually(lambda: not processes.alive(supervisor_pid))
    assert inspect(root).phase is Phase.LOST
    assert not (root / "work" / "ran").exists()


def test_only_the_owner_reads_what_a_replica_leaves(bench: Bench) -> None:
    launch = bench.order("while [ ! -e go ]; do sleep 0.01; done")
    root = Path(launch["root"])
    before = os.umask(0o022)
    try:
        bench.spawner.spawn(launch)
        running(root)
        request_stop(root, grace=5, now=0.0)
    finally:
        os.umask(before)
    ended(root)
    bench.check_nothing_is_left()  # its supervisor too has done all it does here
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode) for file in root.iterdir() if file.is_file()
    }
    names = ("order.json", "run.json", "stop.json", "exit.json", "lock", "stdout.log")
    assert modes == dict.fromkeys(names, 0o600)


def test_records_tell_their_format_and_others_are_read_as_far_as_they_go(bench: Bench) -> None:
    root, end = bench.run("exit 3")
    for name in ("order.json", "run.json", "exit.json"):
        assert json.loads((root / name).read_text())["v"] == 1
    assert "v" not in end
    (root / "exit.json").write_text('{"v": 7, "exit_code": 3, "more": []}')
    (root / "run.json").write_text('{"v": 7}')
    seen = inspect(root)
    assert (seen.phase, seen.started_at, seen.pid) == (Phase.EXITED, None, None)
    (root / "exit.json").unlink()
    # Its supervisor may still be on its way out.
    eventually(lambda: inspect(root).phase is Phase.LOST)


def test_looking_before_during_and_after(bench: Bench) -> None:
    launch = bench.order("while [ ! -e go ]; do sleep 0.01; done; exit 3")
    root = Path(launch["root"])
    assert inspect(root).phase is Phase.NOT_STARTED
    supervisor_pid = bench.spawner.spawn(launch)
    seen = running(root)
    assert (seen.phase, seen.supervisor_pid) == (Phase.RUNNING, supervisor_pid)
    assert seen.started_at is not None
    (root / "work" / "go").touch()
    end = ended(root)
    assert end["exit_code"] == 3
    assert end["started_at"] == seen.started_at


def test_the_start_and_the_end_are_announced(bench: Bench, tmp_path: Path) -> None:
    # Deeper than the 108 bytes that the address of a socket holds.
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        folder = os.open(deep, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/notices")
        os.close(folder)
        listener.settimeout(30)
        bench.run("true", notify=str(deep / "notices"))
        replica_id = bench.launches[-1]["replica_id"].encode()
        assert [listener.recv(200), listener.recv(200)] == [replica_id, replica_id]


def test_an_agent_that_does_not_listen_delays_nothing_for_long(
    bench: Bench, tmp_path: Path
) -> None:
    _, end = bench.run("true", notify=str(tmp_path / "nobody"))
    assert end["exit_code"] == 0


def test_a_supervisor_that_failed_says_so(bench: Bench) -> None:
    launch = bench.order("true")
    root = Path(launch["root"])
    (root / "order.json").write_text('{"replica_id": "only this"}')
    bench.spawner.spawn(launch)
    eventually(lambda: (root / "supervisor.log").exists())
    eventually(lambda: inspect(root).phase is not Phase.RUNNING)
    assert "KeyError" in eventually((root / "supervisor.log").read_text)
