"""Process trees through /proc: who descends from whom, and signals to all of them.

A snapshot of a tree is old when it is taken, so nothing here promises completeness: callers repeat
until the kernel says that no child is left. What is promised is that no stranger is hit: a process
is known by its pid and the moment of its start, and signalled through a pidfd after comparing both.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from paddlecloud.runtime import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def descendants(root: int) -> list[int]:
    """Every process below `root`, parents before children, without `root` itself."""
    return list(_below(root))


def signal_descendants(root: int, number: int) -> int:
    """Send a signal once to each process below `root`; how many got it."""
    return sum(_signal(pid, start, number) for pid, start in _below(root).items())


def kill_trees(roots: Iterable[int]) -> None:
    """Kill `roots` and what is below them, though nobody adopts what they leave behind.

    All are halted first, until no new one appears: a process killed in between would give its
    children to init, where nobody finds them again, and a parent would comment on its child's end.
    """
    tops = {pid: start for pid in roots if (start := linux.start_time(pid)) is not None}
    halted: dict[int, int] = {}
    found = tops
    while found:
        for pid, start in found.items():
            _signal(pid, start, signal.SIGSTOP)
        halted |= found
        below = {pid: start for top in tops for pid, start in _below(top).items()}
        found = {pid: start for pid, start in below.items() if halted.get(pid) != start}
    for pid, start in halted.items():
        _signal(pid, start, signal.SIGKILL)


def kill_groups(root: int) -> None:
    """Kill every process group in which a process below `root` is, but not our own.

    The kernel does a group in one step that no fork slips through, so this ends a fork bomb that
    a walk from process to process would run after. Meant for a `root` whose descendants live in
    sessions of their own: then every member of their groups is theirs.
    """
    groups = {_group(pid) for pid in descendants(root)} - {0, os.getpgrp()}
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def marked(marker: str) -> list[int]:
    """The processes whose environment, at their exec, held `marker` ("NAME=value")."""
    wanted = marker.encode()
    return [pid for pid in processes() if wanted in _environment(pid)]


def processes() -> list[int]:
    """Every pid there is now; none where there is no /proc."""
    with suppress(OSError):
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def alive(pid: int) -> bool:
    """It exists and is not a zombie."""
    fields = linux.stat_fields(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


def _below(root: int) -> dict[int, int]:
    """From pid to start time, parents before children."""
    children = _children if Path("/proc/thread-self/children").exists() else _scanned()
    found: dict[int, int] = {}
    layer = [root]
    while layer:
        below = {pid: parent for parent in layer for pid in children(parent)}
        layer = [pid for pid in below if pid not in found and pid != root]
        for pid in layer:
            fields = linux.stat_fields(pid)
            if fields is not None and int(fields[1]) in (below[pid], root):
                found[pid] = int(fields[19])
    return found


def _children(pid: int) -> Iterable[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in _listed(thread)]
    except FileNotFoundError:
        return []


def _listed(thread: Path) -> list[bytes]:
    try:
        return (thread / "children").read_bytes().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _scanned() -> Callable[[int], Iterable[int]]:
    """The same question for kernels built without the `children` files."""
    below: dict[int, list[int]] = {}
    for pid in processes():
        parent = _parent(pid)
        if parent is not None:
            below.setdefault(parent, []).append(pid)
    return lambda pid: below.get(pid, [])


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _signal(pid: int, start: int, number: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if linux.start_time(pid) != start:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _group(pid: int) -> int:
    fields = linux.stat_fields(pid)
    return int(fields[2]) if fields else 0


def _parent(pid: int) -> int | None:
    fields = linux.stat_fields(pid)
    return int(fields[1]) if fields else None
