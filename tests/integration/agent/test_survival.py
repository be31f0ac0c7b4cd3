"""The agent, the zygote, the supervisor itself: each is killed, and what must survive does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Phase, Reaped, inspect, reap_leftovers, request_stop
from paddlecloud.agent.replica.records import Launch
from paddlecloud.agent.supervisor import processes
from paddlecloud.agent.supervisor.zygote import Spawner
from tests.integration.agent.replicas import (
    PATIENCE,
    Bench,
    ended,
    eventually,
    groups_of,
    has_file,
    living,
    running,
)

AGENT = textwrap.dedent(
    """
    import json, sys, time
    from paddlecloud.agent.supervisor.zygote import Spawner
    spawner = Spawner.start()
    for launch in json.load(sys.stdin):
        spawner.spawn(launch)
    print(spawner.zygote_pid, flush=True)
    time.sleep(600)
    """
)
WAITS = "while [ ! -e go ]; do sleep 0.01; done; exit 7"


def agent_with(*launches: Launch) -> tuple[subprocess.Popen[str], int]:
    """A process that started these replicas; and the pid of its zygote."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin:
        json.dump(list(launches), process.stdin)
    with process.stdout:
        return process, int(process.stdout.readline())


def kill_9(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)


def test_a_replica_outlives_its_agent_and_is_found_again(bench: Bench) -> None:
    launch = bench.order(WAITS)
    root = Path(launch["root"])
    process, zygote = agent_with(launch)
    before = running(root)
    kill_9(process)
    eventually(lambda: not processes.alive(zygote))
    after = inspect(root)
    assert (after.phase, after.pid, after.supervisor_pid) == (
        Phase.RUNNING,
        before.pid,
        before.supervisor_pid,
    )
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 7


def test_the_end_is_recorded_while_nobody_is_there(bench: Bench) -> None:
    launch = bench.order(WAITS)
    root = Path(launch["root"])
    process, zygote = agent_with(launch)
    running(root)
    os.kill(zygote, signal.SIGKILL)
    kill_9(process)
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 7


def test_wall_time_needs_no_agent(bench: Bench) -> None:
    launch = bench.order("trap '' TERM; while :; do sleep 0.05; done", max_seconds=4.0, grace=0.1)
    root = Path(launch["root"])
    process, _ = agent_with(launch)
    kill_9(process)
    end = ended(root)
    assert (end["cause"], end["signal"]) == ("wall_time", signal.SIGKILL)


def test_another_agent_can_stop_it(bench: Bench) -> None:
    launch = bench.order(WAITS)
    root = Path(launch["root"])
    process, _ = agent_with(launch)
    running(root)
    kill_9(process)
    request_stop(root, grace=10, now=0.0)
    assert ended(root)["cause"] == "stopped"


def test_supervisors_hold_nothing_of_the_agent_open(bench: Bench, tmp_path: Path) -> None:
    with (tmp_path / "agent.lock").open("w"):
        spawner = Spawner.start()
        launch = bench.order(WAITS)
        root = Path(launch["root"])
        spawner.spawn(launch)
        seen = running(root)
        held = [files_of(pid) for pid in (spawner.zygote_pid, seen.supervisor_pid, seen.pid)]
    spawner.close()
    (root / "work" / "go").touch()
    ended(root)
    assert not [name for names in held for name in names if "agent.lock" in name], held


def files_of(pid: int | None) -> set[str]:
    """What a process holds open; the zygote opens and closes pipes for its spares."""
    names = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.add(str(link.readlink()))
    return names


def test_a_dead_zygote_is_replaced(bench: Bench) -> None:
    spawner = Spawner.start()
    first = spawner.zygote_pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not processes.alive(first))
    launches = [bench.order("exit 8"), bench.order("exit 8")]
    for launch in launches:
        spawner.spawn(launch)
    assert spawner.zygote_pid != first
    assert [ended(Path(launch["root"]))["exit_code"] for launch in launches] == [8, 8]
    second = spawner.zygote_pid
    spawner.close()
    eventually(lambda: not processes.alive(second))


def test_the_zygote_leaves_when_the_agent_closes(bench: Bench) -> None:
    spawner = Spawner.start()
    launch = bench.order(WAITS)
    root = Path(launch["root"])
    spawner.spawn(launch)
    running(root)
    spawner.close()
    eventually(lambda: not processes.alive(spawner.zygote_pid))
    assert inspect(root).phase is Phase.RUNNING
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 7


@pytest.mark.parametrize(
    "special",
    [{}, {"pids_limit": 500}, {"pids_limit": 5000}],
    ids=["no group", "born in a group", "moved into a group"],
)
def test_a_killed_supervisor_is_noticed_and_its_processes_are_cleared(
    bench: Bench, special: dict[str, int]
) -> None:
    command = "setsid sleep 600 & env -i sh -c 'sleep 600 & echo $$ $! > bare; wait'"
    root = bench.start(command, **special)
    bare = [int(pid) for pid in has_file(root, "bare").split()]
    kill_supervisor(root)
    seen = inspect(root)
    assert seen.phase is Phase.LOST
    assert seen.pid is not None
    replica_id = bench.launches[0]["replica_id"]
    assert living(replica_id) != []
    assert clear(bench, root).left == ()
    assert living(replica_id) == []
    assert [pid for pid in bare if processes.alive(pid)] == []
    assert groups_of([replica_id]) == []
    assert (root / "stdout.log").read_text() == ""


def test_what_has_no_environment_and_no_parent_is_found_by_its_group(bench: Bench) -> None:
    if not bench.spawner.enforces["pids"]:
        pytest.skip("this machine gives us no control group")
    command = "env -i setsid sh -c 'sleep 600 & echo $! > bare'; exec sleep 600"
    root = bench.start(command, pids_limit=500)
    bare = int(has_file(root, "bare"))
    kill_supervisor(root)
    assert clear(bench, root).left == ()
    assert not processes.alive(bare)


@pytest.mark.parametrize("left", ["", '{"monitor_pid": 1'], ids=["empty", "cut"])
@pytest.mark.parametrize("order", [True, False], ids=["with its order", "without"])
def test_a_damaged_record_hides_no_process(bench: Bench, left: str, order: bool) -> None:
    root = bench.start("echo up > up; exec sleep 600")
    has_file(root, "up")
    kill_supervisor(root)
    (root / records.RUN).write_text(left)
    if not order:
        (root / records.ORDER).write_text("")
    assert inspect(root).phase is Phase.LOST
    assert living(root.name) != []
    assert clear(bench, root).left == ()
    assert living(root.name) == []


def test_clearing_away_leaves_a_live_replica_alone(bench: Bench) -> None:
    root = bench.start(WAITS)
    pid = running(root).pid
    assert clear(bench, root).left == (inspect(root).supervisor_pid,)
    assert inspect(root).pid == pid
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 7


def test_pids_of_another_boot_are_left_alone(bench: Bench) -> None:
    root = bench.start(WAITS)
    kill_supervisor(root)
    run = records.read(root / records.RUN)
    records.write(root / records.RUN, {**run, "boot_id": "another"})
    assert clear(bench, root).left == ()
    assert living(bench.launches[0]["replica_id"]) != []
    records.write(root / records.RUN, run)
    assert clear(bench, root).left == ()


def test_a_lost_replica_is_not_started_again(bench: Bench) -> None:
    launch = bench.order("echo x >> runs; sleep 600")
    root = Path(launch["root"])
    bench.spawner.spawn(launch)
    has_file(root, "runs")
    kill_supervisor(root)
    clear(bench, root)
    second = bench.spawner.spawn(launch)
    eventually(lambda: not processes.alive(second))
    assert inspect(root).phase is Phase.LOST
    assert has_file(root, "runs") == "x"


def clear(bench: Bench, root: Path) -> Reaped:
    return reap_leftovers(root, bench.spawner)


def kill_supervisor(root: Path) -> None:
    pid = running(root).supervisor_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: records.lock_holder(root / records.LOCK) is None)
