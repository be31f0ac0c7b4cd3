"""Finds the processes that a dead supervisor left behind, whatever they did to get out of sight.

The supervisors of a machine (`monitor`, `beside`) are subreapers: while one lives,
every process that it started stays below it. When one is killed, its processes become children of
the zygote, which is a subreaper too and knows which of its children it forked itself: all others
are orphans. Replicas with a uid of their own are found by that uid as well, also after the zygote
died: a process of the uid that has no supervisor above it is an orphan.

A process that forks and ends all the time is another one at each look. Below the zygote it is found
all the same: at every moment the kernel's list of children has it or its successor.
"""

from __future__ import annotations

import os
from pathlib import Path

from paddlecloud.agent.supervisor import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MONITOR = "pc-monitor"
BESIDE = "pc-beside"
SUPERVISORS = frozenset({MONITOR, BESIDE})
"""Names of supervisors. Only compared for processes of another user than the one that is searched
for, so a job cannot pass for one by taking the name."""

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
    """Kill every child of this process that it did not fork itself, and all below it; those that
    were there at the last look. For the zygote: `forked` has the start time of each pid."""
    found: list[int] = []
    for _ in range(_TRIES):
        found = [pid for pid in processes.children(os.getpid()) if not _is_one_of(forked, pid)]
        if not found:
            break
        processes.kill_groups_of(found)
        processes.kill_trees(found)
    return found


def of_user(uid: int) -> tuple[list[int], list[int]]:
    """The processes of this user that have no supervisor above them; and those of which it is not
    known, because a parent ended while they were looked at."""
    seen = {pid: one for pid in processes.pids() if (one := _look(pid)) is not None}
    found, unclear = [], []
    for pid, one in seen.items():
        if uid in one.uids:
            top = _first_of_another_user(one, uid, seen)
            if top is None:
                unclear.append(pid)
            elif top.name not in SUPERVISORS:
                found.append(pid)
    return found, unclear


def _is_one_of(forked: Mapping[int, int], pid: int) -> bool:
    """One that has ended since it was listed has no start time."""
    return pid in forked and processes.start_time(pid) in (None, forked[pid])


def _first_of_another_user(
    one: _Process, uid: int, seen: Mapping[int, _Process]
) -> _Process | None:
    """The nearest ancestor that is not of this user; None if the chain of parents is broken."""
    while uid in one.uids:
        above = seen.get(one.parent)
        # A pid that was used again belongs to a younger process, which is no parent of this one.
        if above is None or above.start > one.start:
            return None
        one = above
    return one


def _look(pid: int) -> _Process | None:
    """None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    # Not the owner of /proc/<pid>: that is root for a process that forbids to be dumped.
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
