"""The list of files of a snapshot, from the server and from the cache: whole and right, or refused;
and how the cache is kept within its limit.

What contents do is seen with real servers and buckets in `tests/integration/agent`.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.inputs.cache import RECHECK_SECONDS, Evictable, InputCache
from paddlecloud.agent.server_link.channel import Channel
from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of

DIGEST = hashlib.sha256(b"x").hexdigest()


class Server:
    """Answers with the same text each time."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = 0

    def call(self, _method: str, _path: str, *, query: dict[str, str]) -> bytes:
        assert query == {"replica": "r"}
        self.asked += 1
        return self.answer

    def parsed(self, answer: bytes) -> dict[str, Any]:
        found = json.loads(answer)
        return found if isinstance(found, dict) else {}


def a_snapshot(*paths: str) -> Snapshot:
    files = [Entry(path=path, size=1, sha256=DIGEST) for path in paths]
    link = Entry(path="zz/link", kind=EntryKind.LINK, target="../a")
    folder = Entry(path="empty", kind=EntryKind.DIRECTORY)
    return snapshot_of([*files, link, folder])


def rows_of(snapshot: Snapshot) -> list[list[Any]]:
    return [
        [e.path, e.kind.value, e.size, e.sha256, int(e.executable), e.target]
        for e in snapshot.entries
    ]


def canonical(rows: list[list[Any]]) -> str:
    return json.dumps(rows, separators=(",", ":"))


def fetch(cache: Path, snapshot_id: str, server: Server) -> Snapshot:
    """As an agent does that has just begun: it remembers nothing but its cache."""
    return InputCache(cache, limit=1 << 30).snapshot(snapshot_id, "r", cast("Channel", server))


WANTED = a_snapshot("a", ".hidden/..file", "dir/ümlaut", "dir/new\nline", "x" * 251)
PLAIN = a_snapshot("a", "dir/.keep", "dir/b")


@pytest.mark.parametrize("wanted", [WANTED, PLAIN], ids=["odd names", "plain names"])
@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: '{"entries":' + canonical(rows) + "}",
        lambda rows: json.dumps({"entries": rows}, indent=1),
        lambda rows: json.dumps({"entries": rows[::-1], "more": []}, ensure_ascii=False),
    ],
    ids=["as it is kept", "in another form", "in another order, with more"],
)
def test_a_list_is_asked_for_once(tmp_path: Path, wanted: Snapshot, answer: Any) -> None:
    server = Server(answer(rows_of(wanted)).encode())
    assert fetch(tmp_path, wanted.id, server) == wanted
    assert fetch(tmp_path, wanted.id, server) == wanted
    assert server.asked == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b"[]",
        b'{"entries":null}',
        b'{"entries":[["a","file",1]]}',
        b'{"entries":[["a","device",1,"",0,""]]}',
        b'{"entries":' + canonical(rows_of(a_snapshot("other"))).encode() + b"}",
    ],
)
def test_another_list_is_refused_and_not_kept(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        fetch(tmp_path, PLAIN.id, Server(answer))
    assert refused.value.code == "agent_snapshot_damaged"
    server = Server(b'{"entries":' + canonical(rows_of(PLAIN)).encode() + b"}")
    assert fetch(tmp_path, PLAIN.id, server) == PLAIN
    assert server.asked == 1


def test_a_damaged_list_in_the_cache_is_asked_for_again(tmp_path: Path) -> None:
    server = Server(b'{"entries":' + canonical(rows_of(PLAIN)).encode() + b"}")
    fetch(tmp_path, PLAIN.id, server)
    (kept,) = (tmp_path / "snapshots").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    assert fetch(tmp_path, PLAIN.id, server) == PLAIN
    assert server.asked == 2


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/x", "../x", "a/../../x", "a/..", "./a", "a/.", "a//b", "a/", "a\\b"),
        *("a\0b", "x\n/../y/..", "x/" * 200 + "x", "y" * 256),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_though_its_id_is_right(
    tmp_path: Path, path: str
) -> None:
    """Only a broken server creates such an id; it gets no path of this machine."""
    rows = [["a", "file", 1, DIGEST, 0, ""], [path, "file", 1, DIGEST, 0, ""]]
    digest = hashlib.sha256(canonical(rows).encode()).hexdigest()
    server = Server(b'{"entries":' + canonical(rows).encode() + b"}")
    with pytest.raises(Invalid):
        fetch(tmp_path, f"sha256:{digest}", server)
    assert not (tmp_path / "snapshots").exists()


def test_a_link_that_leads_elsewhere_is_refused_though_its_id_is_right(tmp_path: Path) -> None:
    rows = [["a/link", "link", 0, "", 0, "../../etc/passwd"]]
    digest = hashlib.sha256(canonical(rows).encode()).hexdigest()
    with pytest.raises(Invalid):
        fetch(
            tmp_path,
            f"sha256:{digest}",
            Server(b'{"entries":' + canonical(rows).encode() + b"}"),
        )


def test_where_contents_lie_is_there_before_the_first_is_fetched(tmp_path: Path) -> None:
    inputs = InputCache(tmp_path / "cache", limit=1 << 30)
    assert Path(inputs.blobs_directory()).is_dir()


NOW = 1_800_000_000.0
MIB = 1024 * 1024


class Cache:
    """With contents of a MiB each, of which two may stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "blobs" / "aa"
        self._folder.mkdir(parents=True)
        self.inputs = InputCache(folder, limit=2 * MIB)

    def has(self, name: str, ago: float, size: int = MIB) -> None:
        path = self._folder / name
        path.write_bytes(b"")
        os.truncate(path, size)
        os.utime(path, (NOW - ago, NOW - ago))

    def names(self) -> str:
        return " ".join(sorted(path.name for path in self._folder.iterdir()))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_a_cache_above_its_limit_is_looked_at_until_it_is_within(cache: Cache) -> None:
    for ago, name in enumerate("dcba"):
        cache.has(name, ago)
    inputs = cache.inputs
    assert (inputs.prune(NOW), inputs.above_limit) == (0, True), "all were just used"
    assert not inputs.is_due(NOW + RECHECK_SECONDS - 1)
    assert inputs.is_due(NOW + RECHECK_SECONDS)
    assert inputs.prune(NOW + 61) == 2 * MIB
    assert cache.names() == "c d"
    assert inputs.prune(NOW + 90) == 0
    assert not inputs.above_limit
    assert not inputs.is_due(NOW + 10_000), "an idle agent does not look for ever"


def test_what_does_not_let_itself_be_deleted_is_tried_again(cache: Cache) -> None:
    held = [True]
    gone: list[str] = []

    def delete() -> None:
        if held:
            raise BlockingIOError(11, "in use")
        gone.append("tree")

    def trees() -> list[Evictable]:
        return [] if gone else [Evictable(int((NOW - 500) * 1e9), 3 * MIB, delete)]

    cache.has("a", 100)
    assert cache.inputs.prune(NOW, trees) == MIB
    assert cache.inputs.prune(NOW + 20, trees) == 0
    held.clear()
    assert cache.inputs.prune(NOW + 40, trees) == 3 * MIB
    assert cache.inputs.prune(NOW + 60, trees) == 0
    assert not cache.inputs.above_limit


def test_what_is_used_while_somebody_is_at_work_stays(cache: Cache) -> None:
    for name, ago in (("old", 3000.0), ("fetched", 1000.0), ("named", 500.0)):
        cache.has(name, ago, 2 * MIB)
    with cache.inputs.in_use(NOW - 2000):
        assert cache.inputs.prune(NOW) == 2 * MIB
        assert cache.names() == "fetched named"
        assert cache.inputs.above_limit
    assert cache.inputs.prune(NOW + 20) == 2 * MIB
    assert cache.names() == "named"


def test_of_what_is_there_twice_one_goes_first(cache: Cache) -> None:
    old, twice = "aa" + "0" * 62, "aa" + "1" * 62
    for name, ago in ((old, 3000.0), (twice, 100.0), ("aa" + "2" * 62, 200.0)):
        cache.has(name, ago)
    cache.inputs.mark_copied({twice: MIB, "bb" + "3" * 62: MIB})
    assert cache.inputs.prune(NOW) == MIB
    assert twice not in cache.names()
    assert old in cache.names()


def test_half_of_a_content_stays_while_it_may_be_fetched(cache: Cache) -> None:
    cache.has("whole", 500.0, 3 * MIB)
    cache.has("young.part", 1000.0)
    cache.has("left.part", 4000.0)
    assert cache.inputs.prune(NOW) == 4 * MIB
    assert cache.names() == "young.part"


def test_a_full_disk_is_worth_more_than_a_cache(cache: Cache) -> None:
    for ago, name in enumerate("dcba"):
        cache.has(name, 100.0 * ago, 1000)
    inputs = cache.inputs
    assert inputs.prune(NOW) == 0
    assert inputs.prune(NOW, is_short=lambda: "b" in cache.names()) == 2000
    assert cache.names() == "c d"
    assert inputs.prune(NOW, is_short=lambda: True) == 1000
    assert cache.names() == "d", "it was used a moment ago"


def test_a_clock_that_was_put_back_keeps_nothing_for_ever(cache: Cache) -> None:
    cache.has("future", -10_000.0, 3 * MIB)
    cache.inputs.prune(NOW + 20_000.0)  # before it was put back
    cache.has("future", -10_000.0, 3 * MIB)
    cache.inputs.above_limit = True
    assert cache.inputs.prune(NOW) == 3 * MIB


def test_as_long_as_nobody_has_said_a_limit_only_a_full_disk_counts(
    cache: Cache, tmp_path: Path
) -> None:
    for ago, name in enumerate("ba", 1):
        cache.has(name, 1000.0 * ago)
    inputs = InputCache(tmp_path, limit=None)
    inputs.grew(1 << 50)
    assert not inputs.is_due(NOW)
    assert (inputs.prune(NOW), inputs.above_limit) == (0, False)
    assert inputs.prune(NOW, is_short=lambda: "a" in cache.names()) == MIB
    inputs.set_limit(None)
    assert not inputs.is_due(NOW)
    inputs.set_limit(MIB // 2)
    assert inputs.is_due(NOW)
    assert inputs.prune(NOW) == MIB
