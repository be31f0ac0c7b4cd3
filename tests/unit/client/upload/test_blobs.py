"""The upload of small files; the server is the receiver itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.scan.walk import BLOCK, scan
from paddlecloud.client.upload import blobs
from paddlecloud.client.upload.blobs import batches, pack
from paddlecloud.model.errors import Conflict
from paddlecloud.stores.memory import MemoryStore
from paddlecloud.stores.pack import PackReceiver
from tests.unit.client.trees import NOW, sha256, tree


def received(stream: bytes) -> tuple[MemoryStore, int]:
    store = MemoryStore()
    receiver = PackReceiver(lambda digest, _size: store.open_write(digest))
    receiver.feed(stream)
    return store, receiver.finish()


def test_a_pack_carries_what_is_missing(tmp_path: Path) -> None:
    big = os.urandom(3_000_001)
    found = scan(str(tree(tmp_path, {"a": b"1", "b": b"22", "c": b"", "big": big})), now=NOW)
    missing = [sha256(b"22"), sha256(b""), sha256(big)]
    whole = pack(found.sources, missing)
    assert len(whole) == 3 * 40 + 2 + 0 + 3_000_001
    store, count = received(whole)
    assert count == 3
    assert {s.path for s in store.list()} == set(missing)
    assert b"".join(store.read(sha256(big))) == big


def test_an_empty_pack() -> None:
    assert pack({}, []) == b""


@pytest.mark.parametrize("new", [b"longer than before", b"2", b"", b"22222"])
def test_a_file_that_changed_since_is_named(tmp_path: Path, new: bytes) -> None:
    found = scan(str(tree(tmp_path, {"changing": b"11111", "other": b"x"})), now=NOW)
    (tmp_path / "changing").write_bytes(new)
    with pytest.raises(Conflict) as caught:
        pack(found.sources, found.sources)
    assert caught.value.code == "files_changed"
    assert str(caught.value.params["path"]).endswith("/changing")


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    (tmp_path / "f").unlink()
    with pytest.raises(Conflict, match='/f" changed'):
        pack(found.sources, found.sources)


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1" * (3 * BLOCK)})), now=NOW)
    stream = blobs._packed(found.sources, found.sources)
    next(stream), next(stream)
    with (tmp_path / "f").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"2")
    with pytest.raises(Conflict):
        list(stream)


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    os.utime(tmp_path / "f", (1, 1))
    assert pack(found.sources, found.sources).endswith(b"1")


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200), st.integers(1, 5))
def test_batches_hold_everything_once(sizes: list[int], limit: int, most: int) -> None:
    groups = list(batches(sizes, lambda size: size, limit, most))
    assert [size for group in groups for size in group] == sizes
    for group in groups:
        assert len(group) == 1 or sum(group) <= limit
        assert len(group) <= most
