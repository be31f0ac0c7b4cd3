"""Kill kills: whatever a replica's processes do, nothing of them is left when the end is recorded.

That nothing is left is checked after every test by the `bench` fixture; these tests add what the
record says and how long it may take.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Phase, inspect, request_stop
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, living, running

pytestmark = pytest.mark.slow

DOUBLE_FORK = f"""{shlex.quote(sys.executable)} -S -c '
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        open("daemon", "w").write(str(os.getpid()))
        while True: signal.pause()
    os._exit(0)
os.wait()
while not os.path.exists("daemon"): pass
'"""
GROUPS = pytest.mark.parametrize(
    "special",
    [{}, {"pids_limit": 60}, {"pids_limit": 5000}],
    ids=["no group", "born in a group", "moved into a group"],
)
IGNORES_TERM = "trap '' TERM; touch ready; while :; do sleep 0.05; done"


def stop(root: Path, grace: float = 20.0, cause: str = "stopped") -> None:
    request_stop(root, grace=grace, now=1000.0, cause=cause)


def test_a_willing_process_ends_at_once(bench: Bench) -> None:
    root = bench.start("sleep 600")
    running(root)
    stop(root, grace=86400.0)
    end = ended(root)
    assert (end["cause"], end["signal"]) == ("stopped", signal.SIGTERM)
    assert end["stop_requested_at"] == 1000.0


def test_every_process_hears_sigterm_and_may_save_its_work(bench: Bench) -> None:
    inner = "trap 'sleep 0.1; echo saved > model; exit 0' TERM; touch ready; sleep 600 & wait"
    root = bench.start(f'sh -c "{inner}"; exit 9')
    has_file_or_empty(root, "ready")
    stop(root)
    end = ended(root)
    assert (root / "work" / "model").read_text() == "saved\n"
    assert end["cause"] == "stopped"


def test_who_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    root = bench.start(IGNORES_TERM)
    has_file_or_empty(root, "ready")
    stop(root, grace=0.2)
    end = ended(root)
    assert (end["cause"], end["signal"]) == ("stopped", signal.SIGKILL)


def test_a_halted_process_ends_too(bench: Bench) -> None:
    root = bench.start("kill -STOP $$; exit 1")
    pid = running(root).pid
    assert pid is not None
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
    stop(root)
    assert ended(root)["signal"] == signal.SIGTERM


def test_a_second_stop_shortens_the_grace(bench: Bench) -> None:
    root = bench.start(IGNORES_TERM)
    has_file_or_empty(root, "ready")
    stop(root, grace=600)
    stop(root, grace=0, cause="wall_time")
    assert ended(root)["cause"] == "stopped"


def test_a_longer_second_stop_changes_nothing(bench: Bench) -> None:
    root = bench.start(IGNORES_TERM)
    has_file_or_empty(root, "ready")
    stop(root, grace=0.3)
    stop(root, grace=600)
    assert ended(root)["signal"] == signal.SIGKILL


@GROUPS
def test_a_daemon_that_hides_is_ended(bench: Bench, special: dict[str, int]) -> None:
    root = bench.start(DOUBLE_FORK + "; sleep 600", **special)
    daemon = int(has_file(root, "daemon"))
    stop(root, grace=0.2)
    ended(root)
    assert not processes.alive(daemon)


@GROUPS
def test_what_outlives_the_main_process_is_ended_before_the_end_is_told(
    bench: Bench, special: dict[str, int]
) -> None:
    root, end = bench.run(DOUBLE_FORK + "; exit 5", **special)
    daemon = int(has_file(root, "daemon"))
    assert not processes.alive(daemon)
    assert (end["cause"], end["exit_code"]) == ("exit", 5)


def test_a_background_process_without_its_environment_is_ended(bench: Bench) -> None:
    root, _ = bench.run(
        "env -i setsid sh -c 'echo $$ > hidden; sleep 600' & "
        "while [ ! -s hidden ]; do sleep 0.01; done"
    )
    assert not processes.alive(int(has_file(root, "hidden")))


@GROUPS
def test_a_family_that_keeps_forking_is_ended(bench: Bench, special: dict[str, int]) -> None:
    breeder = "trap '' TERM; while :; do sleep 0.01 & sleep 0.01; done"
    root = bench.start(f'{breeder} & {breeder} & setsid sh -c "{breeder}" & {breeder}', **special)
    replica_id = bench.launches[0]["replica_id"]
    eventually(lambda: len(living(replica_id)) > 6)
    stop(root, grace=0)
    assert ended(root)["cause"] == "stopped"
    assert living(replica_id) == []


def test_wall_time_ends_it_without_anybody_asking(bench: Bench) -> None:
    _, end = bench.run("sleep 600", max_seconds=0.2)
    assert (end["cause"], end["signal"]) == ("wall_time", signal.SIGTERM)
    assert end["stop_requested_at"] is None
    assert end["started_at"] is not None
    assert end["started_at"] < end["stopping_at"] <= end["finished_at"]


def test_wall_time_kills_who_does_not_listen(bench: Bench) -> None:
    _, end = bench.run("trap '' TERM; while :; do sleep 0.05; done", max_seconds=5.0, grace=0.2)
    assert (end["cause"], end["signal"]) == ("wall_time", signal.SIGKILL)


def test_a_replica_stopped_before_its_start_never_runs(bench: Bench) -> None:
    launch = bench.order("touch ran")
    root = Path(launch["root"])
    stop(root)
    bench.spawner.spawn(launch)
    end = ended(root)
    assert (end["cause"], end["exit_code"], end["started_at"]) == ("stopped", None, None)
    assert not (root / "work" / "ran").exists()


def test_a_stop_right_after_the_start_is_never_missed(bench: Bench) -> None:
    for _ in range(20):
        root = bench.start("sleep 600")
        stop(root)
        assert ended(root)["cause"] == "stopped"


def test_stopping_what_is_over_changes_nothing(bench: Bench) -> None:
    root, end = bench.run("exit 4")
    stop(root)
    assert inspect(root).phase is Phase.EXITED
    assert inspect(root).exit == end


def test_signals_that_take_a_machine_down_do_not_end_the_supervisor(bench: Bench) -> None:
    root = bench.start("while [ ! -e go ]; do sleep 0.01; done; exit 6")
    supervisor_pid = running(root).supervisor_pid
    assert supervisor_pid is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(supervisor_pid, number)
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 6


@pytest.mark.parametrize("sender", ["kill -USR1 $PPID", 'sh -c "kill -USR1 $PPID"'])
def test_a_replica_that_signals_its_parent_does_not_stop_itself(bench: Bench, sender: str) -> None:
    _, end = bench.run(f"{sender}; sleep 0.1; {sender}; exit 5")
    assert (end["cause"], end["exit_code"]) == ("exit", 5)


WITHOUT_A_SUBREAPER = """
import sys
from paddlecloud.agent.supervisor import processes, supervisor
processes.LINUX = False
supervisor.main(sys.argv[1])
"""


def test_without_a_subreaper_the_group_is_ended_before_the_end_is_told(bench: Bench) -> None:
    """As on macOS, where orphans go to another parent."""
    launch = bench.order(
        "sh -c 'trap \"\" TERM; touch up; while :; do sleep 0.05; done' & "
        "while [ ! -e up ]; do sleep 0.01; done; echo $! > left; exit 7"
    )
    root = Path(launch["root"])
    records.write(root / records.ORDER, launch)
    subprocess.run([sys.executable, "-c", WITHOUT_A_SUBREAPER, str(root)], check=True, timeout=60)
    end = ended(root)
    assert (end["cause"], end["exit_code"]) == ("exit", 7)
    assert not processes.alive(int(has_file(root, "left")))


def has_file_or_empty(root: Path, name: str) -> None:
    eventually(lambda: (root / "work" / name).exists())
