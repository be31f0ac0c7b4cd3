"""The upload of small files; the server is the receiver itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.scan.walk import BLOCK, scan
from paddlecloud.client.upload import blobs
from paddlecloud.client.upload.blobs import batches, pack
from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.errors import (
    Conflict,
    PaddleCloudError,
    Retry,
    StorageFull,
    Unreachable,
)
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


FAILED = Retry("store_failed", place="p", detail="500")


class Line:
    """An upload over a line that breaks some times: what it was to send, and what arrived."""

    def __init__(self, breaks: list[PaddleCloudError], arrives: int = 10) -> None:
        self._breaks = breaks
        self._arrives = arrives
        self._arrived = 0
        self.tries = 0

    def work(self, tell: Callable[[int, int], None]) -> None:
        """Of 100 bytes each try sends 20 more, of which some are there when the next one asks."""
        self.tries += 1
        left = 100 - self._arrived
        if not self._breaks:
            tell(left, left)
            return
        tell(10, left)
        tell(10, left)
        self._arrived += self._arrives
        raise self._breaks.pop(0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "PAUSES", (0.0, 0.0, 0.0))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("breaks", [0, 1, 3, 8])
def test_an_upload_over_a_broken_line_goes_on_as_long_as_something_arrives(breaks: int) -> None:
    line = Line([Unreachable("server_closed", address="x") for _ in range(breaks)])
    told: list[str] = []
    heard: list[tuple[int, int]] = []
    blobs.persistently(
        line.work, lambda *now: heard.append(now), lambda code, **_: told.append(code)
    )
    assert line.tries == breaks + 1
    assert told == ["upload_again"] * breaks
    assert (sum(count for count, _ in heard), {whole for _, whole in heard}) == (100, {100})


def test_several_threads_tell_their_progress_one_at_a_time() -> None:
    """Whoever draws it adds up what it hears."""
    held: list[bool] = []
    counted = blobs.Counted(lambda count, total: held.append(counted._lock.locked()))
    counted(1, 2)
    assert held == [True]


@pytest.mark.usefixtures("at_once")
def test_a_line_that_stays_broken_is_given_up_and_what_arrived_is_told() -> None:
    line = Line([Unreachable("server_closed", address="x") for _ in range(9)], arrives=0)
    told: list[str] = []
    with pytest.raises(Unreachable):
        blobs.persistently(line.work, None, lambda code, **_: told.append(code))
    assert (line.tries, told) == (4, ["upload_again", "upload_kept"])
    for lang in LANGUAGES:
        assert render("upload_kept", {}, lang) and render("upload_again", {}, lang)


@pytest.mark.usefixtures("at_once")
def test_a_store_that_fails_gets_the_bytes_once_more() -> None:
    """The server has tried several times before it says so."""
    line = Line([FAILED] * 9, arrives=0)
    told: list[str] = []
    with pytest.raises(Retry, match="500"):
        blobs.persistently(line.work, None, lambda code, **_: told.append(code))
    assert (line.tries, told) == (2, ["upload_again", "upload_kept"])


@pytest.mark.usefixtures("at_once")
def test_a_store_may_fail_after_a_line_that_broke() -> None:
    cut = Unreachable("server_closed", address="x")
    line = Line([cut, FAILED, cut], arrives=0)
    blobs.persistently(line.work, None, lambda code, **_: None)
    assert line.tries == 4


@pytest.mark.usefixtures("at_once")
def test_a_store_that_fails_now_and_then_gets_all() -> None:
    line = Line([FAILED] * 8)
    blobs.persistently(line.work, None, lambda code, **_: None)
    assert line.tries == 9


@pytest.mark.usefixtures("at_once")
def test_damage_on_the_way_is_not_told_as_silence() -> None:
    line = Line([Retry("upload_damaged", reason="another digest")])
    told: list[str] = []
    blobs.persistently(line.work, None, lambda code, **_: told.append(code))
    assert told == ["upload_again_damaged"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("begun", [True, False])
def test_a_bucket_that_never_answered_may_be_a_wrong_address(begun: bool) -> None:
    tries: list[int] = []
    params = {"bos_url": "b.bj.bcebos.com", "host": "b", "reason": "timed out"}

    def work(tell: Callable[[int, int], None]) -> None:
        tries.append(1)
        if begun:
            tell(1, 2)
        raise Unreachable("private_store_unreachable", **params)

    with pytest.raises(Unreachable):
        blobs.persistently(work, None, lambda code, **_: None)
    assert len(tries) == (4 if begun else 1)


@pytest.mark.parametrize(
    "error",
    [
        StorageFull("store_full", path="x"),
        Retry("upload_unfinished", files=1, path="x"),
        Conflict("files_changed", path="x"),
    ],
)
def test_what_a_pause_does_not_mend_is_told_at_once(error: PaddleCloudError) -> None:
    line = Line([error])
    told: list[str] = []
    with pytest.raises(type(error)):
        blobs.persistently(line.work, None, lambda code, **_: told.append(code))
    assert (line.tries, told) == (1, [])


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
    with pytest.raises(Conflict, match='/f" was changed'):
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
