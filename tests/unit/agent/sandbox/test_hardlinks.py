"""Further names of stored contents: only of what is as it should be, and the rest is told."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox import hardlinks, workspace
from paddlecloud.model.files.snapshot import Entry

CONTENT = b"stored\n"


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.top = folder
        self.fetched: list[str] = []

    def put(self, content: bytes, *, mode: int = 0o644) -> Path:
        file = self.file(content)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
        return file

    def file(self, content: bytes) -> Path:
        return self.top / hardlinks.name_of(hashlib.sha256(content).hexdigest())

    def find(self, sha256: str, _size: int) -> int:
        """Fetches, as the cache does, the one content that there is."""
        self.fetched.append(sha256)
        self.put(CONTENT)
        return os.open(self.top / hardlinks.name_of(sha256), os.O_RDONLY)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Shelf(folder)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    return tmp_path / "tree"


def an_entry(path: str, content: bytes = CONTENT, *, executable: bool = False) -> Entry:
    digest = hashlib.sha256(content).hexdigest()
    return Entry(path=path, size=len(content), sha256=digest, executable=executable)


def name_all(tree: Path, shelf: Shelf, *entries: Entry) -> list[Entry]:
    return hardlinks.link_all(str(tree), entries, str(shelf.top), shelf.find)


def test_files_of_all_folders_are_the_stored_ones(tree: Path, shelf: Shelf) -> None:
    stored = shelf.put(CONTENT)
    paths = ("top", "a/one", "a/two", "a/b/deep")
    assert name_all(tree, shelf, *map(an_entry, paths)) == []
    assert all((tree / path).samefile(stored) for path in paths)
    assert shelf.fetched == []


def test_the_rights_of_what_is_stored_become_those_of_submitted_files(
    tree: Path, shelf: Shelf
) -> None:
    shelf.put(CONTENT, mode=0o600)
    assert name_all(tree, shelf, an_entry("a/one")) == []
    assert stat.S_IMODE((tree / "a" / "one").stat().st_mode) == 0o644


def test_a_script_is_left_to_be_copied(tree: Path, shelf: Shelf) -> None:
    stored = shelf.put(CONTENT)
    script = an_entry("run.sh", executable=True)
    assert name_all(tree, shelf, script, an_entry("a/one")) == [script]
    assert not (tree / "run.sh").exists()
    assert stat.S_IMODE(stored.stat().st_mode) == 0o644


def test_what_is_not_there_is_fetched_and_named(tree: Path, shelf: Shelf) -> None:
    assert name_all(tree, shelf, an_entry("a/one"), an_entry("top")) == []
    assert shelf.fetched[0] == an_entry("top").sha256
    assert (tree / "a" / "one").samefile(shelf.file(CONTENT))
    assert (tree / "top").samefile(shelf.file(CONTENT))


def test_what_was_cut_short_gets_no_name(tree: Path, shelf: Shelf) -> None:
    shelf.put(CONTENT).write_bytes(CONTENT[:-1])
    entry = an_entry("a/one")
    assert name_all(tree, shelf, entry) == [entry]
    assert not (tree / "a" / "one").exists()


def test_a_link_on_the_shelf_gets_no_name(tree: Path, shelf: Shelf, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(CONTENT)
    place = shelf.file(CONTENT)
    place.parent.mkdir()
    place.symlink_to(elsewhere)
    entry = an_entry("a/one")
    assert name_all(tree, shelf, entry) == [entry]
    assert not os.path.lexists(tree / "a" / "one")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of root")
def test_a_file_of_somebody_else_gets_no_name(tree: Path, shelf: Shelf) -> None:
    os.chown(shelf.put(CONTENT), 65534, 65534)
    entry = an_entry("a/one")
    assert name_all(tree, shelf, entry) == [entry]
    assert not (tree / "a" / "one").exists()


def test_without_a_shelf_all_is_left(tree: Path, shelf: Shelf) -> None:
    shelf.top.rmdir()
    entries = [an_entry("a/one"), an_entry("top")]
    assert name_all(tree, shelf, *entries) == entries


def test_what_stays_missing_is_copied_from_where_it_is(tree: Path, shelf: Shelf) -> None:
    """The server's store has it no more, and the cache has."""
    elsewhere = tree.parent / "cached"
    elsewhere.write_bytes(CONTENT)

    def find(_sha256: str, _size: int) -> int:
        return os.open(elsewhere, os.O_RDONLY)

    entries = [an_entry("a/one")]
    workspace.WorkspaceBuilder().fill([str(tree)], entries, find, blobs_dir=str(shelf.top))
    assert (tree / "a" / "one").read_bytes() == CONTENT
    assert not (tree / "a" / "one").samefile(elsewhere)
