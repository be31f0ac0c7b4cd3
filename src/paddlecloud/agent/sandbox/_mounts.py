"""System calls for mounts and namespaces that Python does not offer.

Used by a forked child between fork and exec, so each is one plain call that raises OSError.
`isolation`, `rootfs` and `overlay` decide which of them are made.
"""

from __future__ import annotations

import ctypes
import errno
import os

CLONE_NEWNS = 0x0002_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MNT_DETACH = 2

# Keeps the interpreter lock: a forked child has no other thread.
libc = ctypes.PyDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Enter new namespaces, mounts among them; what is mounted later stays inside."""
    check(libc.unshare(flags))
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    check(done, target)


def set_attributes(path: str, *, on: int = 0, off: int = 0, recursive: bool = False) -> None:
    """Set and clear attributes of the mount at `path`, and of those below it. Needs Linux 5.12."""
    attributes = (ctypes.c_uint64 * 4)(on, off, 0, 0)
    done = libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_long(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_long(_AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(32),
    )
    check(done, path)


def pivot(place: str) -> None:
    """Make the mount at `place` the root of the calling process, and unmount the old one."""
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), place)
    os.chdir(place)
    # The old root is then mounted over the new one, and unmounted from there.
    check(libc.syscall(ctypes.c_long(number), b".", b"."), place)
    check(libc.umount2(b".", _MNT_DETACH), place)
    os.chdir("/")


def check(result: int, path: str = "") -> None:
    """Raise OSError with errno if the result of the last call is a failure."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path or None)
