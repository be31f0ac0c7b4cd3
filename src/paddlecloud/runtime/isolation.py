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

from paddlecloud.runtime.record import WORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TEMPORARY = "tmp"
OWN = (WORK, "mount", "output", "log", TEMPORARY, "home")
"""The directories of a replica that it sees and may write to."""
_SHARED_TEMPORARY = ("/tmp", "/var/tmp")
_SHARED_MEMORY = "/dev/shm"
_QUEUES = "/dev/mqueue"
_NOBODY = 65534

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWIPC = 0x0800_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION = 0x2008_0522
_MOST_CAPABILITIES = 64
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_OPEN = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)

# Like those of `processes`: the interpreter lock stays ours, for there is nobody to give it to.
_libc = ctypes.PyDLL(None, use_errno=True)


def enter(root: str, hide: Sequence[str] = ()) -> None:
    """Give the calling process the view of the replica in `root`; raises OSError if it cannot be.

    `hide` names what else must not be seen: the server's own places, where it is on this machine.
    """
    _leave_the_others()
    own = {name: os.open(f"{root}/{name}", _OPEN) for name in OWN if _is_there(f"{root}/{name}")}
    cover = cover_of(root, hide, _passable)
    _change("/", put=_ATTR_RDONLY | _ATTR_NOSUID, recursive=True)
    for path in hide:
        if not _is_below(path, cover) and not _is_below(cover, path):
            _hide(path)
    for place in _SHARED_TEMPORARY:
        _own_temporary(place, own.get(TEMPORARY))
    _own_memory()
    _show_again(root, cover, own)
    _own_processes()


def become(uid: int) -> None:
    """Be this user, with its own group and no other, and nothing left that could be more."""
    for capability in range(_MOST_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    _leave_the_keyring()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), nothing))
    _libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))
    os.umask(0o077)


def possible() -> bool:
    """Whether replicas can be kept apart on this machine; tried out in a child. Needs a process
    without threads."""
    if not hasattr(os, "setresuid") or os.geteuid() != 0:
        return False
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _try(writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read()
    with suppress(ChildProcessError):  # in the zygote the kernel buries children by itself
        os.waitpid(pid, 0)
    return said == b"yes"


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


def _passable(path: str) -> bool:
    return bool(os.stat(path).st_mode & 0o001)  # noqa: PTH116 - see `_hide`


def _leave_the_others() -> None:
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC))
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def _hide(path: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112 - every start comes through here; a Path costs more
        _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV | 1, "mode=0000,size=4k")
    elif os.path.exists(path):  # noqa: PTH110 - as above
        _mount("/dev/null", path, None, _MS_BIND)


def _own_temporary(place: str, source: int | None) -> None:
    if not _is_there(place):
        return
    if source is None:
        _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
        return
    _mount(f"/proc/self/fd/{source}", place, None, _MS_BIND)
    _change(place, put=_ATTR_NODEV, take=_ATTR_RDONLY)


def _own_memory() -> None:
    if _is_there(_SHARED_MEMORY):
        _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    if _is_there(_QUEUES):
        _mount("mqueue", _QUEUES, "mqueue", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _show_again(root: str, cover: str, own: Mapping[str, int]) -> None:
    os.umask(0o022)
    # It is there, but for a replica below /tmp, where we look at another one now.
    os.makedirs(cover, exist_ok=True)  # noqa: PTH103 - see `_hide`
    _mount("tmpfs", cover, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=256k")
    for name, source in own.items():
        os.makedirs(f"{root}/{name}")  # noqa: PTH103 - see `_hide`
        _mount(f"/proc/self/fd/{source}", f"{root}/{name}", None, _MS_BIND)
    _change(cover, put=_ATTR_NODEV, take=_ATTR_RDONLY, recursive=True)
    _change(cover, put=_ATTR_RDONLY)


def _own_processes() -> None:
    # By its word: kernels that know only its number apply it to every /proc of the machine.
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _mount("proc", "/proc", "proc", flags, "hidepid=invisible")


def _leave_the_keyring() -> None:
    """Keys that whoever started the agent holds for its session are not the replica's."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _try(writer: int) -> None:
    with suppress(OSError):
        _leave_the_others()
        _change("/", put=_ATTR_RDONLY | _ATTR_NOSUID, recursive=True)
        _own_memory()
        _own_processes()
        become(_NOBODY)
        if not _is_there("/proc/1") and _is_there("/proc/self"):
            os.write(writer, b"yes")


def _is_there(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - see `_hide`


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(done, target)


def _change(path: str, *, put: int = 0, take: int = 0, recursive: bool = False) -> None:
    """Change what the mount at `path` allows, and those below it if asked."""
    attributes = (ctypes.c_uint64 * 4)(put, take, 0, 0)
    done = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_long(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_long(_AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(32),
    )
    _check(done, path)


def _check(result: int, path: str = "") -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)
