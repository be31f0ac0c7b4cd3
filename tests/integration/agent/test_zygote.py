"""Starting replicas: once, many, and when the machine has nothing to give."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from paddlecloud.agent.replica.inspect import Phase, inspect
from paddlecloud.agent.supervisor import processes
from paddlecloud.agent.supervisor import zygote as supervisor_zygote
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.errors import Retry
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, running


def test_starting_twice_starts_once(bench: Bench) -> None:
    launch = bench.order("echo x >> runs; while [ ! -e go ]; do sleep 0.01; done")
    root = Path(launch["root"])
    first = bench.spawner.spawn(launch)
    has_file(root, "runs")
    second = bench.spawner.spawn(launch)
    eventually(lambda: not processes.alive(second))
    assert inspect(root).supervisor_pid == first
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 0
    third = bench.spawner.spawn(launch)
    eventually(lambda: not processes.alive(third))
    assert has_file(root, "runs") == "x"


def test_starting_at_the_same_moment_starts_once(bench: Bench) -> None:
    launch = bench.order("echo x >> runs; sleep 0.2")
    root = Path(launch["root"])
    threads = [threading.Thread(target=bench.spawner.spawn, args=(launch,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended(root)["exit_code"] == 0
    assert has_file(root, "runs") == "x"


def test_the_first_order_counts(bench: Bench) -> None:
    launch = bench.order("exit 1")
    root = Path(launch["root"])
    bench.spawner.spawn(launch)
    bench.spawner.spawn({**launch, "command": "exit 2"})
    assert ended(root)["exit_code"] == 1


def test_a_hundred_at_once(bench: Bench) -> None:
    roots = [bench.start(f"exit {number}") for number in range(100)]
    assert [ended(root)["exit_code"] for root in roots] == list(range(100))


def test_a_hundred_run_side_by_side(bench: Bench) -> None:
    roots = [bench.start("while [ ! -e go ]; do sleep 0.2; done") for _ in range(100)]
    pids = {running(root).pid for root in roots}
    assert len(pids) == 100
    assert {inspect(root).phase for root in roots} == {Phase.RUNNING}
    for root in roots:
        (root / "work" / "go").touch()
    assert {ended(root)["exit_code"] for root in roots} == {0}


def test_an_answer_that_comes_late_is_taken_for_no_other(bench: Bench) -> None:
    spawner = Spawner.start()
    try:
        assert spawner._socket is not None
        spawner._socket.settimeout(0.05)
        halted = spawner.zygote_pid
        os.kill(halted, signal.SIGSTOP)
        assert spawner.can_overlay("/nowhere", "/nowhere") is False
        assert spawner.zygote_pid != halted
        os.kill(halted, signal.SIGCONT)
        launch = bench.order("exit 3")
        spawner.spawn(launch)
        assert ended(Path(launch["root"]))["exit_code"] == 3
        eventually(lambda: not processes.alive(halted))
    finally:
        spawner.close()


def test_a_directory_with_a_strange_name(bench: Bench) -> None:
    bench.folder = bench.folder / "a b\n中 'quoted'"
    root, end = bench.run("pwd")
    assert end["exit_code"] == 0
    assert (root / "stdout.log").read_text() == f"{root}/work\n"


@pytest.mark.parametrize(
    "program", ["exit 1", "exit 0", "exec sleep 600"], ids=["fails", "does nothing", "hangs"]
)
def test_a_zygote_that_cannot_be_had_is_worth_a_second_try(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    spawner = Spawner()
    launch = bench.order("exit 4")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))
        patched.setattr(supervisor_zygote, "_ANSWER_SECONDS", 0.2)
        with pytest.raises(Retry, match=launch["replica_id"]):
            spawner.spawn(launch)
    spawner.spawn(launch)
    assert ended(Path(launch["root"]))["exit_code"] == 4
    spawner.close()


def test_the_zygote_is_nobodys_child_and_dead_supervisors_are_buried(bench: Bench) -> None:
    zygote = bench.spawner.zygote_pid
    supervisor_pid = bench.spawner.spawn(bench.order("true"))
    eventually(lambda: not Path(f"/proc/{supervisor_pid}").exists())
    assert processes.alive(zygote)
    eventually(lambda: len(processes.descendants(zygote)) == 1)  # the next one, forked ahead
    assert supervisor_pid not in processes.descendants(zygote)
