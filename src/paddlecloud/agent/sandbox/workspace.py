"""Creates the directories of a replica with their files, and deletes them.

`work/` is where the command runs, `mount/` a second view of the same files (LOCAL_MOUNT_PATH). Both
are private to the replica. Large snapshots are mounted below both views when the replica starts
(see `overlay`). The files of other snapshots are copied; where the file system can, large ones
share their blocks with the store until they are written (reflinks). Hard links would be cheaper,
but a job that writes into such a file would change the store. Where replicas have users of their
own, the files belong to them from the start. Paths are strings here: for a short job, creating its
files is most of the work.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from paddlecloud.agent.replica.records import ROOT, SECRETS, TOKEN
from paddlecloud.agent.sandbox import hardlinks, overlay
from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused
from paddlecloud.model.files.snapshot import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from paddlecloud.model.files.snapshot import Entry, Snapshot

T = TypeVar("T")
WORK = "work"
MOUNT = "mount"
OUTPUT = "output"
LOG = "log"
VIEWS = overlay.VIEWS
TEMPORARY = "tmp"
HOME = "home"
DISPOSABLE = (*VIEWS, TEMPORARY, HOME, ROOT, TOKEN, SECRETS, overlay.DIRECTORY)
"""Not needed any more when the replica is over."""
_FICLONE = 0x4004_9409
_SMALL = 256 * 1024
LEAST_NEEDED = 64 * 1024
"""Bytes that a start needs at least; more is only known of the submitted files."""
_BLOCK = 1024 * 1024
_CANNOT = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Bytes that are kept free, or this part of a small disk.
_RESERVE = 256 * 1024 * 1024
_RESERVE_PART = 32
#: Each level of a deletion has an open descriptor; deeper directories are moved up first.
_DEEPEST = 32


class WorkspaceBuilder:
    """Creates files; caches between which file systems blocks can be shared."""

    def __init__(self) -> None:
        self._clones: dict[tuple[int, int], bool] = {}

    def create(
        self,
        root: Path,
        snapshot: Snapshot | None,
        open_blob: Callable[[str, int], int],
        own: Iterable[str] = (),
        *,
        owner: int | None = None,
        layered: bool = False,
        checked: bool = False,
    ) -> None:
        """Create the directories below `root`. Idempotent.

        `find` opens the blob of a digest and size; `own` lists further empty directories; `owner`
        owns all of it. `layered`: the files are mounted below the views later; `checked`: see
        `fill`. Raises an error for the owner of the job; on a full disk, what was created is
        deleted first.
        """
        top = str(root)
        try:
            _make(top, 0o700)
            for name in (WORK, MOUNT, OUTPUT, LOG, *own):
                _make(f"{top}/{name}", owner=owner)
            for place in overlay.places(top) if layered else ():
                _make(place, owner=owner)
            if snapshot is not None and not layered:
                views = [f"{top}/{view}" for view in VIEWS]
                self.fill(views, snapshot.entries, open_blob, owner=owner, checked=checked)
        except OSError as error:
            if error.errno in _FULL:
                clear(root)
            raise disk_error(error, root, snapshot) from error

    def fill(
        self,
        places: Sequence[str],
        entries: Sequence[Entry],
        open_blob: Callable[[str, int], int],
        *,
        owner: int | None = None,
        blobs_dir: str | None = None,
        checked: bool = False,
    ) -> None:
        """Create these files in each of these directories. `shelf`: hard links to the blobs in that
        directory will do, for a single read-only place. `checked`: a copied file has to have the
        digest of its entry; one that shares its blocks is not read for that."""
        _make_directories(places, entries, owner)
        files = [entry for entry in entries if entry.kind is EntryKind.FILE]
        if blobs_dir is not None and len(places) == 1:
            files = hardlinks.link_all(places[0], files, blobs_dir, open_blob)
        for entry in files:
            self._create(places, entry, open_blob, owner, checked=checked)
        for entry in entries:
            for place in places if entry.kind is EntryKind.LINK else ():
                path = Path(place, entry.path)
                with suppress(FileExistsError):
                    path.symlink_to(entry.target)
                if owner is not None:
                    os.chown(path, owner, owner, follow_symlinks=False)

    def _create(
        self,
        places: Sequence[str],
        entry: Entry,
        open_blob: Callable[[str, int], int],
        owner: int | None,
        *,
        checked: bool,
    ) -> None:
        mode = 0o755 if entry.executable else 0o644
        reader = open_blob(entry.sha256, entry.size)
        try:
            small = os.read(reader, entry.size + 1) if entry.size <= _SMALL else None
            for place in places:
                writer = os.open(f"{place}/{entry.path}", _NEW, mode)
                try:
                    copied = self._copy(reader, writer, entry.size, small)
                    if owner is not None:
                        os.fchown(writer, owner, owner)
                finally:
                    os.close(writer)
                if copied != entry.size:
                    raise Invalid(
                        "agent_blob_size", path=entry.path, size=copied, expected=entry.size
                    )
            if checked and not (small is None and self._shares(reader, places[0])):
                _check(entry, reader, small)
        finally:
            os.close(reader)

    def _copy(self, reader: int, writer: int, size: int, small: bytes | None) -> int:
        if small is not None:
            return _write_all(writer, small)
        if self._clone(reader, writer):
            return os.fstat(writer).st_size
        os.lseek(reader, 0, os.SEEK_SET)
        with suppress(OSError):
            if size == _copy_in_kernel(reader, writer, size):
                return os.fstat(reader).st_size
        os.lseek(reader, 0, os.SEEK_SET)
        os.ftruncate(writer, 0)
        os.lseek(writer, 0, os.SEEK_SET)
        done = 0
        while block := os.read(reader, _BLOCK):
            done += _write_all(writer, block)
        return done

    def _shares(self, reader: int, place: str) -> bool:
        """Whether large files there share their blocks with this one; known after a try."""
        there = os.stat(place).st_dev  # noqa: PTH116 - see the top of this file
        return self._clones.get((os.fstat(reader).st_dev, there), True)

    def _clone(self, reader: int, writer: int) -> bool:
        pair = (os.fstat(reader).st_dev, os.fstat(writer).st_dev)
        if not self._clones.get(pair, True):
            return False
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
        except OSError as error:
            if error.errno in _CANNOT:
                self._clones[pair] = False
                return False
            raise
        return True


def write_in_root(root: Path, files: Mapping[str, str], *, owner: int | None = None) -> None:
    """Create these files in the directory that becomes the replica's `/`."""
    for name, text in files.items():
        fd = os.open(f"{root}/{ROOT}/{name}", _NEW, 0o644)
        try:
            _write_all(fd, text.encode())
            if owner is not None:
                os.fchown(fd, owner, owner)
        finally:
            os.close(fd)


def clear(root: Path) -> None:
    """Delete everything but outputs, logs and records, as far as possible."""
    for name in DISPOSABLE:
        with suppress(OSError):
            remove(f"{root}/{name}")


def remove(path: str) -> None:
    """Delete a tree, whatever its permissions are. Idempotent. Raises OSError when something stays.

    No symbolic link is followed, also not one that replaces a directory during the deletion.
    """
    above, _, name = path.rpartition("/")
    try:
        top = os.open(above, _FOLDER)
    except FileNotFoundError:
        return
    removal = _Removal(top)
    try:
        removal.remove(top, name, 0)
        while removal.deep:
            removal.remove(top, removal.deep.pop(), 0)
    finally:
        os.close(top)


def disk_error(error: OSError, root: Path, snapshot: Snapshot | None = None) -> PaddleCloudError:
    """A failure of this machine's disk, as an error for the owner of the job."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno not in _FULL:
        return Refused("agent_workspace_failed", path=str(error.filename or root), reason=reason)
    free = shutil.disk_usage(_existing(root)).free
    needed = max(LEAST_NEEDED, snapshot.size * len(VIEWS) if snapshot is not None else 0)
    return Refused("agent_workspace_full", path=str(root), needed=needed, free=free, reason=reason)


def free_space(top: Path) -> int:
    """Bytes that are free beyond the reserve; negative when less than the reserve is free."""
    try:
        disk = os.statvfs(top)
    except OSError:
        return 0
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _RESERVE_PART)
    return disk.f_bavail * disk.f_frsize - reserve


def _make(path: str, mode: int = 0o777, *, owner: int | None = None) -> None:
    try:
        os.mkdir(path, mode)  # noqa: PTH102 - see the top of this file
    except FileExistsError:
        if not Path(path).is_dir():
            raise
    if owner is not None:
        os.chown(path, owner, owner, follow_symlinks=False)


def _make_directories(places: Sequence[str], entries: Sequence[Entry], owner: int | None) -> None:
    needed = {""}
    for entry in entries:
        path = entry.path if entry.kind is EntryKind.DIRECTORY else entry.path.rpartition("/")[0]
        while path not in needed:
            needed.add(path)
            path = path.rpartition("/")[0]
    for path in sorted(needed):
        for place in places:
            _make(f"{place}/{path}", owner=owner)


def _check(entry: Entry, reader: int, small: bytes | None) -> None:
    """Invalid unless the file has the digest of its entry; `small` is all of it."""
    digest = hashlib.sha256(small or b"")
    if small is None:
        os.lseek(reader, 0, os.SEEK_SET)
        while block := os.read(reader, _BLOCK):
            digest.update(block)
    received = digest.hexdigest()
    if received != entry.sha256:
        raise Invalid(
            "agent_stored_damaged", path=entry.path, sha256=entry.sha256, received=received
        )


def _copy_in_kernel(reader: int, writer: int, size: int) -> int:
    if not hasattr(os, "copy_file_range"):
        return -1
    done = 0
    while done < size:
        moved = os.copy_file_range(reader, writer, size - done)
        if not moved:
            break
        done += moved
    return done


def _write_all(writer: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]
    return len(data)


class _Removal:
    """One deletion; `deep` lists directories that were moved to the top, to be deleted next."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.deep: list[str] = []

    def remove(self, above: int, name: str, depth: int) -> None:
        """Delete the entry `name` of the open directory `above`."""
        try:
            # One call for empty directories, which most are.
            os.rmdir(name, dir_fd=above)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            os.unlink(name, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if depth < _DEEPEST:
                self._remove_folder(above, name, depth)
            else:
                deep = f"deep.{os.urandom(8).hex()}"
                _with_permission(
                    above,
                    name,
                    lambda: os.rename(name, deep, src_dir_fd=above, dst_dir_fd=self._top),
                )
                self.deep.append(deep)

    def _remove_folder(self, above: int, name: str, depth: int) -> None:
        fd = _with_permission(above, name, lambda: os.open(name, _FOLDER, dir_fd=above))
        try:
            with os.scandir(fd) as found:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
            for entry, is_folder in entries:
                self._remove_entry(fd, entry, depth, is_folder=is_folder)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=above)

    def _remove_entry(self, above: int, name: str, depth: int, *, is_folder: bool) -> None:
        def act() -> None:
            if is_folder:
                self.remove(above, name, depth + 1)
            else:
                os.unlink(name, dir_fd=above)

        with suppress(FileNotFoundError):
            try:
                act()
            except PermissionError:
                os.fchmod(above, stat.S_IRWXU)
                act()


def _with_permission(above: int, name: str, act: Callable[[], T]) -> T:
    """Call `act` on a directory, if necessary after taking permission to it."""
    try:
        return act()
    except PermissionError:
        # By descriptor, so that a symbolic link in its place does not change something else.
        fd = os.open(name, _FOLDER | getattr(os, "O_PATH", 0), dir_fd=above)
        try:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IRWXU)  # noqa: PTH101 - no path
        finally:
            os.close(fd)
        return act()


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
