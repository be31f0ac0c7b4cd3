"""The pack stream, into every kind of store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid, StorageFull
from paddlecloud.stores import Store
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.memory import MemoryStore
from paddlecloud.stores.pack import PackReceiver
from tests.contract.disk import small_disk
from tests.contract.stores.helpers import content, paths


def record(data: bytes, *, digest: bytes | None = None, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    return (digest or hashlib.sha256(data).digest()) + size.to_bytes(8, "big") + data


def receiver(store: Store) -> PackReceiver:
    return PackReceiver(lambda sha256, size: store.open_write(f"blobs/{sha256[:2]}/{sha256}"))


def blobs(store: Store) -> set[bytes]:
    return {content(store, path) for path in paths(store, "blobs/")}


@given(st.data())
def test_a_pack_cut_anywhere_is_the_same_pack(data: st.DataObject) -> None:
    files = data.draw(st.lists(st.binary(max_size=300), max_size=8))
    stream = b"".join(record(file) for file in files)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    store = MemoryStore()
    receive = receiver(store)
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        receive.feed(stream[begin:end])
    assert receive.finish() == len(files)
    assert receive.bytes == sum(map(len, files))
    assert blobs(store) == set(files)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.data())
def test_a_pack_that_ends_early_keeps_whole_files_only(
    files: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(record(file) for file in files)
    ends = {sum(40 + len(f) for f in files[:n]) for n in range(len(files) + 1)}
    cut = data.draw(st.integers(0, len(stream)).filter(lambda n: n not in ends))
    store = MemoryStore()
    receive = receiver(store)
    receive.feed(stream[:cut])
    with pytest.raises(Invalid) as caught:
        receive.finish()
    assert caught.value.code == "pack_malformed"
    assert blobs(store) <= set(files)


def test_a_pack_with_a_wrong_digest(store: Store) -> None:
    receive = receiver(store)
    with pytest.raises(Invalid) as caught:
        receive.feed(record(b"good") + record(b"bad", digest=b"\1" * 32) + record(b"after"))
    assert caught.value.code == "blob_digest"
    assert blobs(store) == {b"good"}


def test_a_pack_with_an_absurd_length(store: Store) -> None:
    with pytest.raises(Invalid) as caught:
        receiver(store).feed(record(b"", length=2**64 - 1))
    assert caught.value.code == "pack_malformed"
    assert paths(store) == []


def test_a_pack_skips_what_is_here_already() -> None:
    receive = PackReceiver(lambda sha256, size: None)
    receive.feed(record(b"one") + record(b"two"))
    assert (receive.finish(), receive.bytes) == (2, 0)


def test_a_pack_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="1m") as place:
        store = DirectoryStore(place)
        receive = receiver(store)
        with pytest.raises(StorageFull):
            receive.feed(record(b"small") + record(b"z" * 2_000_000))
        assert blobs(store) == {b"small"}
        assert list((place / ".tmp").iterdir()) == []
        store.close()
