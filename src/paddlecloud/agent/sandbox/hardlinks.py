"""Hard-links thousands of blobs into a read-only tree.

Thousands of links are what a large snapshot costs the first time, so each is two system calls: the
link, and a stat that compares mode, owner and size. Both go by descriptors of the blob directory
and of the directory that is filled; resolving two paths from `/` for each file would be a third of
the time. Files that cannot be linked are left to the caller.
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
_REGULAR_MODE = stat.S_IFREG | _MODE
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CANNOT = {
    *(errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM),
    errno.EMLINK,
}


def link_all(
    place: str, files: Sequence[Entry], blobs_dir: str, open_blob: Callable[[str, int], int]
) -> list[Entry]:
    """Link the blobs of these files into the directories below `place`, which exist; returns those
    that cannot be linked. Blobs lie in the directory `shelf` under `name_of`; `find` fetches one
    that does not."""
    try:
        top = os.open(blobs_dir, _TOP)
    except FileNotFoundError:
        return [*files]
    try:
        others = [entry for entry in files if entry.executable]
        linker = _Linker(top)
        missing = linker.fill(place, _by_folder(files))
        for entry in missing:
            os.close(open_blob(entry.sha256, entry.size))
        still = linker.fill(place, _by_folder(missing))
        return [*others, *linker.failed, *still]
    finally:
        os.close(top)


def name_of(sha256: str) -> str:
    """The path of a blob in its directory."""
    return f"{sha256[:2]}/{sha256}"


def _by_folder(files: Iterable[Entry]) -> Folders:
    """All but executables: all links of a file have the same mode."""
    found: Folders = {}
    for entry in files:
        if not entry.executable:
            folder, _, name = entry.path.rpartition("/")
            found.setdefault(folder, []).append((name, entry))
    return found


class _Linker:
    def __init__(self, top: int) -> None:
        self._top = top
        self._us = os.geteuid()
        self.failed: list[Entry] = []
        """Files whose blob cannot be linked, or has another size or owner."""

    def fill(self, place: str, folders: Folders) -> list[Entry]:
        """Link the files; returns those whose blobs are missing."""
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
                self.failed.append(entry)
                continue
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (found.st_mode, found.st_uid, found.st_size) != (
                _REGULAR_MODE, self._us, entry.size,
            ) and not self._repair(folder, name, entry, found):  # fmt: skip
                self.failed.append(entry)

    def _repair(self, folder: int, name: str, entry: Entry, found: os.stat_result) -> bool:
        """Set the mode of a linked file; False, and unlink it, if its size, owner or type is
        wrong."""
        right = found.st_size == entry.size and found.st_uid == self._us
        if not right or not stat.S_ISREG(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return False
        # All links of a file have the same mode; the store's directories protect it.
        os.chmod(name, _MODE, dir_fd=folder)
        return True
