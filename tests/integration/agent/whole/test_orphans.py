"""A supervisor is killed where no control group holds its replica: what left the process tree of
the replica is dead before the agent reports the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from paddlecloud.agent.replica import inspect
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import COMMAND, World, alive
from tests.working_directory import kill_in

NO_CGROUPS = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]
ESCAPE = "env -i setsid sh -c 'sleep 600 & echo $! > $0' \"$OUTPUT_PATH/escaped\";"
"""A process in a session of its own, without environment, whose parents are gone."""


def hides_cgroups() -> bool:
    if sys.platform != "linux":
        return False
    return subprocess.run([*NO_CGROUPS, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not hides_cgroups(), reason="needs Linux and the right to mount")


@pytest.fixture
def bare_world(idle_world: World) -> Iterator[World]:
    """An agent for which no control group is writable."""
    start_bare(idle_world)
    yield idle_world
    kill_in(idle_world.directory / "replicas")


def start_bare(world: World) -> None:
    words = [*NO_CGROUPS, *COMMAND, "--config", str(world.directory / "agent.json")]
    world.agent = subprocess.Popen(words)


def start(world: World, command: str = "exec sleep 600") -> tuple[str, int]:
    """A replica with a process that left its tree; that one's pid."""
    replica = world.run(f"{ESCAPE} echo up; {command}", pids_limit=500)
    world.says(replica, "up")
    file = world.root(replica) / "output" / "escaped"
    return replica, int(eventually(file.read_text))


def supervisor(world: World, replica: str) -> int:
    pid = inspect.inspect(world.root(replica)).supervisor_pid
    assert pid is not None
    return pid


def zygote_of(pid: int) -> int:
    """The parent of a supervisor."""
    fields = processes.stat_fields(pid)
    assert fields is not None
    return int(fields[1])


def test_what_left_the_process_tree_is_dead_before_the_end_is_reported(bare_world: World) -> None:
    replica, escaped = start(bare_world)
    os.kill(supervisor(bare_world, replica), signal.SIGKILL)
    bare_world.server.wait(lambda: bare_world.stored(replica).lost)
    assert not alive(escaped)
    assert bare_world.stored(replica).all_ended is True


def test_a_stop_after_the_supervisor_died_ends_everything_too(bare_world: World) -> None:
    replica, escaped = start(bare_world)
    assert bare_world.agent is not None
    bare_world.agent.send_signal(signal.SIGSTOP)
    os.kill(supervisor(bare_world, replica), signal.SIGKILL)
    bare_world.server.order(replica, "stop")
    bare_world.agent.send_signal(signal.SIGCONT)
    bare_world.server.wait(lambda: bare_world.stored(replica).lost)
    assert not alive(escaped)
    assert bare_world.stored(replica).all_ended is True


def test_others_go_on_when_several_supervisors_die_at_once(bare_world: World) -> None:
    lost = [start(bare_world) for _ in range(3)]
    waits = "while ! test -e $OUTPUT_PATH/go; do sleep 0.02; done; exit 3"
    other, others_own = start(bare_world, waits)
    for pid in [supervisor(bare_world, replica) for replica, _ in lost]:
        os.kill(pid, signal.SIGKILL)
    stored = [bare_world.stored(replica) for replica, _ in lost]
    bare_world.server.wait(lambda: all(one.lost for one in stored))
    assert [one.all_ended for one in stored] == [True, True, True]
    assert not [pid for _, pid in lost if alive(pid)]
    assert alive(others_own)
    (bare_world.root(other) / "output" / "go").touch()
    assert bare_world.ended(other)["exit_code"] == 3
    assert not alive(others_own)


def test_it_is_not_called_certain_when_the_zygote_died_as_well(bare_world: World) -> None:
    replica, _ = start(bare_world)
    main = bare_world.running(replica)
    watching = supervisor(bare_world, replica)
    for pid in (zygote_of(watching), watching):
        os.kill(pid, signal.SIGKILL)
    bare_world.server.wait(lambda: bare_world.stored(replica).lost)
    assert not alive(main)
    assert bare_world.stored(replica).all_ended is False


def test_an_agent_that_did_not_start_the_supervisor_is_not_certain(bare_world: World) -> None:
    replica, _ = start(bare_world)
    bare_world.kill_agent()
    start_bare(bare_world)
    eventually(lambda: "adopted, launched" in bare_world.agent_log())
    os.kill(supervisor(bare_world, replica), signal.SIGKILL)
    bare_world.server.wait(lambda: bare_world.stored(replica).lost)
    assert bare_world.stored(replica).all_ended is False
