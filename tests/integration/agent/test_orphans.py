"""What a killed supervisor leaves behind is found though it left the process tree, and nothing else
is touched. Replicas without limits have no control group, so none helps here."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.exec import runner
from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Reaped, reap_leftovers, request_stop
from paddlecloud.agent.sandbox import isolation, workspace
from paddlecloud.agent.supervisor import orphans, processes
from paddlecloud.agent.supervisor.zygote import Spawner
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, running
from tests.working_directory import kill_in, pids_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs subreapers")
able = pytest.mark.skipif(
    not isolation.possible(), reason="needs Linux 5.12 and the rights of root"
)

# Of this process alone: other tests run beside it, and some look for whatever a user has left.
ALICE = 3_000_000 + 10 * os.getpid()
BOB = ALICE + 1
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
ESCAPE = "env -i setsid sh -c 'sleep 600 & echo $! > escaped';"
"""A process in a session of its own, without environment, whose parents are gone."""
WAITS = "while [ ! -e go ]; do sleep 0.01; done; exit 7"
HOPS = """
import os, sys
open("escaped", "w").write(str(os.getpid()))
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    open("last", "w").write(str(os.getpid()))
"""
"""A process that is another one after each moment, in another session."""


@pytest.fixture
def started(bench: Bench) -> Iterator[Callable[..., tuple[Path, int]]]:
    """Starts a replica, and gives the pid of what left its process tree."""
    roots = []

    def start(command: str = "exec sleep 600", uid: int | None = None) -> tuple[Path, int]:
        root = start_replica(bench, f"{ESCAPE} {command}", uid)
        escaped = int(has_file(root, "escaped"))
        running(root)
        roots.append(root)
        return root, escaped

    yield start
    for root in roots:
        kill_in(root)


def start_replica(bench: Bench, command: str, uid: int | None = None, **changes: Any) -> Path:
    launch = bench.order(command, uid=uid, **changes)
    root = Path(launch["root"])
    if uid is not None:
        (root / "work").rmdir()
        own = (workspace.TEMPORARY, workspace.HOME)
        workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=uid)
    bench.spawner.spawn(launch)
    return root


def kill_supervisors(*roots: Path) -> None:
    pids = [running(root).supervisor_pid for root in roots]
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(records.lock_holder(root / records.LOCK) for root in roots))


def clear(bench: Bench, root: Path) -> Reaped:
    return reap_leftovers(root, bench.spawner)


def clear_without_a_zygote(root: Path) -> Reaped:
    """As after the death of the zygote: it cannot be asked."""
    return reap_leftovers(root, None)


def begin_beside(bench: Bench, place: Path, root: Path, *argv: str) -> int:
    place.mkdir()
    asked = {"beside": str(root), "argv": list(argv), "timeout": 100.0}
    records.write(place / runner.COMMAND, asked)
    pid = bench.spawner.spawn_root(place, "command")
    eventually(lambda: len(processes.descendants(pid)) == 1)
    return processes.descendants(pid)[0]


def check_goes_on(root: Path) -> None:
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 7


def test_what_left_the_process_tree_is_killed_and_reaped(bench: Bench, started: Any) -> None:
    root, escaped = started()
    kill_supervisors(root)
    reaped = clear(bench, root)
    assert (reaped.left, reaped.all_ended) == ((), True)
    eventually(lambda: not Path(f"/proc/{escaped}").exists())


def test_one_that_ends_by_itself_becomes_no_zombie(bench: Bench, started: Any) -> None:
    root, escaped = started()
    kill_supervisors(root)
    eventually(lambda: processes.children(bench.spawner.zygote_pid).count(escaped))
    os.kill(escaped, signal.SIGTERM)
    eventually(lambda: not Path(f"/proc/{escaped}").exists())
    assert clear(bench, root).all_ended is True


def test_no_other_replica_and_no_command_beside_one_is_hurt(
    bench: Bench, started: Any, tmp_path: Path
) -> None:
    other, others_own = started(WAITS)
    command = begin_beside(bench, tmp_path / "command", other, "sleep", "600")
    lost = [started() for _ in range(3)]
    assert bench.spawner.kill_orphans()[1] == [], "spares, supervisors and helpers are no orphans"
    kill_supervisors(*(root for root, _ in lost))
    for root, _ in lost:
        assert clear(bench, root).all_ended is True
    assert not [pid for _, pid in lost if processes.alive(pid)]
    assert processes.alive(others_own)
    assert processes.alive(command)
    check_goes_on(other)
    assert not processes.alive(others_own)
    eventually(lambda: not processes.alive(command))


@pytest.mark.parametrize("name", sorted(orphans.SUPERVISORS))
def test_a_name_of_ours_hides_nothing(bench: Bench, started: Any, name: str) -> None:
    copy = f"cp $(command -v sleep) {name}; env -i setsid sh -c './{name} 600 & echo $! > named'"
    root, _ = started(f"{copy}; exec sleep 600")
    disguised = int(has_file(root, "named"))
    eventually(lambda: Path(f"/proc/{disguised}/comm").read_text().strip() == name)
    kill_supervisors(root)
    assert clear(bench, root).all_ended is True
    assert not processes.alive(disguised)
    assert working_in(root) == []


def working_in(root: Path) -> list[int]:
    """The processes that have the working directory of this replica, started by any process."""
    return pids_in(root / "work")


def test_one_that_forks_and_ends_all_the_time_is_caught(bench: Bench) -> None:
    hops = f"env -i {shlex.quote(sys.executable)} -S -c '{HOPS}'"
    root = bench.start(f"{hops}; exec sleep 600")
    first = int(has_file(root, "escaped"))
    eventually(lambda: (root / "work" / "last").exists() and not processes.alive(first))
    kill_supervisors(root)
    assert clear(bench, root).all_ended is True
    assert working_in(root) == []


def test_the_zygote_of_an_agent_that_is_gone_kills_what_it_inherited(
    bench: Bench, tmp_path: Path
) -> None:
    spawner = Spawner.start()
    gone = Bench(spawner, tmp_path / "gone")
    root = gone.start(f"{ESCAPE} exec sleep 600")
    escaped = int(has_file(root, "escaped"))
    kill_supervisors(root)
    eventually(lambda: processes.children(spawner.zygote_pid).count(escaped))
    spawner.close()
    eventually(lambda: not processes.alive(escaped))
    assert clear(bench, root).all_ended is False, "another zygote cannot know that"


@pytest.mark.parametrize("limit", [500, 5000], ids=["born in a group", "moved into a group"])
def test_a_control_group_with_all_of_it_is_proof_enough(bench: Bench, limit: int) -> None:
    if not bench.spawner.enforces["pids"]:
        pytest.skip("this machine gives us no control group")
    root = start_replica(bench, f"{ESCAPE} exec sleep 600", pids_limit=limit)
    escaped = int(has_file(root, "escaped"))
    eventually(lambda: records.read(root / records.RUN)["contained"])
    kill_supervisors(root)
    assert clear_without_a_zygote(root).all_ended is True
    assert not processes.alive(escaped)


def test_without_group_zygote_or_user_it_is_not_called_certain(bench: Bench, started: Any) -> None:
    root, escaped = started()
    kill_supervisors(root)
    reaped = clear_without_a_zygote(root)
    assert (reaped.left, reaped.all_ended) == ((), False)
    assert processes.alive(escaped)


@able
def test_a_uid_of_its_own_finds_it_without_the_zygote(
    bench: Bench, started: Any, tmp_path: Path
) -> None:
    root, escaped = started(uid=ALICE)
    same_user, her_other = started(WAITS, uid=ALICE)
    other_user, his_own = started(WAITS, uid=BOB)
    command = begin_beside(bench, tmp_path / "command", same_user, "sleep", "600")
    kill_supervisors(root)
    assert clear_without_a_zygote(root).all_ended is True
    assert not processes.alive(escaped)
    assert all(processes.alive(pid) for pid in (her_other, his_own, command))
    check_goes_on(same_user)
    check_goes_on(other_user)
    eventually(lambda: not processes.alive(command))


@able
@pytest.mark.skipif(not PYTHON, reason="needs a Python that everybody may run")
def test_a_process_that_forbids_to_be_looked_into_is_found_by_its_uid(bench: Bench) -> None:
    hidden = (
        "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0);"
        ' os.fork() and os._exit(0); os.setsid(); open("escaped", "w").write(str(os.getpid()));'
        " time.sleep(600)"
    )
    root = start_replica(bench, f"env -i {PYTHON} -S -c '{hidden}'; exec sleep 600", uid=ALICE)
    escaped = int(has_file(root, "escaped"))
    kill_supervisors(root)
    assert clear_without_a_zygote(root).all_ended is True
    assert not processes.alive(escaped)


def test_a_supervisor_that_has_another_replica_by_now_is_not_waited_for(bench: Bench) -> None:
    other = bench.start_on_a_used_supervisor(WAITS)
    running(other)
    root = Path(bench.launches[-2]["root"])
    (root / records.EXIT).unlink()
    reaped = clear(bench, root)
    assert (reaped.left, reaped.all_ended) == ((), True)
    check_goes_on(other)


def test_a_stop_that_comes_after_the_death_of_the_supervisor_changes_nothing(
    bench: Bench, started: Any
) -> None:
    root, escaped = started()
    kill_supervisors(root)
    request_stop(root, grace=0.0, now=0.0)
    assert clear(bench, root).all_ended is True
    assert not processes.alive(escaped)
