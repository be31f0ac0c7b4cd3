"""The upload stream of small files; the server is the receiver itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.scanning import BLOCK, scan
from paddlecloud.client.uploading import batches, pack
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
    stream, length = pack(found.sources, missing)
    chunks = list(stream)
    assert max(map(len, chunks)) == BLOCK
    assert min(map(len, chunks)) > 0
    whole = b"".join(chunks)
    assert len(whole) == length == 3 * 40 + 2 + 0 + 3_000_001
    assert b"".join(stream) == whole
    store, count = received(whole)
    assert count == 3
    assert {s.path for s in store.list()} == set(missing)
    assert b"".join(store.read(sha256(big))) == big


def test_an_empty_pack(tmp_path: Path) -> None:
    stream, length = pack({}, [])
    assert (list(stream), length) == ([], 0)


@pytest.mark.parametrize("new", [b"longer than before", b"2", b"", b"22222"])
def test_a_file_that_changed_since_is_named(tmp_path: Path, new: bytes) -> None:
    found = scan(str(tree(tmp_path, {"changing": b"11111", "other": b"x"})), now=NOW)
    (tmp_path / "changing").write_bytes(new)
    stream, _ = pack(found.sources, list(found.sources))
    with pytest.raises(Conflict) as caught:
        list(stream)
    assert caught.value.code == "files_changed"
    assert str(caught.value.params["path"]).endswith("/changing")


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    (tmp_path / "f").unlink()
    with pytest.raises(Conflict, match="/f was changed"):
        list(pack(found.sources, list(found.sources))[0])


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1" * (3 * BLOCK)})), now=NOW)
    stream = iter(pack(found.sources, list(found.sources))[0])
    next(stream)
    with (tmp_path / "f").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"2")
    with pytest.raises(Conflict):
        list(stream)


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    found = scan(str(tree(tmp_path, {"f": b"1"})), now=NOW)
    os.utime(tmp_path / "f", (1, 1))
    assert b"".join(pack(found.sources, list(found.sources))[0]).endswith(b"1")


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200))
def test_batches_hold_everything_once(sizes: list[int], limit: int) -> None:
    sources = {str(n): ("", size, "") for n, size in enumerate(sizes)}
    groups = list(batches(sources, sources, limit))
    assert [digest for group in groups for digest in group] == list(sources)
    for group in groups:
        assert len(group) == 1 or sum(40 + sources[d][1] for d in group) <= limit
