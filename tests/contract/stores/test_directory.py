"""What only a directory promises: links lead nowhere, modes, descriptors, a full disk."""

from __future__ import annotations

import fcntl
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlecloud.model.errors import Conflict, NotFound, StorageFull
from paddlecloud.stores import CanLocalPath
from paddlecloud.stores.base import CanMove
from paddlecloud.stores.directory.store import DirectoryStore
from tests.contract.disk import open_descriptors, small_disk
from tests.contract.stores.helpers import content, paths


def test_only_the_owner_can_read(directory: DirectoryStore) -> None:
    directory.write("users/u/file", [b"x"])
    for path in [directory.root, *directory.root.rglob("*")]:
        want = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == want, path


def test_what_is_kept_by_its_digest_can_be_given_to_jobs(directory: DirectoryStore) -> None:
    """Whatever the mask of the process: a server's lets nobody else read."""
    before = os.umask(0o077)
    try:
        directory.write(f"users/u/blobs/ab/{'ab' * 32}", [b"x"])
    finally:
        os.umask(before)
    file = directory.root / "users" / "u" / "blobs" / "ab" / ("ab" * 32)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_local_path_is_where_the_bytes_are(directory: DirectoryStore) -> None:
    directory.write("blobs/ab/x", [b"x"])
    assert isinstance(directory, CanLocalPath)
    file = directory.local_path("blobs/ab/x")
    assert file is not None
    assert file.read_bytes() == b"x"
    assert directory.local_path("blobs") == directory.root / "blobs"
    assert directory.local_path("blobs/ab/y") is None


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    return outside


def test_a_link_in_the_tree_leads_nowhere(directory: DirectoryStore, outside: Path) -> None:
    directory.write("d/file", [b"x"])
    (directory.root / "d/way").symlink_to(outside)
    (directory.root / "d/leaf").symlink_to(outside / "secret")
    assert paths(directory) == ["d/file"]
    for path in ("d/way/secret", "d/leaf"):
        assert directory.stat(path) is None
        assert directory.local_path(path) is None
        assert directory.sizes([path]) == {}
        with pytest.raises(NotFound):
            directory.read(path)
    with pytest.raises(Conflict):
        directory.write("d/way/new", [b"x"])
    directory.write("d/leaf", [b"mine"])
    directory.delete("d/way/secret")
    assert directory.delete_tree("d") == 5
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_pipe_in_the_tree_is_no_file(directory: DirectoryStore) -> None:
    directory.write("d/file", [b"x"])
    os.mkfifo(directory.root / "d/pipe")
    assert paths(directory) == ["d/file"]
    with pytest.raises(NotFound):
        directory.read("d/pipe")


def test_sweep_removes_what_a_dead_process_left(directory: DirectoryStore) -> None:
    old = directory.open_write("x")
    old.write(b"half")
    left = next((directory.root / ".tmp").iterdir())
    os.utime(left, (1_000_000, 1_000_000))
    young = directory.open_write("y")
    assert directory.sweep(datetime.fromtimestamp(2_000_000, UTC)) == 1
    assert len(list((directory.root / ".tmp").iterdir())) == 1
    old.abort()
    assert young.commit().size == 0


def places(directory: DirectoryStore) -> set[Path]:
    return set((directory.root / ".tmp").iterdir())


def test_places_of_dead_processes_go_at_once(directory: DirectoryStore) -> None:
    """However young: whoever submits again and again, and is killed each time, leaves one copy."""
    (_, used), (_, left), (_, unlocked), (_, old) = (directory.make_place() for _ in range(4))
    holder = os.open(used, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)
    for place in (used, left):
        (place / "part-0").write_bytes(b"half")
    for place in (used, old):
        os.utime(place, (1_000_000, 1_000_000))
    _, made = directory.make_place()
    assert places(directory) == {used, unlocked, made}
    DirectoryStore(directory.root).close()
    assert places(directory) == {used}
    os.close(holder)
    DirectoryStore(directory.root).close()
    assert places(directory) == set()


def test_a_place_is_not_even_locked_before_its_process_could(
    directory: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, given = directory.make_place()
    locked: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: locked.append(fd))
    _, made = directory.make_place()
    assert (locked, places(directory)) == ([], {given, made})


def test_sweep_removes_copies_that_nobody_holds(directory: DirectoryStore) -> None:
    (_, used), (_, left), (_, fresh) = (directory.make_place() for _ in range(3))
    holder = os.open(used, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_SH)
    for place in (used, left):
        (place / "part-0").write_bytes(b"half")
    assert directory.sweep(datetime.fromtimestamp(1_000_000, UTC)) == 1
    assert places(directory) == {used, fresh}
    os.close(holder)


def test_descriptors_do_not_leak(directory: DirectoryStore) -> None:
    directory.write("a/b", [b"x" * 10])
    before = open_descriptors()
    for _ in range(50):
        directory.write("a/b", [b"x" * 10])
        directory.read("a/b")
        next(iter(directory.list("a/")))
        directory.list("a/")  # whoever asks for it may fail before the first look
        directory.open_write("a/c").write(b"1")
        directory.stat("a/x/y")
    directory.flush()
    assert open_descriptors() <= before
    assert list((directory.root / ".tmp").iterdir()) == []


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="1m") as place:
        store = DirectoryStore(place)
        store.write("kept", [b"x" * 100_000])
        with pytest.raises(StorageFull) as caught:
            store.write("big", [b"y" * 300_000] * 4)
        assert caught.value.code == "store_full"
        assert paths(store) == ["kept"]
        assert list((place / ".tmp").iterdir()) == []
        assert content(store, "kept") == b"x" * 100_000
        store.write("big", [b"y" * 300_000])
        assert paths(store) == ["big", "kept"]
        store.close()


def test_a_file_is_moved_whatever_it_holds(directory: DirectoryStore, outside: Path) -> None:
    assert isinstance(directory, CanMove)
    directory.write("blobs/ab/x", [b"x"])
    directory.write("damaged/x", [b"before"])
    (directory.root / "blobs/ab/x").chmod(0)
    directory.move("blobs/ab/x", "damaged/x")
    (directory.root / "damaged/x").chmod(0o600)
    assert (paths(directory), content(directory, "damaged/x")) == (["damaged/x"], b"x")
    with pytest.raises(NotFound):
        directory.move("blobs/ab/x", "damaged/x")
    (directory.root / "way").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        directory.move("damaged/x", "way/x")
    assert not (outside / "x").exists()
