"""Reading the kernel's description of control groups, as text."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox.cgroups import Cgroups, ceiling
from paddlecloud.agent.server_link.poll import capacity
from paddlecloud.model.cgroup_limits import parse_membership, parse_mounts
from paddlecloud.server.settings import Settings
from paddlecloud.server.settings.check_command import can_limit_memory, check

HYBRID = """\
25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
29 25 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 /../inner /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


def test_controllers_that_share_a_tree_share_a_mount() -> None:
    mounts = parse_mounts(HYBRID)
    assert mounts["cpu"] == mounts["cpuacct"] == ("/sys/fs/cgroup/cpu,cpuacct", "/")
    assert mounts["memory"] == ("/sys/fs/cgroup/memory", "/")
    assert mounts[""] == ("/sys/fs/cgroup/unified", "/")


def test_version_two_alone_with_a_blank_in_its_path() -> None:
    assert parse_mounts(UNIFIED) == {"": ("/sys/fs/my cgroup", "/../inner")}


def test_memberships_by_controller() -> None:
    text = "12:cpu,cpuacct:/user.slice\n3:name=systemd:/user.slice/x:y\n0::/user.slice/s.scope\n"
    own = parse_membership(text)
    assert own["cpu"] == own["cpuacct"] == "/user.slice"
    assert own["name=systemd"] == "/user.slice/x:y"
    assert own[""] == "/user.slice/s.scope"


def test_a_machine_without_groups_enforces_nothing() -> None:
    assert Cgroups().enforces() == {"cpu": False, "memory": False, "pids": False}


def picture(folder: Path, kind: str, own: str, files: dict[str, str], root: str = "/") -> Path:
    """A machine with one tree of groups; where its description of itself is."""
    tree, name = folder / "tree", "" if kind == "cgroup2" else "cpu,memory"
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (folder / "mountinfo").write_text(f"30 23 0:26 {root} {tree} rw - {kind} {kind} rw,{name}\n")
    (folder / "cgroup").write_text(f"1:{name}:{own}\n")
    return folder


@pytest.mark.parametrize(
    ("kind", "files", "want"),
    [
        ("cgroup", {"agent/cgroup.procs": ""}, True),
        ("cgroup", {}, False),
        ("cgroup2", {"agent/cgroup.controllers": "cpu memory pids\n"}, True),
        ("cgroup2", {"agent/cgroup.controllers": "cpu\n"}, False),
        ("cgroup2", {}, False),
    ],
)
def test_server_check_knows_whether_memory_can_be_limited(
    tmp_path: Path, kind: str, files: dict[str, str], want: bool
) -> None:
    assert can_limit_memory(picture(tmp_path, kind, "/agent", files)) is want


def test_server_check_warns_a_team_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddlecloud.server.settings.check_command.can_limit_memory", lambda: False)
    for is_team in (False, True):
        found = check(Settings(home=tmp_path, team=is_team), {}, datetime.now(UTC))
        assert ("memory" in [each.subject for each in found]) is is_team


def test_the_least_of_all_groups_above_is_what_there_is(tmp_path: Path) -> None:
    files = {
        "pod/agent/cpu.max": "max 100000\n",
        "pod/agent/memory.max": "8589934592\n",
        "pod/cpu.max": "250000 100000\n",
        "pod/memory.max": "4294967296\n",
        "memory.max": "max\n",
        "other/memory.max": "1\n",
    }
    assert ceiling(proc=picture(tmp_path, "cgroup2", "/pod/agent", files)) == (2.5, 4 * 2**30)


def test_version_one_says_it_in_other_files(tmp_path: Path) -> None:
    files = {
        "cpu.cfs_quota_us": "-1\n",
        "cpu.cfs_period_us": "100000\n",
        "slice/cpu.cfs_quota_us": "200000\n",
        "slice/cpu.cfs_period_us": "100000\n",
        "slice/memory.limit_in_bytes": "4294967296\n",
        "memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert ceiling(proc=picture(tmp_path, "cgroup", "/slice", files)) == (2.0, 4 * 2**30)


def test_in_a_container_the_own_group_is_the_top_of_what_is_seen(tmp_path: Path) -> None:
    files = {"cpu.max": "150000 100000\n", "memory.max": "1048576\n"}
    pod = picture(tmp_path, "cgroup2", "/kubepods/pod/one", files, root="/kubepods/pod/one")
    assert ceiling(proc=pod) == (1.5, 2**20)


@pytest.mark.parametrize("files", [{}, {"cpu.max": "max 100000\n", "memory.max": "max\n"}])
def test_where_nothing_is_limited_the_machine_is_what_there_is(
    tmp_path: Path, files: dict[str, str]
) -> None:
    folder = picture(tmp_path, "cgroup2", "/", files)
    assert ceiling(proc=folder) == (None, None)
    assert ceiling(proc=tmp_path / "nowhere") == (None, None)
    whole = capacity(proc=folder)
    assert whole["cpu"] == float(len(os.sched_getaffinity(0)))
    assert whole["memory"] > 2**20


def test_an_agent_offers_what_its_pod_has(tmp_path: Path) -> None:
    files = {"cpu.max": "50000 100000\n", "memory.max": "1048576\n"}
    offered = capacity(proc=picture(tmp_path, "cgroup2", "/", files))
    assert offered == {"cpu": 1.0, "memory": 2**20, "gpu": 0}, "less than a CPU is offered as one"
