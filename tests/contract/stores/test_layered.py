"""A directory in front of a bucket: one store to whoever lists, reads and deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from paddlecloud.model.errors import NotFound
from paddlecloud.stores import CanLocalPath, CanMultipart, CanPresign
from paddlecloud.stores.base import CanSweep
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.logs.log_store import LogStore
from paddlecloud.stores.s3.store import S3Store
from tests.contract.stores.helpers import content, paths

HOUR = timedelta(hours=1)


@pytest.fixture
def layered(directory: DirectoryStore, s3: S3Store) -> LayeredStore:
    return LayeredStore(directory, s3)


@pytest.fixture
def logs(directory: DirectoryStore) -> Iterator[LogStore]:
    opened = LogStore(directory.root)
    yield opened
    opened.close()


def test_logs_and_files_are_listed_together(layered: LayeredStore, logs: LogStore) -> None:
    logs.append("u/output/j/log/trainer-0.log", 0, b"hello\n")
    for name in ("u/output/j/rank-0/model", "u/output/j/a", "u/blobs/x"):
        layered.write(name, [b"far"])
    assert paths(layered, "u/output/j/") == [
        "u/output/j/a",
        "u/output/j/log/trainer-0.log",
        "u/output/j/rank-0/model",
    ]
    assert content(layered, "u/output/j/log/trainer-0.log") == b"hello\n"
    assert content(layered, "u/output/j/a") == b"far"
    with layered.read("u/output/j/log/trainer-0.log", 1, 3) as reader:
        assert b"".join(reader) == b"ell"
    assert layered.sizes(["u/output/j/a", "u/output/j/log/trainer-0.log", "no"]) == {
        "u/output/j/a": 3,
        "u/output/j/log/trainer-0.log": 6,
    }
    assert layered.delete_tree("u/output/j") == 12
    assert paths(layered) == ["u/blobs/x"]


def test_what_is_in_both_is_the_one_in_front(layered: LayeredStore) -> None:
    layered.front.write("x", [b"near"])
    layered.behind.write("x", [b"far away"])
    assert paths(layered) == ["x"]
    assert content(layered, "x") == b"near"
    stat = layered.stat("x")
    assert stat is not None
    assert stat.size == 4
    layered.delete("x")
    assert layered.stat("x") is None
    with pytest.raises(NotFound):
        layered.read("x")


def test_writes_and_their_abilities_go_behind(layered: LayeredStore) -> None:
    for ability in (CanMultipart, CanPresign, CanSweep):
        assert isinstance(layered, ability)
    assert not isinstance(layered, CanLocalPath)
    now = datetime.now(UTC)
    sink = layered.open_write("a")
    sink.write(b"1")
    sink.commit()
    upload = layered.begin_parts("b", part_size=8)
    layered.put_part("b", upload, 1, b"22")
    assert [part.size for part in layered.parts("b", upload)] == [2]
    assert layered.finish_parts("b", upload, size=2).size == 2
    layered.drop_parts("c", layered.begin_parts("c", part_size=8))
    layered.flush()
    assert layered.sweep(now + HOUR) == 0
    assert paths(layered.behind) == ["a", "b"]
    assert paths(layered.front) == []
    for url in (
        layered.presign_read("a", good_for=HOUR, now=now),
        layered.presign_part("a", "upload", 3, good_for=HOUR, now=now),
    ):
        assert url.startswith("http://127.0.0.1:")
    layered.close()
