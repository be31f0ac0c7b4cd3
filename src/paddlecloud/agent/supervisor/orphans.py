"""Finds the processes that a dead supervisor left behind, also those that left its process tree.

The supervisors of a machine (of replicas, and of `exec` commands) are subreapers: while one lives,
every process that it started stays below it. When one is killed, its processes become children of
the zygote, which is a subreaper too and knows which children it forked itself: all others are
orphans. Replicas with a uid of their own are found by that uid as well, also after the zygote died:
a process of the uid that has no supervisor above it is an orphan.

A process that forks and exits all the time has another pid at each scan. Below the zygote it is
found all the same: at every moment the kernel's list of children has it or its successor.
"""

from __future__ import annotations

import os
from pathlib import Path

from paddlecloud.agent.supervisor import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERVISOR = "pc-supervisor"
EXEC = "pc-exec"
SUPERVISORS = frozenset({SUPERVISOR, EXEC, "pc-monitor", "pc-beside"})
"""Process names of supervisors, those of the previous version too. Only compared for processes of
another user than the one that is searched for, so a job cannot pass for one by taking the name."""

_TRIES = 20


class _Process:
    __slots__ = ("name", "parent", "start", "uids")

    def __init__(self, *, name: str, parent: int, start: int, uids: frozenset[int]) -> None:
        self.name = name
        self.parent = parent
        self.start = start
        self.uids = uids
        """Real, effective, saved, and of the file system."""


def kill_inherited(forked: Mapping[int, int]) -> list[int]:
    """Kill every child of this process that it did not fork itself, and all below it. Returns those
    that the last scan found. For the zygote: `forked` has the start time of each pid."""
    found: list[int] = []
    for _ in range(_TRIES):
        # One that has ended since it was listed has no start time.
        found = [
            pid
            for pid in processes.children(os.getpid())
            if pid not in forked or processes.start_time(pid) not in (None, forked[pid])
        ]
        if not found:
            break
        processes.kill_groups_of(found)
        processes.kill_trees(found)
    return found


def of_user(uid: int) -> tuple[list[int], list[int]]:
    """The processes of this user that have no supervisor above them; and those of which that is not
    known, because a parent ended during the scan."""
    table = {pid: one for pid in processes.pids() if (one := _inspect(pid)) is not None}
    found, unclear = [], []
    for pid, one in table.items():
        if uid in one.uids:
            top = _first_of_another_user(one, uid, table)
            if top is None:
                unclear.append(pid)
            elif top.name not in SUPERVISORS:
                found.append(pid)
    return found, unclear


def _first_of_another_user(
    one: _Process, uid: int, table: Mapping[int, _Process]
) -> _Process | None:
    """The nearest ancestor that is not of this user; None if the chain of parents is broken."""
    while uid in one.uids:
        above = table.get(one.parent)
        # A reused pid belongs to a younger process, which is not the parent.
        if above is None or above.start > one.start:
            return None
        one = above
    return one


def _inspect(pid: int) -> _Process | None:
    """None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    # Not the owner of /proc/<pid>, which is root for a process that is not dumpable.
    _, _, uids = status.partition(b"\nUid:")
    name, _, rest = text.partition(b" (")[2].rpartition(b") ")
    fields = rest.split()
    if fields[0] in (b"Z", b"X"):
        return None
    return _Process(
        name=name.decode("utf-8", "replace"),
        parent=int(fields[1]),
        start=int(fields[19]),
        uids=frozenset(int(word) for word in uids.partition(b"\n")[0].split()),
    )
