"""A supervisor whose replica was over soon takes another one, and nothing of the first shows
there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Phase, inspect, request_stop
from paddlecloud.agent.supervisor import processes, supervisor
from paddlecloud.agent.supervisor.zygote import Spawner
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere none is used twice")


def test_each_has_its_own_end_and_log(bench: Bench) -> None:
    root = bench.start_on_a_used_supervisor("echo second; exit 4", first="echo first; exit 3")
    first = Path(bench.launches[-2]["root"])
    assert ended(root)["exit_code"] == 4
    assert (root / "stdout.log").read_text() == "second\n"
    assert ended(first)["exit_code"] == 3
    assert (first / "stdout.log").read_text() == "first\n"


TWO_ONE_AFTER_THE_OTHER = """
import json, os, time
from paddlecloud.agent.supervisor import processes

def used(greedy):
    counted = processes.Used()
    pid = os.fork()
    if not pid:
        kept = b"x" * (100_000_000 if greedy else 1)
        os._exit(0)
    while processes.reap(pid, counted)[1]:
        time.sleep(0.001)
    return counted.max_rss, counted.cpu_seconds

print(json.dumps([used(True), used(False)]))
"""


def test_what_the_first_one_used_is_not_counted() -> None:
    program = [sys.executable, "-c", TWO_ONE_AFTER_THE_OTHER]
    done = subprocess.run(program, capture_output=True, check=True, timeout=60)
    (greedy_rss, greedy_cpu), (rss, cpu) = json.loads(done.stdout)
    assert greedy_rss > 100_000
    assert 0 < rss < 60_000
    assert 0 < cpu < greedy_cpu


def test_the_lock_of_the_first_is_given_up_and_that_of_the_second_is_held(bench: Bench) -> None:
    root = bench.start_on_a_used_supervisor("sleep 600")
    first = Path(bench.launches[-2]["root"])
    pid = running(root).supervisor_pid
    assert records.lock_holder(first / records.LOCK) is None
    assert records.lock_holder(root / records.LOCK) == pid
    assert inspect(first).phase is Phase.EXITED
    request_stop(root, grace=5.0, now=time.time())
    assert ended(root)["cause"] == "stopped"


def test_a_signal_that_was_meant_for_the_first_ends_nothing(bench: Bench) -> None:
    root = bench.start_on_a_used_supervisor("echo yes > ready; sleep 600")
    has_file(root, "ready")
    pid = running(root).supervisor_pid
    assert pid is not None
    os.kill(pid, supervisor.WAKE)
    eventually(lambda: not _is_pending(pid, supervisor.WAKE))
    request_stop(root, grace=5.0, now=1000.0, cause=records.CAUSE_PREEMPTED)
    end = ended(root)
    assert (end["cause"], end["stop_requested_at"]) == ("preempted", 1000.0)


def test_a_long_one_ends_its_supervisor(bench: Bench) -> None:
    launch = bench.order("sleep 0.2")
    pid = bench.spawner.spawn(launch)
    ended(Path(launch["root"]))
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert bench.spawner.spawn(bench.order("true")) != pid


def test_one_that_waits_for_work_ends_with_the_zygote(bench: Bench) -> None:
    spawner = Spawner.start()
    pid = spawner.spawn(bench.order("true"))
    spawner.close()
    eventually(lambda: not processes.alive(pid))
    assert ended(Path(bench.launches[-1]["root"]))["exit_code"] == 0


@pytest.mark.slow
def test_hundreds_one_after_the_other_are_all_run(bench: Bench) -> None:
    roots = [bench.start(f"echo {number}") for number in range(300)]
    for number, root in enumerate(roots):
        assert ended(root)["exit_code"] == 0
        assert (root / "stdout.log").read_text() == f"{number}\n"


def _is_pending(pid: int, number: signal.Signals) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) >> (number - 1) & 1:
            return True
    return False
