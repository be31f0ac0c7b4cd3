"""The list of files of a snapshot, from the server and from the cache: whole and right, or refused.

What contents do is seen with real servers and buckets in `tests/integration/runtime`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.model.errors import Invalid
from paddlecloud.model.snapshot import Entry, EntryKind, Snapshot, snapshot_of
from paddlecloud.runtime.link import Channel
from paddlecloud.runtime.materials import Materials

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
    return Materials(cache, limit=1 << 30).snapshot(snapshot_id, "r", cast("Channel", server))


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
        *("", "/etc/x", "../x", "a/../../x", "a/..", "./a", "a/.", "a//b", "a/", "c:x", "a\\b"),
        *("a\0b", "x\n/../y/..", "x/" * 200 + "x", "y" * 256),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_though_its_id_is_right(
    tmp_path: Path, path: str
) -> None:
    """Nobody but a server gone wrong makes such an id; it gets no path of this machine."""
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
    materials = Materials(tmp_path / "cache", limit=1 << 30)
    assert materials.place("given") == "given"
    assert Path(materials.place(None)).is_dir()
