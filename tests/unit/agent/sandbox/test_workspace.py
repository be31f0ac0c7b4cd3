"""Laying files out that are what they should be, and deleting what a job left behind, whatever it
did to its directories."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox.workspace import WorkspaceBuilder, clear, remove
from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.snapshot import Entry

NOBODY = 65534


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that a user without privileges can own."""
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made)


def as_a_plain_user(place: Path, act: object) -> int:
    """The exit code of a child without special rights that calls `act`."""
    if os.geteuid() == 0:
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            assert callable(act)
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_directories_that_cannot_be_written_or_read_are_deleted(place: Path) -> None:
    inner = place / "tree" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (place / "tree" / "closed").mkdir()
    (place / "tree" / "closed" / "file").touch()

    def act() -> None:
        inner.chmod(0o555)
        inner.parent.chmod(0o500)
        (place / "tree" / "closed").chmod(0)
        (place / "tree").chmod(0o555)
        remove(str(place / "tree"))

    assert as_a_plain_user(place, act) == 0
    assert list(place.iterdir()) == []


def test_a_tree_deeper_than_a_path_may_be_long_is_deleted(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("0123456789", dir_fd=here)
        below = os.open("0123456789", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)
    remove(str(tmp_path / "0123456789"))
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove(str(tmp_path / "tree"))
    remove(str(tmp_path / "link"))
    remove(str(tmp_path / "never"))
    remove(str(tmp_path / "never" / "was"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()


def test_clearing_keeps_outputs_and_records(tmp_path: Path) -> None:
    for name in ("work", "mount", "tmp", "home", "output", "log"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "order.json").touch()
    clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "order.json", "output"]


SMALL, LARGE = b"words" * 10, b"0123456789abcdef" * 40_000


def laid_out(tmp_path: Path, stored: bytes, entry: Entry, *, checked: bool) -> bytes:
    """What a job finds of a file for which the store has these bytes."""
    store = tmp_path / "stored"
    store.write_bytes(stored)
    place = tmp_path / "work"
    place.mkdir()

    def find(_sha256: str, _size: int) -> int:
        return os.open(store, os.O_RDONLY)

    layer = WorkspaceBuilder()
    layer._clones = _NeverShared()
    layer.fill([str(place)], [entry], find, checked=checked)
    return (place / "data").read_bytes()


class _NeverShared(dict[tuple[int, int], bool]):
    """Every file system is one that cannot share blocks, as most cannot."""

    def get(self, *_asked: object) -> bool:
        return False


@pytest.mark.parametrize("data", [SMALL, LARGE, b""], ids=["small", "large", "empty"])
def test_what_is_copied_has_its_digest(tmp_path: Path, data: bytes) -> None:
    entry = Entry(path="data", size=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert laid_out(tmp_path, data, entry, checked=True) == data


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_no_job_is_given_a_copy_of_damaged_bytes(tmp_path: Path, data: bytes) -> None:
    entry = Entry(path="data", size=len(data), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(Invalid) as refused:
        laid_out(tmp_path, data[:-1] + b"!", entry, checked=True)
    assert refused.value.code == "agent_stored_damaged"
    assert refused.value.params["path"] == "data"


def test_a_mark_is_no_digest(tmp_path: Path) -> None:
    """Files of private storage are known by marks, and were checked when they came."""
    entry = Entry(path="data", size=len(SMALL), sha256="0" * 64)
    assert laid_out(tmp_path, SMALL, entry, checked=False) == SMALL
