"""Uploads in parts: any order, by several senders, after a restart, and never a half of a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddlecloud.model.errors import Conflict, Invalid, NotFound, StorageFull
from paddlecloud.stores import CanMultipart, Store, create
from paddlecloud.stores.directory import _multipart as multipart
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.s3.store import S3Store
from tests.contract.disk import small_disk
from tests.contract.stores.helpers import content, paths, sha256

SIZE = 5 * 1024 * 1024
"""The least that S3 takes as a part that is not the last."""


@pytest.fixture
def parted(store: Store) -> CanMultipart:
    assert isinstance(store, CanMultipart)
    return store


def pieces() -> list[bytes]:
    return [os.urandom(SIZE), os.urandom(SIZE), b"the rest"]


def test_parts_in_any_order_become_the_file(store: Store, parted: CanMultipart) -> None:
    when = datetime(2020, 5, 17, 10, 16, 9, tzinfo=UTC)
    data = pieces()
    upload = parted.begin_parts("d/x", part_size=SIZE, modified=when)
    with ThreadPoolExecutor(3) as threads:
        for number in (3, 1, 2):
            threads.submit(parted.put_part, "d/x", upload, number, data[number - 1]).result()
    assert paths(store) == []
    assert [(part.number, part.size) for part in parted.parts("d/x", upload)] == [
        (1, SIZE),
        (2, SIZE),
        (3, 8),
    ]
    whole = b"".join(data)
    stat = parted.finish_parts("d/x", upload, size=len(whole))
    assert (stat.path, stat.size, stat.modified) == ("d/x", len(whole), when)
    assert sha256(content(store, "d/x")) == sha256(whole)
    with pytest.raises(NotFound):
        parted.parts("d/x", upload)


def test_a_part_sent_twice_is_there_once(store: Store, parted: CanMultipart) -> None:
    upload = parted.begin_parts("x", part_size=SIZE)
    for _ in range(2):
        parted.put_part("x", upload, 1, b"the same")
    assert [part.size for part in parted.parts("x", upload)] == [8]
    assert parted.finish_parts("x", upload, size=8).size == 8
    assert content(store, "x") == b"the same"


def test_what_is_missing_is_said(store: Store, parted: CanMultipart) -> None:
    upload = parted.begin_parts("x", part_size=SIZE)
    parted.put_part("x", upload, 2, b"the end")
    with pytest.raises(Invalid, match="send part 1") as caught:
        parted.finish_parts("x", upload, size=SIZE + 7)
    assert caught.value.code == "upload_incomplete"
    assert paths(store) == []
    parted.put_part("x", upload, 1, b"\0" * SIZE)
    with pytest.raises(Invalid, match="send part 3"):
        parted.finish_parts("x", upload, size=SIZE + 8)
    parted.finish_parts("x", upload, size=SIZE + 7)
    assert paths(store) == ["x"]


def test_an_upload_that_is_dropped_or_unknown(store: Store, parted: CanMultipart) -> None:
    upload = parted.begin_parts("x", part_size=SIZE)
    parted.put_part("x", upload, 1, b"1")
    parted.drop_parts("x", upload)
    parted.drop_parts("x", upload)
    for name in (upload, "nonsense", "../x", ""):
        calls: list[Callable[[], object]] = [
            lambda name=name: parted.parts("x", name),  # type: ignore[misc]
            lambda name=name: parted.put_part("x", name, 1, b"1"),  # type: ignore[misc]
            lambda name=name: parted.finish_parts("x", name, size=1),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(NotFound) as caught:
                call()
            assert caught.value.code == "upload_missing"
    assert paths(store) == []


def test_an_upload_belongs_to_its_path(store: Store, parted: CanMultipart) -> None:
    upload = parted.begin_parts("mine", part_size=SIZE)
    with pytest.raises(NotFound):
        parted.put_part("other", upload, 1, b"1")
    parted.put_part("mine", upload, 1, b"1")
    parted.finish_parts("mine", upload, size=1)
    assert paths(store) == ["mine"]


def test_a_name_that_is_a_directory_is_not_given(store: Store, parted: CanMultipart) -> None:
    store.write("d/file", [b"x"])
    upload = parted.begin_parts("d", part_size=SIZE)
    parted.put_part("d", upload, 1, b"1")
    with pytest.raises(Conflict):
        parted.finish_parts("d", upload, size=1)
    assert paths(store) == ["d/file"]


def test_an_upload_goes_on_after_a_restart(tmp_path: Path, s3_settings: dict[str, str]) -> None:
    for kind, given in (("directory", {"root": str(tmp_path)}), ("s3", s3_settings)):
        first = create(kind, given)
        assert isinstance(first, CanMultipart)
        upload = first.begin_parts("x", part_size=SIZE)
        first.put_part("x", upload, 1, b"a" * SIZE)
        first.close()  # type: ignore[attr-defined]
        again = create(kind, given)
        assert isinstance(again, DirectoryStore | S3Store)
        assert [part.number for part in again.parts("x", upload)] == [1]
        again.put_part("x", upload, 2, b"b")
        assert again.finish_parts("x", upload, size=SIZE + 1).size == SIZE + 1
        again.close()


def test_sweep_drops_old_uploads(tmp_path: Path, s3_settings: dict[str, str]) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for kind, given in (("directory", {"root": str(tmp_path)}), ("s3", s3_settings)):
        store = create(kind, given)
        assert isinstance(store, DirectoryStore | S3Store)
        upload = store.begin_parts("x", part_size=SIZE)
        store.put_part("x", upload, 1, b"1")
        assert store.sweep(later - timedelta(days=1)) == 0
        assert store.sweep(later) == 1
        with pytest.raises(NotFound):
            store.parts("x", upload)
        store.close()


def test_a_part_that_is_too_long_for_a_directory(directory: DirectoryStore) -> None:
    upload = directory.begin_parts("x", part_size=4)
    for number, data in ((1, b"12345"), (0, b"1")):
        with pytest.raises(Invalid) as caught:
            directory.put_part("x", upload, number, data)
        assert caught.value.code == "upload_part"


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_file_from_parts_is_on_the_disk_before_it_has_its_name(
    directory: DirectoryStore, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    """Or a loss of power could leave it with its full size and a hole where a part was."""
    synced: list[tuple[bytes, list[str]]] = []

    def sync(fd: int) -> None:
        synced.append((Path(f"/dev/fd/{fd}").read_bytes(), paths(directory)))

    monkeypatch.setattr(multipart, "sync_data", sync)
    upload = directory.begin_parts("x", part_size=4)
    for number in order:
        directory.put_part("x", upload, number, {1: b"abcd", 2: b"ef"}[number])
    assert synced == [], "once for all parts: each costs a wait"
    directory.finish_parts("x", upload, size=6)
    assert synced == [(b"abcdef", [])]
    assert paths(directory) == ["x"]


def test_parts_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="1m") as place:
        store = DirectoryStore(place)
        upload = store.begin_parts("x", part_size=600_000)
        store.put_part("x", upload, 1, b"1" * 600_000)
        with pytest.raises(StorageFull):
            store.put_part("x", upload, 2, b"2" * 600_000)
        assert [part.number for part in store.parts("x", upload)] == [1]
        store.put_part("x", upload, 2, b"2" * 100_000)
        store.finish_parts("x", upload, size=700_000)
        want = hashlib.sha256(b"1" * 600_000 + b"2" * 100_000).hexdigest()
        assert sha256(content(store, "x")) == want
        store.close()
