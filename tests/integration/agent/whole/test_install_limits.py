"""Limits of `--requirements` installs: packages whose setup.py forks, eats memory or never ends.

Real agent, real venv and pip, no network: each package is an sdist whose build backend is its own
setup.py, so pip runs that file whatever else is installed.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import cgroups, isolation
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.test_environments import (
    ALICE,
    ENV,
    PATIENCE,
    a_wheel,
    ended,
    installers,
    order,
    requirements,
)
from tests.integration.agent.whole.world import World, alive

pytestmark = [
    pytest.mark.slow(seconds=10),
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="needs control groups and /proc"),
]

MIB = 1024 * 1024
#: Room for venv and pip, and no more.
FEW = 40
BACKEND = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
BUILDS = """
def build_wheel(directory, *_):
    import shutil
    shutil.copy("{wheel}", directory)
    return "{wheel}"
"""
FORKS = """
import os, signal, sys, time
begun = []
try:
    for _ in range({count}):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        begun.append(pid)
except OSError as error:
    sys.exit(f"forked {{len(begun)}} processes: {{error}}")
finally:
    for pid in begun:
        os.kill(pid, signal.SIGKILL)
"""
EATS = "x = bytearray({size})\n"
#: A process without a parent, a session, a terminal or an environment; only its pid is known.
ESCAPES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        script = "echo $$ > new; mv new pid; exec sleep 600 >/dev/null 2>&1"
        os.chdir("{place}")
        os.execve("/bin/sh", ["sh", "-c", script], {{}})
    os._exit(0)
while not os.path.exists("{place}/pid"):
    time.sleep(0.01)
"""
WAITS = """
import os, time
while not os.path.exists("{place}/go"):
    time.sleep(0.05)
"""


def a_package(folder: Path, *code: str) -> str:
    """The requirements of a package whose setup.py is `code` and then builds a wheel."""
    wheel = a_wheel(folder)
    setup = "".join(code) + BUILDS.format(wheel=wheel.name)
    info = "Metadata-Version: 2.1\nName: paddlesays\nVersion: 1.0\n"
    files = {
        "setup.py": setup.encode(),
        "pyproject.toml": BACKEND.encode(),
        "PKG-INFO": info.encode(),
        wheel.name: wheel.read_bytes(),
    }
    wheel.unlink()
    with tarfile.open(folder / "paddlesays-1.0.tar.gz", "w:gz") as out:
        for name, content in files.items():
            member = tarfile.TarInfo(f"paddlesays-1.0/{name}")
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return requirements(folder, "paddlesays")


def needs(controller: str) -> None:
    if not cgroups.detect().enforces()[controller]:
        pytest.skip(f"this machine does not let us limit {controller}")


def pid_in(folder: Path) -> int:
    """The pid of the process that escaped, once there is one."""
    file = folder / "pid"
    return int(eventually(lambda: file.read_text() if file.exists() else "", PATIENCE))


def runs_of(world: World) -> list[Path]:
    """The directories of installs that run, or left something behind."""
    return sorted((world.directory / "cache" / "envs").glob("*/*.tmp"))


def check_nothing_is_left(world: World) -> None:
    assert installers(world) == []
    assert runs_of(world) == []
    places = cgroups.detect()
    keys = {path.stem for path in (world.directory / "cache" / "envs").glob("*/*.lock")}
    for place in {*places.v1.values(), *([places.v2] if places.v2 else [])}:
        left = [path.name for key in keys for path in place.glob(f"{cgroups.PREFIX}{key}*")]
        assert left == []


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that every user may read."""
    folder = Path(f"/usr/local/share/paddlecloud-limits-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_fork_bomb_stops_at_the_process_limit_of_its_job(world: World, tmp_path: Path) -> None:
    needs("pids")
    text = a_package(tmp_path / "shelf", FORKS.format(count=300))
    replica = order(world, text, pids_limit=FEW)
    end = ended(world, replica)
    assert end["cause"] == "start_failed"
    assert end["said"]["code"] == "environment_processes"
    assert f"limit of {FEW} processes" in end["message"]
    (forked,) = re.findall(r"forked (\d+) processes", world.text(replica))
    assert 0 < int(forked) < FEW
    check_nothing_is_left(world)


@pytest.mark.skipif(
    not isolation.possible() or not Path("/usr/bin/python3").exists(),
    reason="needs the rights of root, and a Python that every user may start",
)
def test_a_fork_bomb_of_another_user_stops_there_too(world: World, shelf: Path) -> None:
    needs("pids")
    text = a_package(shelf, FORKS.format(count=300))
    env = {"PATH": "/usr/bin:/bin"}
    replica = world.run("paddlesays", env=env, requirements=text, uid=ALICE, pids_limit=FEW)
    end = ended(world, replica)
    assert end["said"]["code"] == "environment_processes", end["message"]
    (forked,) = re.findall(r"forked (\d+) processes", world.text(replica))
    assert 0 < int(forked) < FEW
    check_nothing_is_left(world)


def test_memory_is_limited_and_its_end_says_so(world: World, tmp_path: Path) -> None:
    needs("memory")
    text = a_package(tmp_path / "shelf", EATS.format(size=600 * MIB))
    replica = order(world, text, memory_limit=200 * MIB)
    end = ended(world, replica)
    assert (end["cause"], end["said"]["code"]) == ("start_failed", "environment_memory")
    assert "200 MiB" in end["message"] and "--memory" in end["message"]
    check_nothing_is_left(world)


def test_one_that_never_ends_is_ended_by_the_wall_limit(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    text = a_package(folder, ESCAPES.format(place=folder), WAITS.format(place=folder))
    replica = order(world, text, install_seconds=20.0)
    end = ended(world, replica)
    assert (end["cause"], end["said"]["code"]) == ("start_failed", "environment_slow")
    assert "0.33 minutes" in end["message"] and "running.install_limit" in end["message"]
    if (folder / "pid").exists():  # else venv alone took that long here
        assert not alive(pid_in(folder))
    check_nothing_is_left(world)


def test_a_kill_ends_what_escaped_and_its_groups_are_those_of_a_replica(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "shelf"
    text = a_package(folder, ESCAPES.format(place=folder), WAITS.format(place=folder))
    replica = order(world, text, cpu_limit=1.5, memory_limit=512 * MIB, pids_limit=300)
    escaped = pid_in(folder)
    (root,) = runs_of(world)
    group = cgroups.from_json(records.read(root / records.RUN)["cgroup"])
    able = cgroups.detect().enforces()
    if any(able.values()):
        assert escaped in group.pids()
    if "cpu" in group.v1:
        assert (group.v1["cpu"] / "cpu.cfs_quota_us").read_text() == "150000\n"
    if "memory" in group.v1:
        limit = group.v1["memory"] / "memory.limit_in_bytes"
        assert limit.read_text() == f"{512 * MIB}\n"
    world.server.order(replica, "stop")
    assert ended(world, replica)["cause"] == "stopped"
    assert not alive(escaped)
    check_nothing_is_left(world)


def test_a_kill_while_no_agent_runs_ends_it_when_one_is_back(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    text = a_package(folder, ESCAPES.format(place=folder), WAITS.format(place=folder))
    replica = order(world, text)
    escaped = pid_in(folder)
    world.kill_agent()
    world.server.order(replica, "stop")
    assert alive(escaped)
    world.start_agent()
    assert ended(world, replica)["cause"] == "stopped"
    assert not alive(escaped)
    assert installers(world) == []


def test_it_goes_on_for_another_job_when_the_one_that_began_it_is_killed(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "shelf"
    text = a_package(folder, ESCAPES.format(place=folder), WAITS.format(place=folder))
    first = order(world, text, pids_limit=300)
    escaped = pid_in(folder)
    second = order(world, text)
    world.says(second, "[paddlecloud] Python environment of --requirements: ")
    world.server.order(first, "stop")
    assert ended(world, first)["cause"] == "stopped"
    assert alive(escaped)
    (folder / "go").touch()
    assert ended(world, second)["exit_code"] == 0, world.text(second)
    assert world.agent_log().count(" installed in ") == 1
    # A good install, too, leaves no process behind.
    assert not alive(escaped)
    check_nothing_is_left(world)


def test_a_job_with_more_does_not_fail_for_the_limit_of_another(
    world: World, tmp_path: Path
) -> None:
    needs("pids")
    folder = tmp_path / "shelf"
    text = a_package(folder, WAITS.format(place=folder), FORKS.format(count=100))
    small = order(world, text, pids_limit=FEW)
    eventually(lambda: installers(world), PATIENCE)
    large = order(world, text, pids_limit=300)
    world.says(large, "[paddlecloud] Python environment of --requirements: ")
    (folder / "go").touch()
    assert ended(world, small)["said"]["code"] == "environment_processes"
    assert ended(world, large)["exit_code"] == 0, world.text(large)
    assert world.agent_log().count(" installed in ") == 1
    check_nothing_is_left(world)


def test_what_a_killed_supervisor_leaves_is_ended_and_tried_again(
    world: World, tmp_path: Path
) -> None:
    needs("pids")
    folder = tmp_path / "shelf"
    text = a_package(folder, ESCAPES.format(place=folder), WAITS.format(place=folder))
    replica = order(world, text, pids_limit=300)
    escaped = pid_in(folder)
    (root,) = runs_of(world)
    supervisor = records.lock_holder(root / records.LOCK)
    assert supervisor is not None
    (folder / "go").touch()
    (folder / "pid").unlink()
    os.kill(supervisor, signal.SIGKILL)
    assert ended(world, replica)["exit_code"] == 0, world.text(replica)
    assert not alive(escaped)
    assert pid_in(folder) != escaped
    check_nothing_is_left(world)


def test_an_install_that_ended_while_no_agent_ran_is_used(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    text = a_package(folder, WAITS.format(place=folder))
    replica = order(world, text)
    eventually(lambda: any((world.directory / "cache" / "envs").glob("*/*/pyvenv.cfg")), PATIENCE)
    world.kill_agent()
    began = installers(world)
    assert began
    (folder / "go").touch()
    eventually(lambda: not any(processes.alive(pid) for pid in began), PATIENCE)
    eventually(lambda: not installers(world), PATIENCE)
    made = sorted(path.name for path in (world.directory / "cache" / "envs" / "own").iterdir())
    world.start_agent()
    assert ended(world, replica)["exit_code"] == 0, world.text(replica)
    used = sorted(path.name for path in (world.directory / "cache" / "envs" / "own").iterdir())
    assert next(name for name in used if not name.endswith((".json", ".lock"))) in made
    check_nothing_is_left(world)


def test_variables_of_the_agent_reach_only_installs_of_its_own_user(
    world: World, tmp_path: Path
) -> None:
    assert "HOME" in os.environ and "HOME" not in ENV
    told = f"import os; open('{tmp_path}/told', 'w').write(os.environ['HOME'])\n"
    replica = order(world, a_package(tmp_path / "shelf", told))
    assert ended(world, replica)["exit_code"] == 0, world.text(replica)
    assert (tmp_path / "told").read_text() == os.environ["HOME"]
