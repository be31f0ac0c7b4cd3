"""Outputs on their way back to the next attempt: whole and checked, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.outputs.sent_files import SentFiles
from paddlecloud.agent.registry import Stage, StopRequest, Tracked
from paddlecloud.agent.replica import records
from paddlecloud.agent.replica._restore_outputs import restore
from paddlecloud.agent.server_link.channel import Channel
from paddlecloud.model.errors import Invalid, Retry

WHEN = 1_700_000_000.25


class Server:
    """Answers for the outputs of one replica; `damage` changes what it sends."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.damage: Callable[[bytes], bytes] = lambda sent: sent
        self.sent: list[str] = []

    def json(self, _method: str, path: str) -> dict[str, Any]:
        assert path.endswith("/outputs")
        return {"files": [[name, len(data), WHEN] for name, data in self.files.items()]}

    def call(self, _method: str, path: str, *, sink: Callable[[bytes], object]) -> None:
        name = path.partition("/outputs/")[2]
        self.sent.append(name)
        data = self.files[name]
        whole = self.damage(data + hashlib.sha256(data).digest())
        for start in range(0, len(whole), 7):
            sink(whole[start : start + 7])


def replica(folder: Path, name: str) -> Tracked:
    (folder / name / "output").mkdir(parents=True)
    return Tracked(id=name, fence=1, root=folder / name, run=None, acked=0)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def told(tracked: Tracked) -> dict[str, str]:
    """The digests in the list that the server gets in the end."""
    return {name: digest for name, _, _, digest in SentFiles(tracked.root).rows()}


def fill(server: Server, tracked: Tracked, earlier: Tracked | None = None) -> str:
    return restore(tracked, earlier, cast(Channel, server), owner=None)


def test_files_come_back_and_need_not_be_shipped_again(tmp_path: Path) -> None:
    server, tracked = Server({"ckpt/1/w": b"weights" * 5, "empty": b""}), replica(tmp_path, "two")
    assert fill(server, tracked) == "2 files downloaded"
    assert (tracked.root / "output/ckpt/1/w").read_bytes() == b"weights" * 5
    assert (tracked.root / "output/empty").stat().st_mtime == WHEN
    shipped = SentFiles(tracked.root)
    assert [shipped.has(found) for found in scan.scan(tracked.root)] == [True, True]


def test_a_second_try_fetches_only_what_is_missing(tmp_path: Path) -> None:
    server, tracked = Server({"a": b"1", "b": b"2"}), replica(tmp_path, "two")
    fill(server, tracked)
    (tracked.root / "output" / "b").unlink()
    fill(server, tracked)
    assert server.sent == ["a", "b", "b"]
    assert told(tracked) == {"output/a": sha256(b"1"), "output/b": sha256(b"2")}


def test_what_came_back_is_listed_with_its_digest(tmp_path: Path) -> None:
    server, tracked = Server({"ckpt/w": b"weights", "empty": b""}), replica(tmp_path, "two")
    fill(server, tracked)
    want = {f"output/{name}": sha256(data) for name, data in server.files.items()}
    assert told(tracked) == want


def test_what_the_job_changes_then_is_another_file(tmp_path: Path) -> None:
    tracked = replica(tmp_path, "two")
    fill(Server({"w": b"weights"}), tracked)
    (tracked.root / "output" / "w").write_bytes(b"WEIGHTS")
    (found,) = scan.scan(tracked.root)
    assert not SentFiles(tracked.root).has(found)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda sent: b"X" + sent[1:], id="another byte"),
        pytest.param(lambda sent: sent[:-1], id="cut short"),
        pytest.param(lambda sent: sent[:3], id="cut in the content"),
        pytest.param(lambda sent: sent + b"!", id="too long"),
    ],
)
def test_what_arrives_damaged_is_asked_for_again_and_then_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    server, tracked = Server({"n": b"content"}), replica(tmp_path, "two")
    server.damage = damage
    with pytest.raises(Invalid) as error:
        fill(server, tracked)
    assert error.value.code == "agent_output_damaged"
    assert server.sent == ["n"] * 3
    assert not (tracked.root / "output" / "n").exists()


def test_a_path_that_leads_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        fill(Server({"../../evil": b"x"}), replica(tmp_path, "two"))


def test_a_replica_that_is_to_stop_waits_for_nothing(tmp_path: Path) -> None:
    tracked = replica(tmp_path, "two")
    tracked.stop = StopRequest(grace=0.0, cause="stopped")
    with pytest.raises(Retry):
        fill(Server({"n": b"x"}), tracked)


@pytest.mark.parametrize("whole", [True, False])
def test_only_what_the_server_has_whole_is_moved(tmp_path: Path, whole: bool) -> None:
    server, tracked = Server({"n": b"shipped"}), replica(tmp_path, "two")
    earlier = replica(tmp_path, "one")
    (earlier.root / "output" / "n").write_bytes(b"here")
    earlier.stage, earlier.started, earlier.shipped = Stage.OVER, {"pid": 1, "at": 1.0}, whole
    fill(server, tracked, earlier)
    want = b"here" if whole else b"shipped"
    assert (tracked.root / "output" / "n").read_bytes() == want
    assert (earlier.root / "output").exists() is not whole


def test_one_that_is_deleted_while_it_is_taken_over_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, tracked = Server({"n": b"shipped"}), replica(tmp_path, "two")
    earlier = replica(tmp_path, "one")
    (earlier.root / "output" / "n").write_bytes(b"here")
    earlier.stage, earlier.started, earlier.shipped = Stage.OVER, {"pid": 1, "at": 1.0}, True
    read = records.read

    def read_then_delete(path: Path) -> Any:
        marks = read(path)
        if earlier.root.exists():
            earlier.root.rename(tmp_path / "trash")
        return marks

    monkeypatch.setattr(records, "read", read_then_delete)
    assert restore(tracked, earlier, cast(Channel, server), owner=None) == "1 files downloaded"
    assert (tracked.root / "output" / "n").read_bytes() == b"shipped"


def test_what_was_moved_before_a_restart_is_not_fetched_again(tmp_path: Path) -> None:
    server, tracked = Server({"n": b"shipped"}), replica(tmp_path, "two")
    earlier = replica(tmp_path, "one")
    (earlier.root / "output" / "n").write_bytes(b"here")
    earlier.stage, earlier.started, earlier.shipped = Stage.OVER, {"pid": 1, "at": 1.0}, True
    for _ in range(2):
        assert fill(server, tracked, earlier) == "moved from the previous attempt"
    assert server.sent == []
    assert (tracked.root / "output" / "n").read_bytes() == b"here"
