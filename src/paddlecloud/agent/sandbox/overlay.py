"""Mounts `work/` and `mount/` of a replica as overlays over a shared tree of the submitted files.

The submitted files lie once on this machine, in a tree that all replicas of that snapshot share
(see `inputs/snapshot_tree`), and what a replica changes goes to a directory of its own. So its
files cost two mounts however many they are, and a replica cannot change the files of others.

All of this happens in a forked child between fork and exec. Root needs permission to mount; other
users take a user namespace in which they keep their uid, where submitted directories cannot be
renamed in one call (EXDEV, which `mv` and shutil handle). `possible` finds out by trying.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress

from paddlecloud.agent.sandbox import _mounts, rootfs
from paddlecloud.agent.supervisor.processes import works_in_a_child

DIRECTORY = "layers"
VIEWS = ("work", "mount")
NOTE = "note.json"
"""Lies beside a tree; every process that uses the tree holds a lock on it."""
_OPEN = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
#: Nothing in the upper layer has to survive a loss of power, so no file is synced when it is copied
#: (volatile). Two names of one blob stay two files (index=off).
_AS_ROOT = ("index=off,redirect_dir=on,volatile", "index=off,redirect_dir=on", "index=off")
_AS_USER = ("index=off,userxattr,volatile", "index=off,userxattr")


def places(root: str) -> list[str]:
    """The directories, below an existing `root`, that `enter` needs; each after its parent."""
    below = [name for view in VIEWS for name in _own(root, view)]
    return [f"{root}/{DIRECTORY}", *below]


def enter(root: str, tree: str) -> None:
    """Mount `tree` at both views of the replica, for the calling process. Raises OSError."""
    if os.geteuid() == 0:
        _mounts.unshare(_mounts.CLONE_NEWNS)
    else:
        rootfs.unshare_as_user()
    for view in VIEWS:
        _lay(tree, *_own(root, view), f"{root}/{view}")


def possible(root: str, tree: str) -> bool:
    """Whether `enter` works here: tried in a child, with what jobs do to their files.

    `tree` holds a file `file` and a directory `folder` that is not empty; `root` has the
    directories of `places`. Needs a process without threads.
    """
    if sys.platform != "linux":
        return False
    return works_in_a_child(lambda: _try(root, tree))


def hold(tree: str) -> int:
    """Keep a tree from being deleted while the descriptor is open. OSError: it is gone."""
    fd = os.open(note_of(tree), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    except OSError:
        os.close(fd)
        raise
    return fd


def note_of(tree: str) -> str:
    return f"{tree.rpartition('/')[0]}/{NOTE}"


def _own(root: str, view: str) -> tuple[str, str]:
    """The upper directory of a view, and the kernel's work directory beside it."""
    upper = f"{root}/{DIRECTORY}/{view}"
    return upper, f"{upper}.scratch"


def _lay(lower: str, upper: str, scratch: str, target: str) -> None:
    fds = [os.open(path, _OPEN) for path in (lower, upper, scratch)]
    try:
        # By descriptors: paths may be long, and contain the characters that separate options.
        low, up, work = (f"/proc/self/fd/{fd}" for fd in fds)
        where = f"lowerdir={low},upperdir={up},workdir={work}"
        # With the best options that this kernel supports.
        *better, last = _AS_ROOT if os.geteuid() == 0 else _AS_USER
        for options in better:
            with suppress(OSError):
                _mounts.mount("paddlecloud", target, "overlay", 0, f"{where},{options}")
                return
        _mounts.mount("paddlecloud", target, "overlay", 0, f"{where},{last}")
    finally:
        for fd in fds:
            os.close(fd)


def _try(root: str, tree: str) -> bool:
    enter(root, tree)
    work = f"{root}/{VIEWS[0]}"
    with open(f"{work}/file", "a") as file:  # noqa: PTH123 - no Path in a forked child
        file.write("changed")
    folder = f"{work}/folder"
    for name in os.listdir(folder):  # noqa: PTH208 - as above
        os.unlink(f"{folder}/{name}")  # noqa: PTH108 - as above
    os.rmdir(folder)  # noqa: PTH106 - as above
    os.mkdir(folder)  # noqa: PTH102 - as above
    size = os.stat(f"{tree}/file").st_size  # noqa: PTH116 - as above
    changed = os.stat(f"{work}/file").st_size  # noqa: PTH116 - as above
    emptied = not os.listdir(folder) and bool(os.listdir(f"{tree}/folder"))  # noqa: PTH208 - as above
    return changed > size and emptied
