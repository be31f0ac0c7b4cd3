"""Processes from /proc, signals by pidfd, subreapers, and a fork into a control group.

A snapshot of a process tree is out of date when it is taken, so nothing here promises completeness:
callers repeat until the kernel has no child left. What is promised is that no other
process is hit: a process is identified by pid and start time, and signalled through a pidfd after
comparing both.

On other systems than Linux there is no subreaper, no clone into a cgroup, no boot id and no /proc.
The constants are those of the kernel's headers, the same on every architecture.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from resource import struct_rusage

LINUX = sys.platform == "linux"

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SYS_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x2_0000_0000
_SIGCHLD = 17
_PF_EXITING = 0x4

# PyDLL keeps the interpreter lock during the call: the child of a clone must own it at once.
_libc = ctypes.PyDLL(None, use_errno=True)


def works_in_a_child(attempt: Callable[[], bool]) -> bool:
    """The result of `attempt` in a forked child, which alone it changes; False if it raises
    OSError. Needs a process without threads."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with suppress(OSError):
                if attempt():
                    os.write(writer, b"yes")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    with suppress(ChildProcessError):  # in the zygote the kernel reaps children
        os.waitpid(pid, 0)
    return answer == b"yes"


def become_subreaper() -> None:
    """Orphans among our descendants become our children from now on, not init's."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0))


def set_name(name: str) -> None:
    """The name that `ps` and `top` show (15 letters at most)."""
    if LINUX:
        _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def fork_into(cgroup_fd: int) -> int:
    """Like os.fork, with the child born in a cgroup of version 2.

    Moving a running process waits for every CPU of the machine (5 to 25 ms when idle); being born
    there costs nothing. Python's own hooks around fork do not run, which is fine while there is one
    thread and the child goes straight on to exec.
    """
    args = ctypes.create_string_buffer(
        struct.pack("=11Q", _CLONE_INTO_CGROUP, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, cgroup_fd)
    )
    return _check(_libc.syscall(ctypes.c_long(_SYS_CLONE3), args, ctypes.c_size_t(88)))


@functools.cache
def boot_id() -> str:
    """Changes with every boot, so that old pids are not mistaken for new ones."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; with the pid it identifies a process."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def stat_fields(pid: int) -> list[bytes] | None:
    """/proc/<pid>/stat from the third field (state) on; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (OSError, ValueError):
        return None
    # The name in brackets may hold blanks and brackets of its own.
    return text[text.rindex(b")") + 2 :].split()


def oom_kills() -> int:
    """How often the kernel killed for memory since boot, on the whole machine."""
    with suppress(OSError):
        _, found, rest = Path("/proc/vmstat").read_bytes().partition(b"\noom_kill ")
        if found:
            return int(rest.split(None, 1)[0])
    return 0


class Used:
    """CPU and memory of reaped children, each with everything that it had reaped itself."""

    __slots__ = ("cpu_seconds", "max_rss")

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.max_rss = 0
        """In the system's own unit."""

    def add(self, usage: struct_rusage) -> None:
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss = max(self.max_rss, usage.ru_maxrss)


def reap(main: int, used: Used | None = None) -> tuple[int | None, bool]:
    """Reap every dead child: the status of `main` if it was among them, and whether any is left."""
    status = None
    while True:
        try:
            pid, ended, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if used is not None:
            used.add(usage)
        if pid == main:
            status = ended


def descendants(root: int) -> list[int]:
    """Every process below `root`, parents before children, without `root` itself."""
    return list(_below(root))


def signal_descendants(root: int, number: int, *, group: int = 0) -> int:
    """Send a signal once to each process below `root`; how many got it.

    Those of the process group `group` get it in one step of the kernel: one by one, a child that is
    forked at this very moment would not be on the list.
    """
    below = _below(root)
    together = {pid for pid in below if group and _group(pid) == group}
    if together:
        with suppress(OSError):
            os.killpg(group, number)
    alone = ((pid, start) for pid, start in below.items() if pid not in together)
    return len(together) + sum(_signal(pid, start, number) for pid, start in alone)


def kill_trees(roots: Iterable[int]) -> None:
    """Kill `roots` and everything below them, without a subreaper that inherits their children.

    All are stopped first, until no new one appears: a process killed in between would leave its
    children to init, where they are not found again, and a parent could react to its child's end.
    """
    tops = {pid: start for pid in roots if (start := start_time(pid)) is not None}
    stopped: dict[int, int] = {}
    found = tops
    while found:
        for pid, start in found.items():
            _signal(pid, start, signal.SIGSTOP)
        stopped |= found
        below = {pid: start for top in tops for pid, start in _below(top).items()}
        found = {pid: start for pid, start in below.items() if stopped.get(pid) != start}
    for pid, start in stopped.items():
        _signal(pid, start, signal.SIGKILL)


def kill_groups(root: int) -> None:
    """Kill every process group in which a process below `root` is, but not our own."""
    kill_groups_of(descendants(root))


def kill_groups_of(members: Iterable[int]) -> None:
    """Kill every process group in which one of these is, but not our own.

    The kernel kills a group in one step that no fork escapes, so this ends a fork bomb that a walk
    from process to process would run after. Meant for processes in sessions of their own: then
    every member of their groups is theirs.
    """
    groups = {_group(pid) for pid in members} - {0, os.getpgrp()}
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def marked(marker: str) -> list[int]:
    """The processes whose environment, at their exec, held `marker` ("NAME=value")."""
    found = []
    for pid in pids():
        with suppress(OSError):
            if marker.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def pids() -> list[int]:
    """Every pid there is now; none where there is no /proc."""
    with suppress(OSError):
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def alive(pid: int) -> bool:
    """It exists and is not a zombie."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


def is_ending(pid: int, start: int | None) -> bool:
    """Whether the process with this pid and start time is exiting: its files are closed, or will
    be, but its children do not have another parent yet."""
    fields = stat_fields(pid)
    if fields is None or int(fields[19]) != start:
        return False
    # A leader that is a zombie may still have threads.
    has_exited = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    return bool(int(fields[6]) & _PF_EXITING) and not has_exited


def children(pid: int) -> list[int]:
    """The children of this process now."""
    return list(_lister()(pid))


def _below(root: int) -> dict[int, int]:
    """From pid to start time, parents before children."""
    children = _lister()
    found: dict[int, int] = {}
    layer = [root]
    while layer:
        below = {pid: parent for parent in layer for pid in children(parent)}
        layer = [pid for pid in below if pid not in found and pid != root]
        for pid in layer:
            fields = stat_fields(pid)
            if fields is not None and int(fields[1]) in (below[pid], root):
                found[pid] = int(fields[19])
    return found


def _lister() -> Callable[[int], Iterable[int]]:
    return _children if Path("/proc/thread-self/children").exists() else _scanned()


def _children(pid: int) -> Iterable[int]:
    found: list[int] = []
    # It may end at any moment: before it is opened, or between that and the read.
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_bytes().split())
    return found


def _scanned() -> Callable[[int], Iterable[int]]:
    """The same for kernels that were built without the `children` files."""
    below: dict[int, list[int]] = {}
    for pid in pids():
        fields = stat_fields(pid)
        if fields is not None:
            below.setdefault(int(fields[1]), []).append(pid)
    return lambda pid: below.get(pid, [])


def _signal(pid: int, start: int, number: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != start:
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _group(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[2]) if fields else 0


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
