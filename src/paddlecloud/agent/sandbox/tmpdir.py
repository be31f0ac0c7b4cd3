"""Short paths of temporary directories, and directories that ext4 spreads over the disk.

A unix socket's path has at most 107 bytes, so a replica whose TMPDIR is long gets a short symbolic
link to it. Paths are strings, see `workspace`.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

LONGEST = 107 - 34
"""Bytes of a TMPDIR; the rest of a socket's path is for the programs."""
_GET_FLAGS = 0x8008_6601
_SET_FLAGS = 0x4008_6602
_TOP_DIRECTORY = 0x0002_0000
"""The flag of `chattr +T`."""


def short(root: Path, target: str) -> str:
    """`target`, a directory of the replica in `root`, or a short link to it. Idempotent."""
    if len(os.fsencode(target)) <= LONGEST:
        return target
    beside, elsewhere = _links(str(root))
    if len(os.fsencode(beside)) <= LONGEST:
        return beside if _leads(beside, target) else target
    sweep(Path(elsewhere).parent)
    return elsewhere if _leads(elsewhere, target) else target


def remove_links(root: Path) -> None:
    """Remove the short links of the replica in `root`, which is deleted."""
    for link in _links(str(root)):
        with suppress(OSError):
            if f"{os.readlink(link)}/".startswith(f"{root}/"):  # noqa: PTH115 - see `workspace`
                os.unlink(link)  # noqa: PTH108 - see `workspace`


@cache
def sweep(place: Path) -> None:
    """Remove broken links, which a home leaves that was deleted as a whole."""
    with suppress(OSError):
        for link in place.iterdir() if _is_ours(str(place)) else ():
            if link.is_symlink() and not link.exists():
                link.unlink()


def _links(root: str) -> tuple[str, str]:
    name = f"{zlib.crc32(os.fsencode(root)):08x}"
    return f"{root.rsplit('/', 2)[0]}/t/{name}", f"/tmp/paddlecloud-{os.getuid()}/{name}"


def _leads(link: str, target: str) -> bool:
    """Whether `link`, created if it is missing, leads to `target` and lies in a directory of
    ours."""
    place = link.rpartition("/")[0]
    with suppress(OSError):
        try:
            os.symlink(target, link)  # noqa: PTH211 - see `workspace`
        except FileNotFoundError:
            Path(place).mkdir(0o700, exist_ok=True)
            os.symlink(target, link)  # noqa: PTH211 - see `workspace`
    with suppress(OSError):
        return _is_ours(place) and os.readlink(link) == target  # noqa: PTH115 - see `workspace`
    return False


def _is_ours(place: str) -> bool:
    """Whether no other user can write there."""
    about = os.lstat(place)
    own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return own and not about.st_mode & 0o022


def spread(directory: Path) -> None:
    """Let ext4 put the directories that are created in this one far from each other on the disk.

    Does nothing on other file systems.
    """
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _TOP_DIRECTORY))
        finally:
            os.close(fd)
