"""A replica under a user of its own, with a view of the machine in which nobody else is.

A uid of its own keeps it away from other people's processes and from files that are private. The
rest is done by a mount namespace: everything is read-only and gives no rights (nosuid); the only
places to write are the replica's own directories, its own /tmp and its own /dev/shm; /proc shows
no process of another user; and over the agent's directories lies an empty one in which only the
replica's own are found again, at the same paths as before. So no directory of ours is opened to
anybody: the real ones stay private to the agent.

Everything here happens in the forked child between fork and exec, as root until `become`. It needs
Linux 5.12 and the rights of root; `possible` finds out by trying. Not done here: the network, which
all replicas of a machine share.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from paddlecloud.agent.replica.records import ROOT, STACKS, TOKEN, WORK
from paddlecloud.agent.sandbox.mounts import (
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    CLONE_NEWIPC,
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    change,
    check,
    leave_the_others,
    libc,
    mount,
)
from paddlecloud.agent.supervisor.processes import works_in_a_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TEMPORARY = "tmp"
OWN = (WORK, "mount", "output", "log", TEMPORARY, "home", ROOT, STACKS, TOKEN)
"""The directories of a replica that it sees and may write to."""
NOTHING: Mapping[str, bool] = {}
_SHARED_TEMPORARY = ("/tmp", "/var/tmp")
_SHARED_MEMORY = "/dev/shm"
_QUEUES = "/dev/mqueue"
_NOBODY = 65534
_ENDED_FIRST = b"500"
"""As if it used half of the machine's memory more than it does."""

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION = 0x2008_0522
_MOST_CAPABILITIES = 64
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_OPEN = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)


def enter(
    root: str,
    hide: Sequence[str] = (),
    *,
    also: Mapping[str, bool] = NOTHING,
    rooted: bool = False,
) -> None:
    """Give the calling process the view of the replica in `root`; raises OSError if it cannot be.

    `hide` names what else must not be seen: the server's own places, where it is on this machine.
    `also` names further directories of ours that stay in sight, and whether they may be written.
    `rooted`: the process has a root of its own already (see `rootfs`), which stays writable.
    """
    leave_the_others(CLONE_NEWNS | CLONE_NEWIPC)
    own = [f"{root}/{name}" for name in OWN if _is_there(f"{root}/{name}")]
    kept = {path: os.open(path, _OPEN) for path in (*own, *also)}
    covers = _topmost(cover_of(path, hide, _passable) for path in (root, *also))
    change("/", put=ATTR_RDONLY | ATTR_NOSUID, recursive=True)
    if rooted:
        change("/", put=ATTR_NODEV, take=ATTR_RDONLY)
    for path in hide:
        if not any(_is_below(path, cover) or _is_below(cover, path) for cover in covers):
            _hide(path)
    for place in _SHARED_TEMPORARY:
        _own_temporary(place, kept.get(f"{root}/{TEMPORARY}"))
    _own_memory()
    for cover in covers:
        _show_again(cover, {path: fd for path, fd in kept.items() if _is_below(path, cover)})
    for path, writable in also.items():
        if not writable:
            change(path, put=ATTR_RDONLY)
    _own_processes()


def become(uid: int) -> None:
    """Be this user, with its own group and no other, and nothing left that could be more."""
    _be_ended_first()
    for capability in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    _leave_the_keyring()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    nothing = (ctypes.c_uint32 * 6)()
    check(libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), nothing))
    libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))
    os.umask(0o077)


def possible() -> bool:
    """Whether replicas can be kept apart on this machine; tried out in a child. Needs a process
    without threads."""
    if not hasattr(os, "setresuid") or os.geteuid() != 0:
        return False
    return works_in_a_child(_try)


def cover_of(root: str, hide: Sequence[str], passable: Callable[[str], bool]) -> str:
    """The directory above `root` over which an empty one is laid.

    The topmost that is not `passable` for other users, so that what lies below can be shown again
    without giving them any right; at least the one in which all replicas lie. One above it that is
    to be hidden is taken instead.
    """
    parts = root.strip("/").split("/")
    above = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]
    closed = (path for path in above if path in hide or not passable(path))
    return next(closed, above[-1])


def _topmost(covers: Iterable[str]) -> list[str]:
    """Those of them that no other one covers."""
    found = set(covers)
    return sorted(c for c in found if not any(c != o and _is_below(c, o) for o in found))


def _passable(path: str) -> bool:
    return bool(os.stat(path).st_mode & 0o001)  # noqa: PTH116 - see `_hide`


def _hide(path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112 - every start comes through here; a Path costs more
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0000,size=4k")
    elif os.path.exists(path):  # noqa: PTH110 - as above
        mount("/dev/null", path, None, MS_BIND)


def _own_temporary(place: str, source: int | None) -> None:
    if not _is_there(place):
        return
    if source is None:
        mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        return
    mount(f"/proc/self/fd/{source}", place, None, MS_BIND)
    change(place, put=ATTR_NODEV, take=ATTR_RDONLY)


def _own_memory() -> None:
    if _is_there(_SHARED_MEMORY):
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    if _is_there(_QUEUES):
        mount("mqueue", _QUEUES, "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _show_again(cover: str, kept: Mapping[str, int]) -> None:
    os.umask(0o022)
    # It is there, but for a replica below /tmp, where we look at another one now.
    os.makedirs(cover, exist_ok=True)  # noqa: PTH103 - see `_hide`
    mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256k")
    for path, source in kept.items():
        os.makedirs(path)  # noqa: PTH103 - see `_hide`
        mount(f"/proc/self/fd/{source}", path, None, MS_BIND)
    change(cover, put=ATTR_NODEV, take=ATTR_RDONLY, recursive=True)
    change(cover, put=ATTR_RDONLY)


def _own_processes() -> None:
    # By its word: kernels that know only its number apply it to every /proc of the machine.
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", "/proc", "proc", flags, "hidepid=invisible")


def _be_ended_first() -> None:
    """When the machine runs out of memory the kernel ends jobs before the server and the agent. Set
    by root, so the job cannot take it back."""
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, _ENDED_FIRST)
        finally:
            os.close(fd)


def _leave_the_keyring() -> None:
    """Keys that whoever started the agent holds for its session are not the replica's."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _try() -> bool:
    leave_the_others(CLONE_NEWNS | CLONE_NEWIPC)
    change("/", put=ATTR_RDONLY | ATTR_NOSUID, recursive=True)
    _own_memory()
    _own_processes()
    become(_NOBODY)
    return not _is_there("/proc/1") and _is_there("/proc/self")


def _is_there(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see `_hide`


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
