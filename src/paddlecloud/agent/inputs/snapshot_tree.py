"""Submitted files laid out once for all replicas of a snapshot, as the lowest layer of `layers`.

A tree is made when the first replica needs it and found by the id of its snapshot afterwards: the
next one needs not even the list of its files. Where the files need no owner of their own they are
further names of what lies in the store or in the cache, and cost no bytes; nobody writes to a tree.
Only snapshots with much in them are worth it: below that, copies are there before a mount is.

A tree is whole under its name or not there. It is used for as long as the system runs in which it
was made: what a loss of power does to files that nobody synced, nobody sees from their names. Who
asks for a tree gets it held by a lock. The monitor of a replica takes the same lock, so that the
tree stays for as long as anything of the replica runs, whatever becomes of the agent; until then
the agent holds it.

A name keeps the bytes of a file on the disk when the store has let go of it. So a tree remembers
which of its largest files the store had, and goes when it does not have them any more.
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

from paddlecloud.agent.inputs.cache import check_id
from paddlecloud.agent.sandbox import overlay, workspace
from paddlecloud.agent.sandbox.hardlinks import name_of
from paddlecloud.agent.sandbox.overlay import NOTE
from paddlecloud.agent.sandbox.tmpdir import spread
from paddlecloud.agent.supervisor import processes
from paddlecloud.model.files.snapshot import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from pathlib import Path

    from paddlecloud.agent.inputs.cache import Kept, Source
    from paddlecloud.agent.sandbox.workspace import Layer
    from paddlecloud.model.files.snapshot import Snapshot

#: Measured with `python -m bench files_out`: from here on two mounts are faster than the copies.
WORTH_ENTRIES = 64
WORTH_BYTES = 8 * 1024 * 1024
_ENTRY_BYTES = 4096
"""What a name takes on the disk, whatever it is the name of."""
_NOTE_BYTES = 32 * 1024
_WITNESSES = 16
"""Of so many files of a tree it is looked at whether the store still has them: the largest."""
_DELETE_TRIES = 50
_DELETE_PAUSE = 0.01
_FILES = "files"
_ASIDE = "../damaged"
"""Where the server puts what it found damaged on a shelf (`server.services.files.scrub`)."""
_PART = ".part"


class TreeBusy(BlockingIOError):
    """Another thread makes this tree."""


class HeldTree:
    """A tree that nobody deletes until it is let go, or this is forgotten."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def let_go(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.let_go()


class SnapshotTrees:
    """Safe for several threads. `ask` finds out whether this machine can lay a tree below a
    replica: it is given a root that is laid out, and a tree to try it with."""

    def __init__(
        self,
        cache: Path,
        layer: Layer,
        ask: Callable[[str, str], bool | None],
        grew: Callable[[int], None],
    ) -> None:
        self._top = cache / "trees"
        self._layer = layer
        self._ask = ask
        self._grew = grew
        self._possible: bool | None = None
        self._swept = False
        self._left: list[Path] = []
        """What an earlier agent left, to be deleted by whoever tidies up."""
        self._lock = threading.Lock()
        """Guards what is known of this machine."""
        self._making: set[str] = set()
        """Where trees are being made."""
        self._choosing = threading.Lock()
        """Guards who makes which."""

    def ready(
        self, snapshot_id: str, owner: int | None, shelf: str | None = None
    ) -> HeldTree | None:
        """The tree of this snapshot for that owner, if there is one and this machine can use it; it
        counts as used now. Busy while another thread makes it: that may take hours."""
        home = self._home(snapshot_id, owner, shelf)
        held = hold(str(home / _FILES))
        if held is None:
            self._check_free(home)
        elif not self._can():
            held.let_go()
            return None
        return held

    def make(
        self,
        snapshot: Snapshot,
        find: Source,
        owner: int | None,
        shelf: str | None = None,
        *,
        checked: bool = False,
    ) -> HeldTree | None:
        """The tree of a snapshot, made if need be; None when copies serve it better.

        `find` opens a content, `shelf` says where they may lie; `checked`: that is the server's own
        store, see `Layer.fill`. Raises OSError, and what `find` raises; nothing of it is left then.
        Busy if another thread is at it.
        """
        if not is_worth(snapshot) or self._possible is False or not self._swept_once():
            return None
        home = self._home(snapshot.id, owner, shelf)
        usable = shelf if owner is None else None
        stored = usable if checked else None
        fill = partial(self._layer.fill, owner=owner, shelf=usable, checked=checked)
        with self._alone(home), self._trying():
            made = hold(str(home / _FILES))
            if made is None:
                made = self._make(
                    home, snapshot, lambda place: fill(place, snapshot.entries, find), stored
                )
        if self._can():
            return made
        made.let_go()
        with suppress(OSError):
            _deletion(home)()
        return None

    def makes(self, home: str) -> bool:
        """Whether a thread is still at the tree of which a `Busy` has this as its file name."""
        return home in self._making

    def kept(self, wanted: Container[str] = ()) -> Iterator[Kept]:
        """Every tree here: when it was used last, its size, and how to delete it. One that is being
        made, or deleted, is somebody else's; one at a `wanted` path is about to be used."""
        for home, note in self._whole(wanted):
            used_at = 0
            with suppress(OSError):
                used_at = (home / NOTE).stat().st_mtime_ns
            yield used_at, int(note.get("size", 0)), _deletion(home)

    def drop_useless(self, wanted: Container[str] = ()) -> int:
        """Delete those that nobody can use any more, and those that keep bytes of which the store
        has let go; bytes freed. One that somebody holds stays, and one at a `wanted` path. What an
        agent that was killed left half made or half deleted goes too; nobody knows its size."""
        if self._top.is_dir():
            self._swept_once()
        while self._left:
            with suppress(OSError, IndexError):
                workspace.remove(str(self._left.pop()))
        freed = 0
        for home, note in self._whole(wanted):
            if not _is_of_use(note):
                with suppress(OSError):
                    _deletion(home)()
                    freed += int(note.get("size", 0))
        return freed

    def _whole(self, wanted: Container[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The trees that may be deleted, each with its note."""
        with suppress(FileNotFoundError):
            for home in self._top.iterdir():
                if not home.name.endswith(_PART) and str(home / _FILES) not in wanted:
                    yield home, _read_note(home) or {}

    def _home(self, snapshot_id: str, owner: int | None, shelf: str | None) -> Path:
        check_id(snapshot_id)
        whose = "own" if owner is None else owner
        return self._top / f"{snapshot_id.partition(':')[2]}.{whose}{_age(shelf)}"

    @contextmanager
    def _alone(self, home: Path) -> Iterator[None]:
        with self._choosing:
            self._check_free(home)
            self._making.add(str(home))
        try:
            yield
        finally:
            self._making.discard(str(home))

    def _check_free(self, home: Path) -> None:
        if self.makes(str(home)):
            raise TreeBusy(errno.EAGAIN, "it is being made", str(home))

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """Find out meanwhile whether it is possible: that takes as long as thousands of files do,
        and hardly any work."""
        if self._possible is not None:
            yield
            return
        thread = threading.Thread(target=self._can, name="trees", daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def _can(self) -> bool:
        known = self._possible
        if known is not None:
            return known
        swept = self._swept_once()
        with self._lock:
            if self._possible is None and swept:
                self._possible = self._try()
            return bool(self._possible)

    def _try(self) -> bool | None:
        """None when nobody could tell; then it is asked again."""
        probe = self._top / f"probe.{os.urandom(8).hex()}{_PART}"
        tree = probe / "tree"
        try:
            (tree / "folder").mkdir(parents=True)
            (tree / "folder" / "one").touch()
            (tree / "file").touch()
            for name in (*overlay.VIEWS, *overlay.places("")):
                (probe / name.strip("/")).mkdir()
            return self._ask(str(probe), str(tree))
        except OSError:
            return None
        finally:
            with suppress(OSError):
                workspace.remove(str(probe))

    def _swept_once(self) -> bool:
        """Find what an agent that was killed left half made, before anything is made here; False
        if that is not possible. It may be large, so whoever makes a tree does not wait for its
        deletion."""
        with self._lock, suppress(OSError):
            if not self._swept:
                self._top.mkdir(parents=True, exist_ok=True, mode=0o700)
                spread(self._top)
                self._left = [*self._top.glob(f"*{_PART}")]
                self._swept = True
            return True
        return False

    def _make(
        self,
        home: Path,
        snapshot: Snapshot,
        fill: Callable[[list[str]], None],
        stored: str | None,
    ) -> HeldTree:
        aside = home.with_name(f"{home.name}.{os.urandom(8).hex()}{_PART}")
        try:
            aside.mkdir()
            files = [str(aside / _FILES)]
            fill(files)
            size = snapshot.size + _ENTRY_BYTES * len(snapshot.entries)
            note: dict[str, Any] = {"boot": processes.boot_id(), "size": size}
            if stored is not None:
                note |= {"store": stored, "linked": _linked(files[0], snapshot, stored)}
            (aside / NOTE).write_text(json.dumps(note))
            _delete_soon(home)  # one of before a loss of power
            # Before it has its name: whoever deletes what is old may be at work at any time.
            made = HeldTree(str(home / _FILES), overlay.hold(files[0]))
            aside.rename(home)
            self._grew(size)
            return made
        except BaseException:
            with suppress(OSError):
                workspace.remove(str(aside))
            raise


def is_worth(snapshot: Snapshot) -> bool:
    return len(snapshot.entries) >= WORTH_ENTRIES or snapshot.size >= WORTH_BYTES


def hold(path: str) -> HeldTree | None:
    """The tree at this path, if it is whole and nobody is about to delete it. One of before the
    last boot is not even locked for a moment: whoever makes it anew has to delete it."""
    try:
        fd = os.open(overlay.note_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    held = HeldTree(path, fd)
    try:
        if json.loads(os.read(fd, _NOTE_BYTES))["boot"] == processes.boot_id():
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            there = os.stat(overlay.note_of(path))  # noqa: PTH116 - every start comes through here
            if there.st_ino == os.fstat(fd).st_ino:
                os.utime(fd)
                return held
    except (OSError, ValueError, KeyError, TypeError):
        pass
    held.let_go()
    return None


def _age(shelf: str | None) -> str:
    """What the names of trees end with that were made since a damaged content was last moved from
    this shelf: those of before may hold its bytes, and are left to be pruned."""
    if shelf is not None:
        with suppress(OSError):
            moved_at = os.stat(f"{shelf}/{_ASIDE}").st_mtime_ns  # noqa: PTH116 - every start
            return f".{moved_at}"
    return ""


def _linked(files: str, snapshot: Snapshot, stored: str) -> list[tuple[str, int]]:
    """The largest files of a tree that are further names of what lies in the store: by digest the
    inode that both have."""
    regular = (entry for entry in snapshot.entries if entry.kind is EntryKind.FILE)
    largest = heapq.nlargest(_WITNESSES, regular, key=lambda entry: entry.size)
    found = [
        (entry.sha256, _inode(f"{files}/{entry.path}"), _inode(f"{stored}/{name_of(entry.sha256)}"))
        for entry in largest
    ]
    return [(sha256, there) for sha256, here, there in found if here == there is not None]


def _is_of_use(note: dict[str, Any]) -> bool:
    """Whether a tree with this note may be used again, and the store still has what it has."""
    stored = note.get("store")
    return note.get("boot") == processes.boot_id() and all(
        _inode(f"{stored}/{name_of(sha256)}") == inode for sha256, inode in note.get("linked", ())
    )


def _inode(path: str) -> int | None:
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_ino  # noqa: PTH116 - some for each tree
    return None


def _read_note(home: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((home / NOTE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _delete_soon(home: Path) -> None:
    """Delete a tree that is to be made anew. Another who deletes it has it for a moment, no more;
    BlockingIOError when it takes longer."""
    delete = _deletion(home)
    for _ in range(_DELETE_TRIES):
        with suppress(BlockingIOError):
            return delete()
        time.sleep(_DELETE_PAUSE)
    return delete()


def _deletion(home: Path) -> Callable[[], None]:
    """Deletes a tree that nobody holds; OSError when somebody does."""

    def delete() -> None:
        note = None
        with suppress(FileNotFoundError):
            note = os.open(home / NOTE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if note is not None:
                fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _check_same(note, home)
            aside = home.with_name(f"{home.name}.{os.urandom(8).hex()}{_PART}")
            with suppress(FileNotFoundError):
                home.rename(aside)
                workspace.remove(str(aside))
        finally:
            if note is not None:
                os.close(note)

    return delete


def _check_same(note: int, home: Path) -> None:
    """BlockingIOError if the tree was made anew since its note was opened: others hold that one."""
    with suppress(FileNotFoundError):
        if os.fstat(note).st_ino == (home / NOTE).stat().st_ino:
            return
    raise BlockingIOError(errno.EAGAIN, "made anew meanwhile", str(home))
