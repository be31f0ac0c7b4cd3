"""Runs a replica under a uid of its own, in a mount namespace that hides other users.

The uid keeps it away from other users' processes and private files. In the mount namespace all is
read-only and nosuid; writable are only the replica's own directories, its own /tmp and its own
/dev/shm; /proc shows no process of another user; and the agent's directories are covered by an
empty tmpfs in which only the replica's own are mounted, at the same paths as before. So no
directory of the agent has to be opened to other users.

All of this happens in the forked child between fork and exec, as root until `become`. It needs
Linux 5.12 and root; `possible` finds out by trying. The network is not isolated: all replicas of a
machine share it.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

from paddlecloud.agent.replica.records import ROOT, SECRETS, STACKS, TOKEN, WORK
from paddlecloud.agent.sandbox._mounts import (
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
    check,
    libc,
    mount,
    set_attributes,
    unshare,
)
from paddlecloud.agent.supervisor.processes import works_in_a_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TEMPORARY = "tmp"
OWN = (WORK, "mount", "output", "log", TEMPORARY, "home", ROOT, STACKS, TOKEN, SECRETS)
"""The directories of a replica that are visible and writable."""
NOTHING: Mapping[str, bool] = {}
_SHARED_TEMPORARY = ("/tmp", "/var/tmp")
_SHARED_MEMORY = "/dev/shm"
_QUEUES = "/dev/mqueue"
_UNPRIVILEGED_UID = 65534
_OOM_SCORE = b"500"
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
    """Put the calling process into the mount namespace of the replica in `root`. Raises OSError.

    `hide` lists what else must be hidden: the server's directories, if it is on this machine.
    `also` lists further directories that stay visible, and whether they are writable. `rooted`: the
    process has a root of its own already (see `rootfs`), which stays writable.
    """
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    own = [f"{root}/{name}" for name in OWN if _is_there(f"{root}/{name}")]
    kept = {path: os.open(path, _OPEN) for path in (*own, *also)}
    found = {cover_of(path, hide, _passable) for path in (root, *also)}
    covers = sorted(c for c in found if not any(c != o and _is_below(c, o) for o in found))
    set_attributes("/", on=ATTR_RDONLY | ATTR_NOSUID, recursive=True)
    if rooted:
        set_attributes("/", on=ATTR_NODEV, off=ATTR_RDONLY)
    for path in hide:
        if not any(_is_below(path, cover) or _is_below(cover, path) for cover in covers):
            _hide(path)
    temporary = kept.get(f"{root}/{TEMPORARY}")
    for place in filter(_is_there, _SHARED_TEMPORARY):
        if temporary is None:
            mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
        else:
            mount(f"/proc/self/fd/{temporary}", place, None, MS_BIND)
            set_attributes(place, on=ATTR_NODEV, off=ATTR_RDONLY)
    _mount_shm()
    for cover in covers:
        _remount(cover, {path: fd for path, fd in kept.items() if _is_below(path, cover)})
    for path, writable in also.items():
        if not writable:
            set_attributes(path, on=ATTR_RDONLY)
    _mount_proc()


def become(uid: int) -> None:
    """Switch to this uid and gid for good, without capabilities or supplementary groups."""
    _be_oom_killed_first()
    for capability in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    keyctl = _KEYCTL.get(os.uname().machine)
    if keyctl is not None:
        # Keys of the session in which the agent was started are not for the replica.
        libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    nothing = (ctypes.c_uint32 * 6)()
    check(libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), nothing))
    libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))
    os.umask(0o077)


def possible() -> bool:
    """Whether replicas can be isolated on this machine; tried in a child. Needs a process without
    threads."""
    if not hasattr(os, "setresuid") or os.geteuid() != 0:
        return False
    return works_in_a_child(_try)


def cover_of(root: str, hide: Sequence[str], passable: Callable[[str], bool]) -> str:
    """The directory above `root` that is covered by an empty one.

    The topmost that is not `passable` for other users, so that what lies below can be mounted again
    without giving them any permission; at least the parent of all replicas. A directory above it
    that has to be hidden is taken instead.
    """
    parts = root.strip("/").split("/")
    above = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]
    closed = (path for path in above if path in hide or not passable(path))
    return next(closed, above[-1])


def _passable(path: str) -> bool:
    return bool(os.stat(path).st_mode & 0o001)  # noqa: PTH116 - see `_hide`


def _hide(path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112 - every start comes through here; a Path costs more
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0000,size=4k")
    elif os.path.exists(path):  # noqa: PTH110 - as above
        mount("/dev/null", path, None, MS_BIND)


def _mount_shm() -> None:
    if _is_there(_SHARED_MEMORY):
        mount("tmpfs", _SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    if _is_there(_QUEUES):
        mount("mqueue", _QUEUES, "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _remount(cover: str, kept: Mapping[str, int]) -> None:
    os.umask(0o022)
    # It exists, except for a replica below /tmp, where another /tmp is mounted now.
    os.makedirs(cover, exist_ok=True)  # noqa: PTH103 - see `_hide`
    mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256k")
    for path, source in kept.items():
        os.makedirs(path)  # noqa: PTH103 - see `_hide`
        mount(f"/proc/self/fd/{source}", path, None, MS_BIND)
    set_attributes(cover, on=ATTR_NODEV, off=ATTR_RDONLY, recursive=True)
    set_attributes(cover, on=ATTR_RDONLY)


def _mount_proc() -> None:
    # By name: kernels that know only the number apply it to every /proc of the machine.
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("proc", "/proc", "proc", flags, "hidepid=invisible")


def _be_oom_killed_first() -> None:
    """When the machine runs out of memory the kernel kills jobs before the server and the agent.
    Set by root, so the job cannot undo it."""
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, _OOM_SCORE)
        finally:
            os.close(fd)


def _try() -> bool:
    unshare(CLONE_NEWNS | CLONE_NEWIPC)
    set_attributes("/", on=ATTR_RDONLY | ATTR_NOSUID, recursive=True)
    _mount_shm()
    _mount_proc()
    become(_UNPRIVILEGED_UID)
    return not _is_there("/proc/1") and _is_there("/proc/self")


def _is_there(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see `_hide`


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
