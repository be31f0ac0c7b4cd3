"""Limits through real control groups, where this machine lets us have them, and their absence."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import request_stop
from paddlecloud.agent.replica.records import Launch
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.sandbox.cgroups import Cgroups
from tests.integration.agent.replicas import Bench, ended, eventually, groups_of, running

MIB = 1024 * 1024
IN_NO_HURRY = """
import sys
from paddlecloud.agent.supervisor import supervisor
supervisor._SETTLE_SECONDS = 60.0
supervisor.main(sys.argv[1])
"""


def needs(bench: Bench, controller: str) -> None:
    if not bench.spawner.enforces[controller]:
        pytest.skip(f"this machine does not let us limit {controller}")


def test_a_fork_bomb_stays_within_its_limit(bench: Bench) -> None:
    needs(bench, "pids")
    command = "for i in $(seq 100); do sleep 600 & done; wait"
    root, end = bench.run(command, pids_limit=20, max_seconds=15.0, grace=0.1)
    assert end["enforced"] == {"cpu": False, "memory": False, "pids": True}
    assert "fork" in (root / "stdout.log").read_text()
    assert end["forks_refused"] > 0


def test_memory_death_is_told_apart(bench: Bench) -> None:
    needs(bench, "memory")
    eater = f"exec {shlex.quote(sys.executable)} -S -c 'x = bytearray(300 << 20); print(len(x))'"
    _, end = bench.run(eater, memory_limit=64 * MIB)
    assert (end["oom"], end["signal"]) == (True, 9)
    assert end["enforced"]["memory"] is True


def test_a_memory_death_names_the_limit_that_was_reached(bench: Bench) -> None:
    """Killed for memory below its limit, it was the machine that had none left."""
    needs(bench, "memory")
    eater = f"exec {shlex.quote(sys.executable)} -S -c 'x = bytearray(300 << 20)'"
    _, end = bench.run(eater, memory_limit=64 * MIB)
    assert end.get("memory_limit") == 64 * MIB
    _, end = bench.run("true", memory_limit=64 * MIB)
    assert "memory_limit" not in end


def test_the_reached_limit_is_read_from_either_version(tmp_path: Path) -> None:
    for name, text, reached in (
        ("memory.events", "low 0\nmax 3\noom 1\noom_kill 1\n", True),
        ("memory.events", "low 0\nmax 0\noom 0\noom_kill 1\n", False),
    ):
        (tmp_path / name).write_text(text)
        assert cgroups.Group(v2=tmp_path, v1={}).reached_its_memory() is reached
    (tmp_path / "memory.limit_in_bytes").write_text(f"{64 * MIB}\n")
    for most, reached in ((MIB, False), (64 * MIB, True)):
        (tmp_path / "memory.max_usage_in_bytes").write_text(f"{most}\n")
        group = cgroups.Group(v2=None, v1={"memory": tmp_path})
        assert group.reached_its_memory() is reached


def test_within_its_memory_nothing_happens(bench: Bench) -> None:
    needs(bench, "memory")
    eater = f"exec {shlex.quote(sys.executable)} -S -c 'x = bytearray(30 << 20); print(len(x))'"
    _, end = bench.run(eater, memory_limit=128 * MIB)
    assert (end["oom"], end["exit_code"]) == (False, 0)
    assert end["max_rss"] is not None
    assert end["max_rss"] > 30 * MIB


def test_a_worker_killed_for_memory_is_noticed_behind_its_shell(bench: Bench) -> None:
    needs(bench, "memory")
    eater = f"{shlex.quote(sys.executable)} -S -c 'x = bytearray(300 << 20)'; exit 1"
    _, end = bench.run(eater, memory_limit=64 * MIB)
    assert end["oom"] is True


def test_cpu_quota_and_weight_are_set(bench: Bench) -> None:
    needs(bench, "cpu")
    root = bench.start("sleep 600", cpu_request=2.0, cpu_limit=1.5, max_seconds=30.0)
    running(root)
    files = ("cpu.cfs_quota_us", "cpu.max")
    folder = eventually(lambda: group_with(root.name, *files))
    assert str(running(root).pid) in eventually((folder / "cgroup.procs").read_text).split()
    quota = folder / "cpu.cfs_quota_us"
    if quota.exists():
        assert (quota.read_text(), (folder / "cpu.shares").read_text()) == ("150000\n", "2048\n")
    else:
        assert (folder / "cpu.max").read_text() == "150000 100000\n"
    request_stop(root, grace=0, now=0.0)
    assert ended(root)["enforced"]["cpu"] is True


def group_with(replica_id: str, *files: str) -> Path | None:
    """The group of the replica that has one of these files, if there is one by now."""
    groups = groups_of([replica_id])
    return next((group for group in groups for name in files if (group / name).exists()), None)


def test_a_wide_limit_is_put_on_later_over_all_that_was_started(bench: Bench) -> None:
    needs(bench, "pids")
    root = bench.start("sleep 600 & setsid sleep 600 & sleep 600", pids_limit=2000)
    folder = eventually(lambda: group_with(root.name, "pids.max"))
    eventually(lambda: (folder / "pids.max").read_text() == "2000\n")
    eventually(lambda: len((folder / "cgroup.procs").read_text().split()) == 4)
    request_stop(root, grace=0, now=0.0)
    assert ended(root)["enforced"]["pids"] is True


def test_a_short_command_is_over_before_a_wide_limit_is_put_on(bench: Bench) -> None:
    """The supervisor waits longer than it does, so that a busy machine cannot make it too late."""
    needs(bench, "pids")
    launch = bench.order("true", pids_limit=2000)
    root = Path(launch["root"])
    records.write(root / records.ORDER, launch)
    subprocess.run([sys.executable, "-c", IN_NO_HURRY, str(root)], check=True, timeout=60)
    end = ended(root)
    assert end["enforced"] == {"cpu": False, "memory": False, "pids": True}
    assert records.read(root / records.RUN)["cgroup"] == {}


def test_without_a_limit_there_is_no_group(bench: Bench) -> None:
    root = bench.start("sleep 600", cpu_request=1.0)
    running(root)
    assert groups_of([root.name]) == []
    request_stop(root, grace=0, now=0.0)
    assert ended(root)["enforced"] == {"cpu": False, "memory": False, "pids": False}


def test_empty_groups_of_the_past_are_swept() -> None:
    places = cgroups.detect()
    place = places.v2 or places.v1.get("pids")
    if place is None:
        pytest.skip("this machine gives us no control group")
    # A place of our own: other replicas of this machine are none of our business.
    home = place / f"test-sweep-{os.getpid()}"
    old = home / f"{cgroups.PREFIX}over"
    (old / "inner").mkdir(parents=True)
    (home / f"{cgroups.PREFIX}kept").mkdir()
    mine = Cgroups(v2=home)
    born = old.stat().st_mtime
    try:
        assert cgroups.sweep(mine, now=born + 5) == 0
        assert cgroups.sweep(mine, now=born + 500, keep=["kept"]) == 1
        assert [path.name for path in home.glob("paddlecloud-*")] == ["paddlecloud-kept"]
    finally:
        cgroups.sweep(mine, now=born + 500)
        home.rmdir()


def a_launch(**changes: object) -> Launch:
    launch: Launch = {"replica_id": "r", "root": "/", "command": "", "env": {}, "grace": 1.0}
    launch.update(changes)  # type: ignore[typeddict-item]
    return launch


def v2_tree(top: Path, **files: str) -> Path:
    """A picture of a version 2 group: plain files under the kernel's names."""
    top.mkdir(parents=True, exist_ok=True)
    defaults = {
        "cgroup.procs": "",
        "cgroup.controllers": "cpu memory pids io",
        "cgroup.subtree_control": "",
    }
    for name, text in {**defaults, **files}.items():
        (top / name).write_text(text)
    return top


def proc_with(folder: Path, mount: Path, own: str) -> Path:
    folder.mkdir()
    (folder / "mountinfo").write_text(f"30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    (folder / "cgroup").write_text(f"0::{own}\n")
    return folder


def test_version_two_uses_the_nearest_group_that_hands_controllers_down(tmp_path: Path) -> None:
    mount = v2_tree(tmp_path / "cg", **{"cgroup.subtree_control": "cpu memory pids"})
    slice_ = v2_tree(mount / "app.slice", **{"cgroup.subtree_control": "cpu memory pids"})
    v2_tree(slice_ / "term.scope", **{"cgroup.procs": "1\n2\n"})
    proc = proc_with(tmp_path / "proc", mount, "/app.slice/term.scope")
    found = cgroups.detect(proc=proc)
    assert found.v2 == slice_
    assert found.enforces() == {"cpu": True, "memory": True, "pids": True}


def test_version_two_hands_its_own_controllers_down_when_it_may(tmp_path: Path) -> None:
    mount = v2_tree(tmp_path / "cg")
    own = v2_tree(mount / "ours", **{"cgroup.procs": "41\n42\n"})
    cgroups.detect(proc=proc_with(tmp_path / "proc", mount, "/ours"), movable={41, 42})
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_version_two_limits_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    place = v2_tree(tmp_path / "cg")
    names = (
        "cpu.weight",
        "cpu.max",
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "pids.max",
    )
    group = place / "paddlecloud-r"
    v2_tree(group, **dict.fromkeys(names, ""))
    launch = a_launch(cpu_request=0.5, cpu_limit=2.0, memory_limit=MIB, pids_limit=9)
    made = cgroups.create(Cgroups(v2=place, v2_controllers=cgroups.CONTROLLERS), launch)
    assert made.set == {"cpu", "memory", "pids"}
    got = [(group / name).read_text() for name in names]
    assert got == ["50", "200000 100000", str(MIB), "0", "1", "9"]


def test_a_limit_that_the_kernel_refuses_is_not_said_to_be_enforced(tmp_path: Path) -> None:
    place = v2_tree(tmp_path / "cg")
    launch = a_launch(memory_limit=MIB)
    made = cgroups.create(Cgroups(v2=place, v2_controllers=["memory"]), launch)
    assert made.v2 == place / "paddlecloud-r"
    assert made.set == set()
