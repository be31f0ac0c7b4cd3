"""Gives stored contents further names in a tree to which nobody writes: a file without its bytes.

Thousands of names are what a large snapshot costs the first time, so each is two calls of the
kernel: the name, and a look whether the file is what it should be. Both go by descriptors, of the
shelf where the contents lie and of the folder that is filled; to find the way to each file from
`/` twice would be a third of the time. What cannot be had in this way is left to the caller.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from paddlecloud.model.files.snapshot import Entry

    Folders = dict[str, list[tuple[str, Entry]]]
    """The files of each folder, with their names in it."""

_MODE = 0o644
_AS_IT_SHOULD_BE = stat.S_IFREG | _MODE
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CANNOT = {
    *(errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM),
    errno.EMLINK,
}


def name_all(
    place: str, files: Sequence[Entry], shelf: str, find: Callable[[str, int], int]
) -> list[Entry]:
    """Give the contents of these files names in the directories below `place`, which exist; those
    with which that cannot be done. Contents lie in the directory `shelf`, as `name_of` says; `find`
    fetches one that does not."""
    try:
        top = os.open(shelf, _TOP)
    except FileNotFoundError:
        return [*files]
    try:
        others = [entry for entry in files if entry.executable]
        namer = _Namer(top)
        missing = namer.fill(place, _by_folder(files))
        for entry in missing:
            os.close(find(entry.sha256, entry.size))
        still = namer.fill(place, _by_folder(missing))
        return [*others, *namer.unfit, *still]
    finally:
        os.close(top)


def name_of(sha256: str) -> str:
    """What a content is called on a shelf."""
    return f"{sha256[:2]}/{sha256}"


def _by_folder(files: Iterable[Entry]) -> Folders:
    """All but scripts: the rights of a file are those of all its names."""
    found: Folders = {}
    for entry in files:
        if not entry.executable:
            folder, _, name = entry.path.rpartition("/")
            found.setdefault(folder, []).append((name, entry))
    return found


class _Namer:
    def __init__(self, top: int) -> None:
        self._top = top
        self._us = os.geteuid()
        self.unfit: list[Entry] = []
        """Files whose content has a name here that cannot be given, or the wrong shape."""

    def fill(self, place: str, folders: Folders) -> list[Entry]:
        """Give the names; those whose contents are not on the shelf."""
        missing: list[Entry] = []
        for folder, members in folders.items():
            fd = os.open(f"{place}/{folder}", _FOLDER)
            try:
                self._fill_folder(fd, members, missing)
            finally:
                os.close(fd)
        return missing

    def _fill_folder(
        self, folder: int, members: Sequence[tuple[str, Entry]], missing: list[Entry]
    ) -> None:
        for name, entry in members:
            source = name_of(entry.sha256)
            try:
                os.link(
                    source, name, src_dir_fd=self._top, dst_dir_fd=folder, follow_symlinks=False
                )
            except FileNotFoundError:
                missing.append(entry)
                continue
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self.unfit.append(entry)
                continue
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (found.st_mode, found.st_uid, found.st_size) != (
                _AS_IT_SHOULD_BE, self._us, entry.size,
            ) and not self._put_right(folder, name, entry, found):  # fmt: skip
                self.unfit.append(entry)

    def _put_right(self, folder: int, name: str, entry: Entry, found: os.stat_result) -> bool:
        """Whether a file can be used whose rights, owner, kind or size are not as expected: one of
        the wrong size, or of somebody else, cannot, and loses its name again."""
        right = found.st_size == entry.size and found.st_uid == self._us
        if not right or not stat.S_ISREG(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return False
        # The rights of a file are those of all its names; the store's directories guard it.
        os.chmod(name, _MODE, dir_fd=folder)
        return True
