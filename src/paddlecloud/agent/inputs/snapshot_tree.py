"""Read-only trees of submitted files, each shared by all replicas of a snapshot (see `overlay`).

A tree is built when the first replica needs it, and found by the id of its snapshot afterwards.
Where the files need no owner of their own they are hard links to blobs, which cost no space. Only
large snapshots get a tree: for others, copying is faster than a mount.

A tree has its name only when it is complete, and is used until the next boot: files that were never
synced may be damaged by a loss of power. A process that uses a tree holds a shared lock on the file
beside it. The supervisor of a replica takes that lock for as long as any process of the replica
runs; until then the agent holds it.

A hard link keeps the bytes of a blob on the disk after the store has deleted it. So the largest
linked files of a tree are listed beside it, and the tree is deleted when the store has deleted one.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.inputs.cache import Evictable, check_id
from paddlecloud.agent.sandbox import overlay, workspace
from paddlecloud.agent.sandbox.hardlinks import name_of
from paddlecloud.agent.sandbox.overlay import NOTE
from paddlecloud.agent.sandbox.tmpdir import spread
from paddlecloud.agent.supervisor import processes
from paddlecloud.model.files.snapshot import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from pathlib import Path

    from paddlecloud.agent.inputs.cache import OpenBlob
    from paddlecloud.agent.sandbox.workspace import WorkspaceBuilder
    from paddlecloud.model.files.snapshot import Snapshot

#: Measured with `python -m bench files_out`: from here on two mounts are faster than the copies.
WORTH_ENTRIES = 64
WORTH_BYTES = 8 * 1024 * 1024
#: Bytes that a name takes on the disk.
_ENTRY_BYTES = 4096
_MAX_NOTE_BYTES = 32 * 1024
#: Linked files of a tree that are listed beside it.
_MAX_LINKED = 16
_DELETE_TRIES = 50
_DELETE_PAUSE = 0.01
_FILES = "files"
_DAMAGED = "../damaged"
"""Where the server moves blobs that it found damaged (`server.services.files.verify`)."""
_PART = ".part"


class TreeBusy(BlockingIOError):
    """Another thread builds this tree."""


class HeldTree:
    """A tree that cannot be deleted until it is released, or this object is garbage."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class SnapshotTrees:
    """Thread-safe. `can_overlay` tries whether this machine can mount an overlay: it gets the root
    of a replica and a tree. `on_growth` is called with the bytes that were added to the cache."""

    def __init__(
        self,
        cache: Path,
        builder: WorkspaceBuilder,
        can_overlay: Callable[[str, str], bool | None],
        on_growth: Callable[[int], None],
    ) -> None:
        self._top = cache / "trees"
        self._builder = builder
        self._can_overlay = can_overlay
        self._on_growth = on_growth
        self._possible: bool | None = None
        """Whether trees can be used here; None until that was tried."""
        self._opened = False
        self._leftovers: list[Path] = []
        """What an earlier agent left incomplete, to be deleted by `drop_useless`."""
        self._lock = threading.Lock()
        """Guards the three above."""
        self._building: set[str] = set()
        self._building_lock = threading.Lock()

    def ready(
        self, snapshot_id: str, owner: int | None, blobs_dir: str | None = None
    ) -> HeldTree | None:
        """The tree of this snapshot for that owner, if it exists and can be used here; it counts as
        used now. Raises TreeBusy while another thread builds it."""
        home = self._home(snapshot_id, owner, blobs_dir)
        tree = hold(str(home / _FILES))
        if tree is None:
            self._check_not_building(home)
        elif not self._is_possible():
            tree.release()
            return None
        return tree

    def make(
        self,
        snapshot: Snapshot,
        open_blob: OpenBlob,
        owner: int | None,
        blobs_dir: str | None = None,
        *,
        checked: bool = False,
    ) -> HeldTree | None:
        """The tree of a snapshot, built if necessary; None when copies are better.

        Blobs are linked from `blobs_dir`. `checked`: that is the server's own store, see
        `WorkspaceBuilder.fill`. Raises OSError, and what `open_blob` raises; nothing is left of the
        tree then. Raises TreeBusy if another thread builds it.
        """
        if not is_worth(snapshot) or self._possible is False or not self._open():
            return None
        home = self._home(snapshot.id, owner, blobs_dir)
        linked_from = blobs_dir if owner is None else None
        with self._building_alone(home), self._trying():
            tree = hold(str(home / _FILES)) or self._build(
                home, snapshot, open_blob, owner, linked_from, checked=checked
            )
        if self._is_possible():
            return tree
        tree.release()
        with suppress(OSError):
            _delete(home)
        return None

    def is_building(self, home: str) -> bool:
        """Whether a thread still builds the tree that a TreeBusy has as its file name."""
        return home in self._building

    def evictable(self, wanted: Container[str] = ()) -> Iterator[Evictable]:
        """Every tree except those at a `wanted` path, which are about to be used."""
        for home, note in self._complete(wanted):
            used_at = 0
            with suppress(OSError):
                used_at = (home / NOTE).stat().st_mtime_ns
            yield Evictable(used_at, int(note.get("size", 0)), partial(_delete, home))

    def drop_useless(self, wanted: Container[str] = ()) -> int:
        """Delete the trees that cannot be used any more, or keep bytes that the store has deleted;
        bytes freed. Those in use stay, and those at a `wanted` path. What a killed agent left
        incomplete is deleted too, and not counted."""
        if self._top.is_dir():
            self._open()
        while self._leftovers:
            with suppress(OSError, IndexError):
                workspace.remove(str(self._leftovers.pop()))
        freed = 0
        for home, note in self._complete(wanted):
            if not _is_useful(note):
                with suppress(OSError):
                    _delete(home)
                    freed += int(note.get("size", 0))
        return freed

    def _complete(self, wanted: Container[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The complete trees that are not wanted, each with its note."""
        with suppress(FileNotFoundError):
            for home in self._top.iterdir():
                if not home.name.endswith(_PART) and str(home / _FILES) not in wanted:
                    note: dict[str, Any] = {}
                    with suppress(OSError, ValueError):
                        found = json.loads((home / NOTE).read_bytes())
                        note = found if isinstance(found, dict) else {}
                    yield home, note

    def _home(self, snapshot_id: str, owner: int | None, blobs_dir: str | None) -> Path:
        """The directory of a tree. Its name ends with the time when the store last found a damaged
        blob: an older tree may contain its bytes, and is left to be pruned."""
        check_id(snapshot_id)
        whose = "own" if owner is None else owner
        age = ""
        if blobs_dir is not None:
            with suppress(OSError):
                age = f".{os.stat(f'{blobs_dir}/{_DAMAGED}').st_mtime_ns}"  # noqa: PTH116 - every start
        return self._top / f"{snapshot_id.partition(':')[2]}.{whose}{age}"

    @contextmanager
    def _building_alone(self, home: Path) -> Iterator[None]:
        with self._building_lock:
            self._check_not_building(home)
            self._building.add(str(home))
        try:
            yield
        finally:
            self._building.discard(str(home))

    def _check_not_building(self, home: Path) -> None:
        if self.is_building(str(home)):
            raise TreeBusy(errno.EAGAIN, "it is being built", str(home))

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """Try overlays at the same time, if necessary: that takes as long as thousands of files,
        and hardly any CPU."""
        if self._possible is not None:
            yield
            return
        thread = threading.Thread(target=self._is_possible, name="trees", daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def _is_possible(self) -> bool:
        known = self._possible
        if known is not None:
            return known
        opened = self._open()
        with self._lock:
            if self._possible is None and opened:
                self._possible = self._try()
            return bool(self._possible)

    def _try(self) -> bool | None:
        """None when that could not be tried now."""
        root = self._top / f"probe.{os.urandom(8).hex()}{_PART}"
        tree = root / "tree"
        try:
            (tree / "folder").mkdir(parents=True)
            (tree / "folder" / "one").touch()
            (tree / "file").touch()
            for name in (*overlay.VIEWS, *overlay.places("")):
                (root / name.strip("/")).mkdir()
            return self._can_overlay(str(root), str(tree))
        except OSError:
            return None
        finally:
            with suppress(OSError):
                workspace.remove(str(root))

    def _open(self) -> bool:
        """Create the directory, and list what a killed agent left incomplete, before anything is
        built here; False if that is not possible."""
        with self._lock, suppress(OSError):
            if not self._opened:
                self._top.mkdir(parents=True, exist_ok=True, mode=0o700)
                spread(self._top)
                self._leftovers = [*self._top.glob(f"*{_PART}")]
                self._opened = True
            return True
        return False

    def _build(
        self,
        home: Path,
        snapshot: Snapshot,
        open_blob: OpenBlob,
        owner: int | None,
        blobs_dir: str | None,
        *,
        checked: bool,
    ) -> HeldTree:
        part = home.with_name(f"{home.name}.{os.urandom(8).hex()}{_PART}")
        try:
            part.mkdir()
            files = str(part / _FILES)
            self._builder.fill(
                [files],
                snapshot.entries,
                open_blob,
                owner=owner,
                blobs_dir=blobs_dir,
                checked=checked,
            )
            size = snapshot.size + _ENTRY_BYTES * len(snapshot.entries)
            note: dict[str, Any] = {"boot": processes.boot_id(), "size": size}
            if checked and blobs_dir is not None:
                note |= {"store": blobs_dir, "linked": _linked(files, snapshot, blobs_dir)}
            (part / NOTE).write_text(json.dumps(note))
            # One of an earlier boot. A thread that deletes it too has it for a moment only.
            for tries_left in reversed(range(_DELETE_TRIES + 1)):
                try:
                    _delete(home)
                    break
                except BlockingIOError:
                    if not tries_left:
                        raise
                time.sleep(_DELETE_PAUSE)
            # Before it has its name: the pruning thread may find it at any moment.
            tree = HeldTree(str(home / _FILES), overlay.hold(files))
            part.rename(home)
            self._on_growth(size)
            return tree
        except BaseException:
            with suppress(OSError):
                workspace.remove(str(part))
            raise


def is_worth(snapshot: Snapshot) -> bool:
    """Whether a tree is faster than copies."""
    return len(snapshot.entries) >= WORTH_ENTRIES or snapshot.size >= WORTH_BYTES


def hold(path: str) -> HeldTree | None:
    """The tree at this path, if it is complete, of this boot, and not being deleted. One of an
    earlier boot is not locked even for a moment: the thread that builds it again deletes it."""
    try:
        fd = os.open(overlay.note_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    tree = HeldTree(path, fd)
    try:
        if json.loads(os.read(fd, _MAX_NOTE_BYTES))["boot"] == processes.boot_id():
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            there = os.stat(overlay.note_of(path))  # noqa: PTH116 - every start comes through here
            if there.st_ino == os.fstat(fd).st_ino:
                os.utime(fd)
                return tree
    except (OSError, ValueError, KeyError, TypeError):
        pass
    tree.release()
    return None


def _linked(files: str, snapshot: Snapshot, blobs_dir: str) -> list[tuple[str, int]]:
    """The largest files of a tree that are hard links to blobs of the store: sha256 and inode."""
    regular = (entry for entry in snapshot.entries if entry.kind is EntryKind.FILE)
    found = []
    for entry in heapq.nlargest(_MAX_LINKED, regular, key=lambda entry: entry.size):
        inode = _inode(f"{blobs_dir}/{name_of(entry.sha256)}")
        if inode is not None and inode == _inode(f"{files}/{entry.path}"):
            found.append((entry.sha256, inode))
    return found


def _is_useful(note: dict[str, Any]) -> bool:
    """Whether a tree with this note can be used, and the store still has its linked files."""
    store = note.get("store")
    return note.get("boot") == processes.boot_id() and all(
        _inode(f"{store}/{name_of(sha256)}") == inode for sha256, inode in note.get("linked", ())
    )


def _inode(path: str) -> int | None:
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_ino  # noqa: PTH116 - some for each tree
    return None


def _delete(home: Path) -> None:
    """Delete a tree. BlockingIOError when it is in use."""
    note = None
    with suppress(FileNotFoundError):
        note = os.open(home / NOTE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if note is not None:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
            inode = None
            with suppress(FileNotFoundError):
                inode = (home / NOTE).stat().st_ino
            if inode != os.fstat(note).st_ino:
                raise BlockingIOError(errno.EAGAIN, "it was built again", str(home))
        part = home.with_name(f"{home.name}.{os.urandom(8).hex()}{_PART}")
        with suppress(FileNotFoundError):
            home.rename(part)
            workspace.remove(str(part))
    finally:
        if note is not None:
            os.close(note)
