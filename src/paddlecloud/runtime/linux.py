"""The few things of the kernel that Python has no name for.

Everything degrades on other systems: there is no subreaper, no clone into a cgroup, no boot id.
The constants are those of the kernel's headers, the same on every architecture.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

LINUX = sys.platform == "linux"

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SYS_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x2_0000_0000
_SIGCHLD = 17

# PyDLL keeps the interpreter lock during the call: the child of a clone must own it at once.
_libc = ctypes.PyDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on the orphans among our descendants become our children, not init's."""
    if LINUX:
        _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0))


def set_name(name: str) -> None:
    """The name that `ps` and `top` show (15 letters at most)."""
    if LINUX:
        _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def fork_into(cgroup_fd: int) -> int:
    """Like os.fork, with the child born in a cgroup of version 2.

    Moving a running process waits for every CPU of the machine (5 to 25 ms when idle); being born
    there costs nothing. Python's own hooks around fork do not run, which is fine as long as we
    have one thread and the child goes straight on to exec.
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
    """When the process began, in clock ticks since boot; with the pid it names one process."""
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


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
