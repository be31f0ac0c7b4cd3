"""Short temporary directories for replicas (unix sockets have at most 107 bytes), spread over the
disk."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 107 - 34
"""Bytes; what is left of a socket's address is for the programs, with a little to spare."""


def short(root: Path, target: str) -> str:
    """`target`, a directory of the replica in `root`, or a shorter name of it; twice is once."""
    if len(os.fsencode(target)) <= LONGEST:
        return target
    beside, elsewhere = _links(str(root))
    if len(os.fsencode(beside)) <= LONGEST:
        return beside if _leads(beside, target) else target
    sweep(Path(elsewhere).parent)
    return elsewhere if _leads(elsewhere, target) else target


def forget(root: Path) -> None:
    """The replica in `root` is deleted; another one may take its short name."""
    for link in _links(str(root)):
        with suppress(OSError):
            if f"{_target(link)}/".startswith(f"{root}/"):
                os.unlink(link)  # noqa: PTH108 - see the top of this file


@cache
def sweep(place: Path) -> None:
    """Remove links that lead nowhere: a home that was deleted as a whole took no leave of them."""
    with suppress(OSError):
        for link in place.iterdir() if _is_ours(str(place)) else ():
            if link.is_symlink() and not link.exists():
                link.unlink()


def _links(root: str) -> tuple[str, str]:
    name = f"{zlib.crc32(os.fsencode(root)):08x}"
    return f"{root.rsplit('/', 2)[0]}/t/{name}", f"/tmp/paddlecloud-{os.getuid()}/{name}"


def _leads(link: str, target: str) -> bool:
    """Whether `link`, made if it is not there, leads to `target`; nobody else's directory does."""
    place = link.rpartition("/")[0]
    with suppress(OSError):
        try:
            _make(link, target)
        except FileNotFoundError:
            Path(place).mkdir(0o700, exist_ok=True)
            _make(link, target)
    with suppress(OSError):
        return _is_ours(place) and _target(link) == target
    return False


def _make(link: str, target: str) -> None:
    os.symlink(target, link)  # noqa: PTH211 - see the top of this file


def _target(link: str) -> str:
    return os.readlink(link)  # noqa: PTH115 - see the top of this file


def _is_ours(place: str) -> bool:
    """Whether nobody else can put anything there; a link to another place is nobody's."""
    about = os.lstat(place)
    own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return own and not about.st_mode & 0o022


_GET_FLAGS = 0x8008_6601

_SET_FLAGS = 0x4008_6602

_HOLDS_UNRELATED = 0x0002_0000
"""What `chattr +T` sets."""


def spread(directory: Path) -> None:
    """From now on the directories that are made in this one lie far from each other.

    Nothing happens where the file system knows no such thing.
    """
    with suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _HOLDS_UNRELATED))
        finally:
            os.close(fd)
