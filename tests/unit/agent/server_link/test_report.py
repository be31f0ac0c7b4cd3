"""When something is said of a replica, and what: values only, and a log file to read."""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.registry import Registry, Stage, Tracked
from paddlecloud.agent.replica import notices as replica_notices
from paddlecloud.agent.replica.lifecycle import Lifecycle
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.agent.server_link import report as server_link_report
from paddlecloud.agent.server_link.report import (
    HELD_DELAY,
    HELD_REPEAT,
    LOG_DELAY,
    MAX_LOG_BYTES,
    NOT_HELD,
    START_DELAY,
    Batch,
    Reporter,
    compose,
    due,
    encode,
)
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.errors import Retry, Unreachable
from paddlecloud.model.logs.index_format import packed

NOW = 1000.0


def a_replica(
    root: Path = Path("nowhere"),
    *,
    log: bytes | None = None,
    acked: int | None = 0,
    stage: Stage = Stage.LAUNCHED,
    name: str = "job-1.1.trainer-0",
) -> Tracked:
    tracked = Tracked(id=name, fence=3, root=root / name, run=None, acked=acked)
    tracked.stage = stage
    if log is not None:
        tracked.root.mkdir()
        (tracked.root / "stdout.log").write_bytes(log)
        tracked.dirty = True
    return tracked


def over(tracked: Tracked, *, shipped: bool = True) -> Tracked:
    tracked.end(exit_record("exit", now=5.0))
    tracked.shipped = shipped
    return tracked


def started(tracked: Tracked) -> Tracked:
    tracked.started = {"pid": 7, "at": 4.0}
    tracked.started_noticed = NOW
    return tracked


def test_nothing_is_due_of_one_that_is_only_ordered_or_known_whole() -> None:
    assert due(a_replica(stage=Stage.ORDERED)) is None
    assert due(a_replica(stage=Stage.DONE)) is None
    assert due(a_replica()) is None


def test_one_of_an_earlier_agent_is_asked_about_at_once() -> None:
    assert due(a_replica(acked=None)) == 0.0


def test_a_start_waits_a_moment_for_the_end() -> None:
    tracked = started(a_replica())
    assert due(tracked) == NOW + START_DELAY
    assert due(over(tracked)) == 0.0


def test_a_start_can_be_told_without_the_log_that_finds_no_room(tmp_path: Path) -> None:
    tracked = started(a_replica(tmp_path, log=b"much"))
    silent = a_replica(tmp_path, log=b"more", name="job-2.1.trainer-0")
    batch = compose([over(tracked), silent], now=NOW + 1)
    assert len(batch.items) == 2
    bare = batch.without_logs()
    assert bare.replicas == [tracked]
    assert bare.items == [{"replica": tracked.id, "fence": 3, "started": tracked.started}]
    assert encode("a", "b", 1, bare)[4:].endswith(b"}")


def test_the_second_piece_of_a_log_waits_a_moment() -> None:
    tracked = a_replica()
    tracked.dirty = True
    assert due(tracked) == LOG_DELAY
    tracked.sent_at = NOW
    assert due(tracked) == NOW + LOG_DELAY


def test_an_end_waits_for_the_outputs_but_its_log_does_not() -> None:
    tracked = over(a_replica(), shipped=False)
    assert due(tracked) == 0.0
    tracked.dirty = False
    assert due(tracked) is None


def test_what_holds_one_up_is_told_if_it_lasts_and_then_now_and_again(tmp_path: Path) -> None:
    tracked = over(a_replica(root=tmp_path), shipped=False)
    tracked.dirty = False
    tracked.hold(replica_notices.message("held_sending"), now=100.0)
    tracked.hold(
        replica_notices.from_error(Retry("store_failed", place="p", detail="x" * 999)), now=101.0
    )
    assert due(tracked) == 100.0 + HELD_DELAY
    (item,) = compose([tracked], now=110.0).items
    assert (item["held"]["code"], len(item["held"]["params"]["detail"])) == ("store_failed", 300)
    assert due(tracked) == 110.0 + HELD_REPEAT
    tracked.shipped, tracked.held = True, None
    (item,) = compose([tracked], now=111.0).items
    assert "held" not in item


def test_one_that_waits_for_its_files_says_so_before_it_is_launched(tmp_path: Path) -> None:
    tracked = Tracked(id="r", fence=3, root=tmp_path, run=None, acked=0)
    tracked.hold(
        replica_notices.from_error(Unreachable("server_malformed", address="a")), now=100.0
    )
    (item,) = compose([tracked], now=103.0).items
    assert item["held"] == {"code": "held_no_answer", "params": {}}
    known = {"place": "bucket (host)", "reason": "timed out"}
    told = replica_notices.from_error(Unreachable("store_unreachable", **known))
    assert told == {"code": "store_unreachable", "params": known}


def test_that_nothing_holds_one_up_any_more_is_told_once(tmp_path: Path) -> None:
    tracked = a_replica(root=tmp_path)
    assert due(tracked) is None
    tracked.held_known = True
    (item,) = compose([tracked], now=NOW).items
    assert item["held"] == NOT_HELD
    tracked.held_known = False
    assert due(tracked) is None


def test_a_log_that_is_given_up_ends_where_the_server_has_it(tmp_path: Path) -> None:
    tracked = over(a_replica(tmp_path, log=b"much"))
    tracked.acked, tracked.log_given_up = 2, True
    (item,) = compose([tracked], now=NOW).items
    assert item["exited"]["log_size"] == 2
    assert "log" not in item


def test_one_that_was_refused_is_held_whatever_happens() -> None:
    tracked = over(a_replica())
    tracked.hold_until = NOW
    assert due(tracked) == NOW


def test_one_to_be_forgotten_is_not_spoken_of() -> None:
    tracked = over(a_replica())
    tracked.released = True
    assert due(tracked) is None


def test_a_short_job_takes_one_item(tmp_path: Path) -> None:
    tracked = over(started(a_replica(tmp_path, log=b"hi\n")))
    batch = compose([tracked], now=NOW)
    assert [sorted(item) for item in batch.items] == [
        ["exited", "fence", "log", "replica", "started"]
    ]
    item = batch.items[0]
    assert (item["log"]["offset"], item["log"]["length"]) == (0, 3)
    assert (item["exited"]["log_size"], item["exited"]["cause"]) == (3, "exit")
    assert batch.logs == [b"hi\n"]


def test_a_log_is_sent_with_the_times_at_which_it_was_written(tmp_path: Path) -> None:
    tracked = a_replica(tmp_path, log=b"one\ntwo\nthree\n")
    side = tracked.root / "stdout.times"
    side.write_bytes(b"".join(packed(at, size) for at, size in ((5.0, 0), (6.5, 4), (9.0, 8))))
    log = compose([tracked], now=NOW).items[0]["log"]
    assert log == {"offset": 0, "length": 14, "times": [(0, 5000), (4, 6500), (8, 9000)]}
    tracked.acked, tracked.dirty = 6, True
    log = compose([tracked], now=NOW + 1).items[0]["log"]
    assert log["times"] == [(6, 6500), (8, 9000)], "from where the server has it"
    side.write_bytes(packed(7.0, 8) + b"cut")
    tracked.dirty = True
    log = compose([tracked], now=NOW + 2).items[0]["log"]
    assert log["times"] == [(6, 7000)], "the first entries are lost"
    side.unlink()
    os.utime(tracked.root / "stdout.log", (3.0, 3.0))
    tracked.dirty = True
    assert compose([tracked], now=NOW + 3).items[0]["log"]["times"] == [(6, 3000)], "all at once"


def test_the_end_is_not_told_before_the_last_byte(tmp_path: Path) -> None:
    tracked = over(a_replica(tmp_path, log=b"x" * (MAX_LOG_BYTES + 5)))
    first = compose([tracked], now=NOW)
    assert "exited" not in first.items[0]
    assert len(first.logs[0]) == MAX_LOG_BYTES
    assert tracked.dirty
    tracked.acked = MAX_LOG_BYTES
    second = compose([tracked], now=NOW)
    log = second.items[0]["log"]
    assert (log["offset"], log["length"]) == (MAX_LOG_BYTES, 5)
    assert second.items[0]["exited"]["log_size"] == MAX_LOG_BYTES + 5


def test_a_lost_one_is_told_after_its_log(tmp_path: Path) -> None:
    tracked = a_replica(tmp_path, log=b"last words")
    tracked.end(None)
    tracked.shipped = True
    batch = compose([tracked], now=NOW)
    assert batch.items[0]["lost"] is True
    assert "exited" not in batch.items[0]
    assert batch.logs == [b"last words"]


def test_a_touched_log_without_new_bytes_is_no_news(tmp_path: Path) -> None:
    tracked = a_replica(tmp_path, log=b"old", acked=3)
    assert compose([tracked], now=NOW).items == []
    assert not tracked.dirty


def test_a_job_that_cuts_its_own_log_takes_nothing_back(tmp_path: Path) -> None:
    tracked = over(a_replica(tmp_path, log=b"new", acked=10))
    batch = compose([tracked], now=NOW)
    assert "log" not in batch.items[0]
    assert batch.items[0]["exited"]["log_size"] == 10


def test_a_lost_one_of_an_earlier_agent_is_told_after_its_log(tmp_path: Path) -> None:
    """The server takes `lost` for the last word, so it must not go along with the question."""
    tracked = a_replica(tmp_path, log=b"last words", acked=None)
    tracked.end(None)
    tracked.shipped = True
    first = compose([tracked], now=NOW)
    assert first.items[0]["log"] == {"offset": 0, "length": 0}
    assert "lost" not in first.items[0]
    tracked.acked = 4
    second = compose([tracked], now=NOW)
    assert second.logs == [b" words"]
    assert second.items[0]["lost"] is True


def test_an_end_in_the_moment_of_reading_the_log_waits_for_the_next_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the bytes that came with it would be missing at the server for good."""
    tracked = a_replica(tmp_path, log=b"first ")
    tracked.shipped = True
    read = os.pread

    def and_then_it_ends(fd: int, size: int, offset: int) -> bytes:
        piece = read(fd, size, offset)
        with (tracked.root / "stdout.log").open("ab") as log:
            log.write(b"last")
        tracked.end(None)
        return piece

    monkeypatch.setattr(os, "pread", and_then_it_ends)
    first = compose([tracked], now=NOW)
    monkeypatch.setattr(os, "pread", read)
    assert "lost" not in first.items[0]
    assert due(tracked) == 0.0
    tracked.acked = 6
    second = compose([tracked], now=NOW)
    assert second.logs == [b"last"]
    assert second.items[0]["lost"] is True


def test_nothing_is_said_of_one_that_only_its_directory_tells_of() -> None:
    tracked = a_replica(acked=None)
    tracked.fence = -1
    assert due(tracked) is None
    tracked.fence = 2
    assert due(tracked) == 0.0


def test_an_earlier_agents_replica_is_asked_about_without_bytes(tmp_path: Path) -> None:
    tracked = over(a_replica(tmp_path, log=b"12345", acked=None))
    batch = compose([tracked], now=NOW)
    assert batch.items[0]["log"] == {"offset": 0, "length": 0}
    assert batch.items[0]["exited"]["log_size"] == 5


def test_a_report_that_did_not_arrive_is_due_again(tmp_path: Path) -> None:
    tracked = a_replica(tmp_path, log=b"hi")
    batch = compose([tracked], now=NOW)
    assert due(tracked) is None
    batch.restore()
    assert due(tracked) == NOW + LOG_DELAY


def test_loud_ones_share_a_report(tmp_path: Path) -> None:
    loud = [a_replica(tmp_path, log=b"x" * MAX_LOG_BYTES, name=f"r{n}") for n in range(8)]
    batch = compose(loud, now=NOW)
    assert sum(len(piece) for piece in batch.logs) <= MAX_LOG_BYTES
    heard = {item["replica"] for item in batch.items}
    assert len(heard) >= 4
    later = compose(loud, now=NOW + 1)
    assert {item["replica"] for item in later.items} | heard == {t.id for t in loud}


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_what_is_encoded_can_be_cut_apart_again(pieces: list[bytes]) -> None:
    batch = Batch()
    for number, piece in enumerate(pieces):
        log = {"offset": 0, "length": len(piece)}
        batch.items.append({"replica": str(number), "log": log})
        batch.logs.append(piece)
    body = encode("agent", "boot", 4, batch)
    (length,) = struct.unpack(">I", body[:4])
    head = json.loads(body[4 : 4 + length])
    assert (head["agent"], head["boot"], head["seq"]) == ("agent", "boot", 4)
    rest = body[4 + length :]
    for item, piece in zip(head["items"], pieces, strict=True):
        assert rest[: item["log"]["length"]] == piece
        rest = rest[item["log"]["length"] :]
    assert rest == b""


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", ".hidden", "a\0b"])
def test_an_id_that_is_no_name_of_a_directory_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the id of a replica"):
        Registry(Path("replicas")).root(name)


def test_a_book_keeps_the_first_of_two_with_one_id() -> None:
    registry = Registry(Path("replicas"))
    first, second = a_replica(), a_replica()
    assert registry.add(first) is first
    assert registry.add(second) is first
    assert registry.busy()
    first.stage = Stage.DONE
    assert not registry.busy()
    registry.remove(first.id)
    assert registry.all() == []


def test_a_log_that_cannot_be_read_holds_up_no_other_and_is_read_later(tmp_path: Path) -> None:
    closed, good = (a_replica(tmp_path, log=b"line", name=name) for name in "ab")
    place = Path(closed.path("stdout.log"))
    place.unlink()
    place.symlink_to(place)
    batch = compose([closed, good], now=NOW)
    assert batch.replicas == [good]
    assert [tracked for tracked, _ in batch.unreadable] == [closed]
    assert closed.dirty
    moment = due(closed)
    assert moment is not None
    assert moment > NOW
    place.unlink()
    place.write_bytes(b"line")
    assert compose([closed, good], now=moment).logs == [b"line"]


class Answers:
    """A server whose first response to a report is not valid."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        self.reports: list[bytes] = []

    def call(self, _method: str, _path: str, body: bytes) -> bytes:
        self.reports.append(body)
        if len(self.reports) == 1:
            return self.first
        ack = {"replica": "job-1.1.trainer-0", "log_size": 4, "exited": False}
        return json.dumps({"acks": [ack]}).encode()

    def parsed(self, answer: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(answer)
        return found


class NoLifecycle:
    def reconcile(self, tracked: Tracked, now: float) -> None:
        """Nothing becomes of it."""


def test_a_report_whose_answer_is_not_understood_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = AgentConfig(
        path=tmp_path / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
    )
    context = Context(config, AgentLog(tmp_path / "agent.log"), cast("Spawner", None))
    notices = server_link_report.open_notices(context.notices)
    monkeypatch.setattr(server_link_report, "open_notices", lambda _path: notices)
    server = Answers(b'{"acks": [{}]}')
    context.link.channel = lambda: cast("Any", server)  # type: ignore[method-assign]
    tracked = context.registry.add(a_replica(tmp_path, log=b"line"))
    context.watch(tracked)
    reporter = Reporter(context, cast("Lifecycle", NoLifecycle()))
    thread = threading.Thread(target=reporter.work)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while tracked.acked != 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert tracked.acked == 4
        assert [report.endswith(b"line") for report in server.reports] == [True, True]
    finally:
        context.stop()
        thread.join(20)
        notices.close()
    assert not thread.is_alive()
