"""The submitted files of a replica as a layer that it cannot write to, below one of its own.

`work/` and `mount/` are overlays: what is submitted lies once on this machine, in a tree that all
replicas of that snapshot share (see `trees`), and what a replica changes goes to a directory of its
own. So its files cost two mounts however many they are, and no way leads from a replica to the
bytes of others.

Everything here happens in a forked child between fork and exec. Root needs the right to mount;
others take a user namespace in which they stay who they are, where directories that were submitted
cannot be renamed in one call (EXDEV, which `mv` and shutil know). `possible` finds out by trying.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress

from paddlecloud.agent.sandbox import mounts, rootfs
from paddlecloud.agent.supervisor.processes import works_in_a_child

DIRECTORY = "layers"
VIEWS = ("work", "mount")
NOTE = "note.json"
"""Lies beside a tree; whoever uses the tree holds it."""
_OPEN = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
#: Nothing of a replica's own has to survive a loss of power: no file is synced when it is copied.
#: Two names of one content stay two files (index=off).
_AS_ROOT = ("index=off,redirect_dir=on,volatile", "index=off,redirect_dir=on", "index=off")
_AS_ONESELF = ("index=off,userxattr,volatile", "index=off,userxattr")


def places(root: str) -> list[str]:
    """The directories, below an existing `root`, that `enter` needs; each after its parent."""
    below = [name for view in VIEWS for name in _own(root, view)]
    return [f"{root}/{DIRECTORY}", *below]


def enter(root: str, tree: str) -> None:
    """Let the calling process find `tree` in both views of the replica; OSError if it cannot be."""
    if os.geteuid() == 0:
        mounts.leave_the_others(mounts.CLONE_NEWNS)
    else:
        rootfs.leave_as_oneself()
    for view in VIEWS:
        _lay(tree, *_own(root, view), f"{root}/{view}")


def possible(root: str, tree: str) -> bool:
    """Whether `enter` works here: tried out in a child, with all that jobs do to their files.

    `tree` holds a file `file` and a directory `folder` that is not empty; `root` is laid out. Needs
    a process without threads.
    """
    if sys.platform != "linux":
        return False
    return works_in_a_child(lambda: _try(root, tree))


def hold(tree: str) -> int:
    """Keep a tree from being deleted for as long as the descriptor is open. OSError: it is gone."""
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
    """Where the changes to a view go, and what the kernel needs beside it."""
    upper = f"{root}/{DIRECTORY}/{view}"
    return upper, f"{upper}.scratch"


def _lay(lower: str, upper: str, scratch: str, target: str) -> None:
    fds = [os.open(path, _OPEN) for path in (lower, upper, scratch)]
    try:
        # By descriptors: names may hold the letters that separate options, and be long.
        low, up, work = (f"/proc/self/fd/{fd}" for fd in fds)
        _mount(f"lowerdir={low},upperdir={up},workdir={work}", target)
    finally:
        for fd in fds:
            os.close(fd)


def _mount(where: str, target: str) -> None:
    """With the best options that this kernel knows."""
    *better, last = _AS_ROOT if os.geteuid() == 0 else _AS_ONESELF
    for options in better:
        with suppress(OSError):
            mounts.mount("paddlecloud", target, "overlay", 0, f"{where},{options}")
            return
    mounts.mount("paddlecloud", target, "overlay", 0, f"{where},{last}")


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
