"""Reading the kernel's description of control groups, as text."""

from __future__ import annotations

from paddlecloud.runtime.cgroups import Cgroups, parse_membership, parse_mounts

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
