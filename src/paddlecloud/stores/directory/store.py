"""The directory store: one file per path, for the embedded server and for shared file systems.

A file is written under a scratch name and renamed, so a reader sees the whole file or none, and a
crash leaves nothing under a final name. That needs no fsync; surviving a power cut does. `flush`
does it once for all files committed before: a few are synced one by one, many by one sync of the
file system. After a power cut a file that was not flushed may be missing or shorter, never
different at its full size (ext4, xfs, btrfs, apfs), so a check for a blob compares its size too.
That holds for files written sequentially; a multipart file is synced before it is renamed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from paddlecloud.model.errors import ConfigError, NotFound
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.stores.base import Part, Reader, Stat, check_whole, pour
from paddlecloud.stores.directory._multipart import Parts
from paddlecloud.stores.directory.safe_open import (
    ABSENT,
    DIRECTORY,
    FEW,
    RESERVED,
    SCRATCH,
    Tree,
    check_free_space,
    explained,
    free_bytes,
    shown,
    split,
    suppress_absent,
)

FILE = 0o600
CONTENT = 0o644
"""Mode of blobs, which are hard-linked into the trees that jobs read: setting it here costs little,
later for ten thousand files a tenth of a start. The directories above admit only our own user."""
_PLACE = "place-"
"""Prefix of handoff directories, in which other processes leave files for this store."""
_FRESH = 10
"""Seconds in which a new handoff directory may be unlocked yet. It is empty then: the client locks
it before it writes there."""


def create(settings: Mapping[str, object]) -> DirectoryStore:
    """Open the store in the directory `root`; create it if it is missing."""
    root = settings.get("root")
    if not isinstance(root, str | Path) or not str(root):
        raise ConfigError("store_setting_missing", kind="directory", setting="root")
    return DirectoryStore(Path(root), shared=bool(settings.get("shared")))


class DirectoryStore:
    def __init__(self, root: Path, *, shared: bool = False) -> None:
        """`shared`: other processes commit files there too, and `flush` has to cover them."""
        self.root = root
        self._shared = shared
        self._tree = Tree(root)
        (root / SCRATCH).mkdir(mode=0o700, exist_ok=True)
        self._scratch = self._tree.directory([SCRATCH])
        self._parts = Parts(self._scratch)
        self._unsynced: set[str] | None = set()
        """Paths committed since the last flush; None: too many to list."""
        self._noting = threading.Lock()
        self._flushing = threading.Lock()
        self._sweep_places()

    def list(self, prefix: str = "") -> Iterator[Stat]:
        above, _, beginning = prefix.rpartition("/")
        return self._listed(split(above) if above else [], beginning)

    def stat(self, path: str) -> Stat | None:
        found = self._status(path)
        return _stat(path, found) if found and stat.S_ISREG(found.st_mode) else None

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        by_parent: dict[str, list[str]] = {}
        for path in paths:
            by_parent.setdefault(path.rpartition("/")[0], []).append(path)
        for siblings in by_parent.values():
            found.update(self._sizes(siblings))
        return found

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        try:
            fd = self._tree.open_file(path, os.O_RDONLY)
        except OSError as error:
            if error.errno in ABSENT:
                raise NotFound("file_missing", path=shown(path)) from None
            raise
        found = os.fstat(fd)
        # lseek fails far beyond the end of a file.
        offset = min(offset, found.st_size)
        os.lseek(fd, offset, os.SEEK_SET)
        left = found.st_size - offset
        return Reader(
            _stat(path, found),
            left if length is None else max(0, min(length, left)),
            lambda size: os.read(fd, size),
            lambda: os.close(fd),
        )

    def local_path(self, path: str) -> Path | None:
        found = self._status(path)
        kept = found and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
        return self.root / path if kept else None

    def write(
        self, path: str, chunks: Iterable[bytes], *, modified: datetime | None = None
    ) -> Stat:
        return pour(self.open_write(path, modified=modified), chunks)

    def open_write(self, path: str, *, modified: datetime | None = None) -> _FileSink:
        split(path)
        return _FileSink(self, path, modified)

    def delete(self, path: str) -> None:
        try:
            with self._tree.parent(path) as (directory, name):
                os.unlink(name, dir_fd=directory)
        except OSError as error:
            # macOS answers EPERM for a directory, which is no file of this store.
            if error.errno not in ABSENT and self.stat(path) is not None:
                raise

    def delete_tree(self, path: str) -> int:
        file = self.stat(path)
        freed = file.size if file else sum(below.size for below in self.list(f"{path}/"))
        self.delete(path)
        with suppress_absent(), self._tree.parent(path) as (directory, name):
            shutil.rmtree(name, dir_fd=directory)
        return freed

    def move(self, path: str, target: str) -> None:
        try:
            with (
                self._tree.parent(path) as (source, name),
                self._tree.parent(target, make=True) as (above, new),
            ):
                os.rename(name, new, src_dir_fd=source, dst_dir_fd=above)
        except FileNotFoundError:
            raise NotFound("file_missing", path=shown(path)) from None

    def begin_parts(self, path: str, *, part_size: int, modified: datetime | None = None) -> str:
        split(path)
        return self._parts.begin(path, part_size, modified)

    def put_part(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        return self._parts.put(path, upload, number, data)

    def parts(self, path: str, upload: str) -> Sequence[Part]:
        return self._parts.listed(path, upload)

    def read_part(self, path: str, upload: str, offset: int, length: int) -> bytes:
        return self._parts.read(path, upload, offset, length)

    def finish_parts(self, path: str, upload: str, *, size: int) -> Stat:
        check_whole(self.parts(path, upload), size)
        try:
            with explained(path):
                self._give_name(self._parts.data(path, upload, size), path)
        except FileNotFoundError:  # another request finished it just now
            raise NotFound("upload_missing", upload=upload[:100]) from None
        self._parts.drop(path, upload)
        found = self.stat(path)
        assert found is not None
        return found

    def drop_parts(self, path: str, upload: str) -> None:
        self._parts.drop(path, upload)

    def free_bytes(self) -> int:
        return free_bytes(self._scratch)

    def make_place(self) -> tuple[str, Path]:
        name = os.urandom(12).hex()
        with explained(name):
            os.mkdir(f"{_PLACE}{name}", 0o700, dir_fd=self._scratch)
        made = os.stat(f"{_PLACE}{name}", dir_fd=self._scratch, follow_symlinks=False)
        # Compared with the clock of the file system: clocks of two machines may differ.
        self._sweep_places(made.st_mtime - _FRESH)
        return name, self.root.absolute() / SCRATCH / f"{_PLACE}{name}"

    def adopt(self, place: str, name: str, path: str, *, size: int) -> bool:
        if len(place) != 24 or place.strip("0123456789abcdef") or not is_digest(name):
            return False
        with suppress_absent():
            directory = os.open(f"{_PLACE}{place}", DIRECTORY, dir_fd=self._scratch)
            try:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            finally:
                os.close(directory)
            # Through a second hard link it could be changed later.
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if ours and found.st_nlink == 1 and found.st_size == size:
                with explained(path):
                    self._give_name(f"{_PLACE}{place}/{name}", path)
                return True
        return False

    def sweep(self, before: datetime) -> int:
        """Delete leftovers of dead processes, last written `before`; returns how many. Unlocked
        handoff directories need not be that old."""
        removed = self._sweep_places(before.timestamp())
        with os.scandir(self._scratch) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # just finished
                    if entry.stat(follow_symlinks=False).st_mtime < before.timestamp():
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(entry.name, dir_fd=self._scratch)
                        else:
                            os.unlink(entry.name, dir_fd=self._scratch)
                        removed += 1
        return removed

    def flush(self) -> None:
        # One at a time: a second caller must not return before this sync has ended, which may
        # include its files. So many callers share one sync.
        with self._flushing:
            with self._noting:
                paths, self._unsynced = self._unsynced, set()
            try:
                if paths is None or self._shared:
                    self._tree.sync_all()
                elif paths:
                    self._tree.sync(paths)
            except OSError:
                with self._noting:
                    self._unsynced = None
                raise

    def close(self) -> None:
        """Close the descriptors; the store cannot be used afterwards."""
        scratch, self._scratch = self._scratch, -1
        if scratch >= 0:
            os.close(scratch)
        self._tree.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.close()

    def _sweep_places(self, before: float | None = None) -> int:
        """Delete handoff directories that no process has locked; returns how many.

        An empty one created after `before` is left alone and not even locked, because its client
        could not lock it at that moment. Without `before` those are deleted too: their clients then
        upload their files.
        """
        with os.scandir(self._scratch) as entries:
            places = [entry for entry in entries if entry.name.startswith(_PLACE)]
        removed = 0
        for entry in places:
            with suppress(OSError):  # in use, gone, or on a file system without such locks
                removed += self._remove_unlocked(entry.name, before)
        return removed

    def _remove_unlocked(self, name: str, before: float | None) -> bool:
        directory = os.open(name, DIRECTORY, dir_fd=self._scratch)
        try:
            fresh = before is not None and os.fstat(directory).st_mtime >= before
            if fresh and not os.listdir(directory):  # noqa: PTH208 - a descriptor
                return False
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(name, dir_fd=self._scratch)
        finally:
            os.close(directory)
        return True

    def _status(self, path: str) -> os.stat_result | None:
        with suppress_absent(), self._tree.parent(path) as (directory, name):
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        return None

    def _sizes(self, siblings: Sequence[str]) -> dict[str, int]:
        names = {path: split(path)[-1] for path in siblings}
        found: dict[str, int] = {}
        with suppress_absent(), self._tree.parent(siblings[0]) as (directory, _):
            for path, name in names.items():
                with suppress_absent():
                    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        found[path] = status.st_size
        return found

    def _listed(self, names: Sequence[str], beginning: str) -> Iterator[Stat]:
        # Opened at the first `next`: an iterator that is never started is never closed either.
        fd = -1
        with suppress_absent():
            fd = self._tree.directory(names)
        if fd >= 0:
            yield from self._walk(fd, "".join(f"{name}/" for name in names), beginning)

    def _walk(self, fd: int, above: str, beginning: str) -> Iterator[Stat]:
        """Files below the open directory `fd` (closed at the end), in the order of whole paths."""
        try:
            with os.scandir(fd) as entries:
                found = [(_sort_key(entry), entry) for entry in entries]
            for key, entry in sorted(found, key=lambda pair: pair[0]):
                if not entry.name.startswith(beginning) or (not above and entry.name in RESERVED):
                    continue
                if key.endswith("/"):
                    with suppress_absent():
                        below = os.open(entry.name, DIRECTORY, dir_fd=fd)
                        yield from self._walk(below, f"{above}{entry.name}/", "")
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield _stat(above + entry.name, entry.stat(follow_symlinks=False))
        finally:
            os.close(fd)

    def _give_name(self, scratch: str, path: str) -> None:
        with self._tree.parent(path, make=True) as (directory, name):
            os.rename(scratch, name, src_dir_fd=self._scratch, dst_dir_fd=directory)
        with self._noting:
            if self._unsynced is not None:
                self._unsynced.add(path)
                if len(self._unsynced) > FEW:
                    self._unsynced = None


class _FileSink:
    """A scratch file that is renamed when it is complete."""

    def __init__(self, store: DirectoryStore, path: str, modified: datetime | None) -> None:
        self._store = store
        self._path = path
        self._modified = modified
        # `abort` must not close the descriptor while another thread writes.
        self._lock = threading.Lock()
        with explained(path):
            mode = CONTENT if is_digest(path.rpartition("/")[2]) else FILE
            self._name = os.urandom(12).hex()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self._fd = os.open(self._name, flags, mode, dir_fd=store._scratch)
            if mode != FILE:
                os.fchmod(self._fd, mode)  # overrides the umask

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        with explained(self._path), self._lock:
            check_free_space(self._fd, len(data))
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])

    def commit(self) -> Stat:
        try:
            if self._modified is not None:
                when = round(self._modified.timestamp() * 1e9)
                os.utime(self._fd, ns=(when, when))
            found = _stat(self._path, os.fstat(self._fd))
            with explained(self._path):
                self._store._give_name(self._name, self._path)
        except BaseException:
            self.abort()
            raise
        self._close()
        return found

    def abort(self) -> None:
        if self._close():
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._store._scratch)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.abort()

    def _close(self) -> bool:
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
        return fd >= 0


def _sort_key(entry: os.DirEntry[str]) -> str:
    """A directory sorts where the paths below it do: `a-b` comes before `a/b`."""
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _stat(path: str, found: os.stat_result) -> Stat:
    modified = datetime.fromtimestamp(found.st_mtime, UTC)
    return Stat(path=path, size=found.st_size, modified=modified)
