"""Which trees are kept: those that are whole. How they are made and used is tested with mounts."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlecloud.agent.inputs import snapshot_tree as module
from paddlecloud.agent.inputs.snapshot_tree import HeldTree, SnapshotTrees
from paddlecloud.agent.sandbox import workspace
from paddlecloud.agent.sandbox.hardlinks import name_of
from paddlecloud.agent.sandbox.overlay import NOTE
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of


def test_a_tree_that_is_being_made_is_nobody_elses_to_delete(tmp_path: Path) -> None:
    trees = SnapshotTrees(
        tmp_path, workspace.WorkspaceBuilder(), lambda _root, _tree: True, lambda _size: None
    )
    whole, half = tmp_path / "trees" / "abc.own", tmp_path / "trees" / "def.own.0123.part"
    for home in (whole, half):
        (home / "files").mkdir(parents=True)
    (whole / NOTE).write_text(json.dumps({"boot": "b", "size": 7}))
    kept = list(trees.evictable())
    assert [size for _, size, _ in kept] == [7]
    for _, _, delete in kept:
        delete()
    assert not whole.exists()
    assert half.exists()


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotTrees:
    monkeypatch.setattr(module, "WORTH_ENTRIES", 0)
    return SnapshotTrees(
        tmp_path, workspace.WorkspaceBuilder(), lambda _root, _tree: True, lambda _size: None
    )


def empty() -> Snapshot:
    return snapshot_of([])


def no_content(_sha256: str, _size: int) -> int:
    raise AssertionError("there is no file")


def delete_all(trees: SnapshotTrees) -> int:
    """How many could be deleted."""
    gone = 0
    for _, _, delete in trees.evictable():
        try:
            delete()
        except BlockingIOError:
            continue
        gone += 1
    return gone


def test_a_tree_that_was_asked_for_stays_until_it_is_let_go(trees: SnapshotTrees) -> None:
    made = trees.make(empty(), no_content, None)
    again = trees.ready(empty().id, None)
    assert made is not None
    assert again is not None
    assert made.path == again.path
    assert delete_all(trees) == 0
    made.release()
    made.release()
    assert delete_all(trees) == 0
    again.release()
    assert delete_all(trees) == 1
    assert trees.ready(empty().id, None) is None


def test_whoever_forgets_a_tree_lets_it_go(trees: SnapshotTrees) -> None:
    assert trees.make(empty(), no_content, None) is not None
    assert delete_all(trees) == 1


def test_a_tree_that_is_about_to_go_is_none(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trees.make(empty(), no_content, None)
    assert made is not None
    made.release()
    remove, found = workspace.remove, []

    def asked_meanwhile(path: str) -> None:
        found.append(trees.ready(empty().id, None))
        remove(path)

    monkeypatch.setattr(workspace, "remove", asked_meanwhile)
    (kept,) = trees.evictable()
    kept[2]()
    assert found == [None]


def test_a_tree_is_held_before_it_has_its_name(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pruning thread may run at the very moment at which it appears."""
    rename = Path.rename

    def pruned_at_once(path: Path, target: Path) -> Path:
        done = rename(path, target)
        if not target.name.endswith(".part"):
            assert delete_all(trees) == 0
        return done

    monkeypatch.setattr(Path, "rename", pruned_at_once)
    made = trees.make(empty(), no_content, None)
    assert made is not None
    assert Path(made.path).is_dir()


def of_another_boot(trees: SnapshotTrees) -> Path:
    """The note of a tree that an earlier boot left."""
    made = trees.make(empty(), no_content, None)
    assert made is not None
    made.release()
    note = Path(made.path).parent / NOTE
    note.write_text(json.dumps({"boot": "of before", "size": 1}))
    return note


def test_a_tree_of_another_boot_is_not_locked_by_who_looks(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that builds it again deletes it, and would find it held."""
    of_another_boot(trees)
    asked: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda _fd, how: asked.append(how))
    assert trees.ready(empty().id, None) is None
    assert asked == []


def test_a_tree_to_be_made_anew_is_waited_for_while_somebody_has_it(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.open(of_another_boot(trees), os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    clock = SimpleNamespace(sleep=lambda _seconds: fcntl.flock(other, fcntl.LOCK_UN))
    monkeypatch.setattr(module, "time", clock)
    made = trees.make(empty(), no_content, None)
    os.close(other)
    assert made is not None
    again = trees.ready(empty().id, None)
    assert again is not None


def test_a_tree_that_was_made_anew_is_not_deleted_for_the_one_before(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_another_boot(trees)
    [(_, _, delete)] = trees.evictable()
    made: list[HeldTree | None] = []
    lock = fcntl.flock

    def overtaken(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        made.append(trees.make(empty(), no_content, None))
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with pytest.raises(BlockingIOError):
        delete()
    assert made[0] is not None
    assert Path(made[0].path).is_dir()


def test_one_that_stays_held_leaves_nothing_half_made(
    trees: SnapshotTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = of_another_boot(trees)
    monkeypatch.setattr(module, "_DELETE_PAUSE", 0.0)
    with note.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):
            trees.make(empty(), no_content, None)
    assert list(note.parent.parent.iterdir()) == [note.parent]


def test_what_was_made_before_a_damaged_content_went_is_found_no_more(
    trees: SnapshotTrees, tmp_path: Path
) -> None:
    shelf = tmp_path / "store" / "blobs"
    shelf.mkdir(parents=True)
    old = trees.make(empty(), no_content, None, str(shelf))
    assert old is not None
    aside = tmp_path / "store" / "damaged"
    aside.mkdir()
    assert trees.ready(empty().id, None, str(shelf)) is None
    new = trees.make(empty(), no_content, None, str(shelf))
    found = trees.ready(empty().id, None, str(shelf))
    assert new is not None
    assert found is not None
    assert old.path != new.path == found.path
    os.utime(aside, ns=(1, 1))  # another one went
    assert trees.ready(empty().id, None, str(shelf)) is None
    old.release()
    assert delete_all(trees) == 1  # the one that is not held


class Shelf:
    """Where the contents of some files lie, as in a store."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def put(self, data: bytes) -> Entry:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.place / name_of(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return Entry(path=f"file-{sha256[:8]}", size=len(data), sha256=sha256)

    def find(self, sha256: str, _size: int) -> int:
        return os.open(self.place / name_of(sha256), os.O_RDONLY)

    def drop(self, entry: Entry) -> None:
        (self.place / name_of(entry.sha256)).unlink()

    def tree(self, trees: SnapshotTrees, *entries: Entry, checked: bool = True) -> HeldTree:
        found = snapshot_of(entries)
        made = trees.make(found, self.find, None, str(self.place), checked=checked)
        assert made is not None
        return made


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "store" / "blobs")


def test_a_tree_of_another_boot_goes(trees: SnapshotTrees) -> None:
    note = of_another_boot(trees)
    assert trees.drop_useless({str(note.parent / "files")}) == 0, "an order names it"
    assert note.exists()
    assert trees.drop_useless() == 1
    assert not note.parent.exists()


def test_a_tree_goes_with_what_the_store_lets_go_of(trees: SnapshotTrees, shelf: Shelf) -> None:
    data, code, other = (shelf.put(text) for text in (b"d" * 9000, b"one", b"two"))
    first, second = shelf.tree(trees, data, code), shelf.tree(trees, data, other)
    first.release()
    second.release()
    assert trees.drop_useless() == 0
    shelf.drop(code)
    assert trees.drop_useless() > 9000
    assert not Path(first.path).exists()
    assert Path(second.path).exists(), "it has the large one too, and nothing that is gone"
    shelf.drop(data)
    shelf.put(b"d" * 9000)
    assert trees.drop_useless() > 9000, "the store has another copy"
    assert not Path(second.path).exists()


def test_a_tree_in_use_stays_whatever_the_store_has(trees: SnapshotTrees, shelf: Shelf) -> None:
    data = shelf.put(b"data")
    made = shelf.tree(trees, data)
    shelf.drop(data)
    assert trees.drop_useless() == 0
    again = trees.ready(snapshot_of([data]).id, None, str(shelf.place))
    made.release()
    assert again is not None
    assert trees.drop_useless() == 0
    assert [path.read_bytes() for path in Path(again.path).iterdir()] == [b"data"]
    again.release()
    assert trees.drop_useless({again.path}) == 0, "an order names it"
    assert trees.drop_useless() > 0


def test_of_many_files_the_largest_are_looked_at(
    trees: SnapshotTrees, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [shelf.put(bytes(size)) for size in range(1, 100)]
    shelf.tree(trees, *entries).release()
    looked: list[str] = []
    inode = module._inode

    def noted(path: str) -> int | None:
        looked.append(path)
        return inode(path)

    monkeypatch.setattr(module, "_inode", noted)
    assert trees.drop_useless() == 0
    assert sorted(looked) == sorted(f"{shelf.place}/{name_of(e.sha256)}" for e in entries[-16:])


def test_what_only_a_cache_let_go_of_stays(trees: SnapshotTrees, shelf: Shelf) -> None:
    """It is what the cache still has of it."""
    data = shelf.put(b"data")
    shelf.tree(trees, data, checked=False).release()
    shelf.drop(data)
    assert trees.drop_useless() == 0


def test_a_tree_is_of_no_use_where_nobody_may_mount(trees: SnapshotTrees, tmp_path: Path) -> None:
    """Any more: a later agent may have fewer rights than the one that made it."""
    made = trees.make(empty(), no_content, None)
    assert made is not None
    made.release()
    asked: list[str] = []

    def no(root: str, _tree: str) -> bool:
        asked.append(root)
        return False

    later = SnapshotTrees(tmp_path, workspace.WorkspaceBuilder(), no, lambda _size: None)
    assert later.ready(empty().id, None) is None
    assert later.ready(empty().id, None) is None
    assert len(asked) == 1
    assert delete_all(later) == 1, "nobody holds it"


def test_nobody_takes_a_tree_before_it_is_known_that_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORTH_ENTRIES", 0)
    made, answer = threading.Event(), threading.Event()

    def slow_no(_root: str, _tree: str) -> bool:
        assert answer.wait(20)
        return False

    racy = SnapshotTrees(tmp_path, workspace.WorkspaceBuilder(), slow_no, lambda _size: made.set())
    maker = threading.Thread(target=racy.make, args=(empty(), no_content, None))
    maker.start()
    assert made.wait(20)
    found: list[HeldTree | None] = []
    asker = threading.Thread(target=lambda: found.append(racy.ready(empty().id, None)))
    asker.start()
    answer.set()
    maker.join(20)
    asker.join(20)
    assert found == [None]


def test_what_a_killed_agent_left_goes_although_no_tree_is_made(
    trees: SnapshotTrees, tmp_path: Path
) -> None:
    assert trees.drop_useless() == 0
    assert not (tmp_path / "trees").exists(), "nothing is made for it"
    half = tmp_path / "trees" / "abc.own.0123456789abcdef.part"
    (half / "files" / "deep").mkdir(parents=True)
    trees.drop_useless()
    assert not half.exists()


def test_what_is_being_made_is_not_taken_for_left_over(trees: SnapshotTrees, shelf: Shelf) -> None:
    entry = shelf.put(b"x")
    seen: list[int] = []

    def find(sha256: str, size: int) -> int:
        seen.append(trees.drop_useless())
        return shelf.find(sha256, size)

    made = trees.make(snapshot_of([entry]), find, 0 if os.geteuid() == 0 else None)
    assert made is not None
    assert seen == [0]
    assert [path.read_bytes() for path in Path(made.path).iterdir()] == [b"x"]
