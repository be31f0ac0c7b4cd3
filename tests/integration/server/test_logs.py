"""Reading logs: from a time on, of all workers, of the one that failed, lines that match."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from paddlecloud.model.logs.frames import Frames
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.testing import item
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, eventually

Order = Mapping[str, Any]


def grown(world: World, order: Order, data: bytes, offset: int = 0) -> int:
    """A piece of a log; the offset after it."""
    world.agent.log(order, offset, data)
    return offset + len(data)


def refused(world: World, job_id: str, **query: object) -> tuple[int, str]:
    reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/logs", query)
    return reply.status, reply.code


def frames(world: World, job_id: str, **query: object) -> list[tuple[str, int, bytes]]:
    parsed = Frames().feed(world.log(job_id, frames=1, **query))
    return [(worker, reached, data) for worker, reached, data, _ in parsed]


def orders_of(world: World, job_id: str) -> list[Order]:
    """The orders to run its workers, by their names."""
    found = [order for order in world.agent.poll() if order["job"] == job_id]
    return sorted(found, key=lambda order: str(order["replica"]))


@pytest.fixture
def gang(make_world: MakeWorld) -> tuple[World, str, list[Order]]:
    """Two trainers that have begun."""
    world = make_world(pools={"local": {"node": "node", "cpu": "4"}})
    job_id = world.submit(instance_count=2, distribute_job_type="NCCL2")
    world.plan()
    orders = orders_of(world, job_id)
    assert len(orders) == 2
    return world, job_id, orders


def test_from_a_time_on(world: World) -> None:
    job_id, order = world.placed()
    size = grown(world, order, b"one\n")
    world.clock.move(minutes=10)
    size = grown(world, order, b"two\n", size)
    world.clock.move(minutes=10)
    grown(world, order, b"three\n", size)
    moment = world.clock().isoformat()
    assert world.log(job_id, since="15m") == b"two\nthree\n"
    assert world.log(job_id, since="1d") == b"one\ntwo\nthree\n"
    assert world.log(job_id, since=moment) == b"three\n"
    assert world.log(job_id, since="15m", tail=1) == b"three\n"
    world.clock.move(minutes=1)
    assert world.log(job_id, since="5s") == b""
    assert refused(world, job_id, since="soon") == (400, "since_invalid")


def test_workers_are_merged_in_the_order_of_time(gang: tuple[World, str, list[Order]]) -> None:
    world, job_id, (first, second) = gang
    one = grown(world, first, b"a1\n")
    world.clock.move(seconds=2)
    two = grown(world, second, b"b1\n")
    world.clock.move(seconds=2)
    one = grown(world, first, b"a2\n", one)
    world.clock.move(seconds=2)
    two = grown(world, second, b"b2\nrest", two)
    want = b"[trainer-0] a1\n[trainer-1] b1\n[trainer-0] a2\n[trainer-1] b2\n[trainer-1] rest"
    assert world.log(job_id, merge=1) == want
    assert world.log(job_id, merge=1, worker="trainer-1") == (
        b"[trainer-1] b1\n[trainer-1] b2\n[trainer-1] rest"
    )
    assert world.log(job_id, merge=1, tail=1) == b"[trainer-0] a2\n[trainer-1] rest"
    told = frames(world, job_id, merge=1)
    assert [(worker, reached) for worker, reached, _ in told] == [
        ("trainer-0", 3),
        ("trainer-1", 3),
        ("trainer-0", 6),
        ("trainer-1", 6),
        ("trainer-1", 10),
    ]
    assert world.log(job_id, merge=1, at="trainer-0:3,trainer-1:6") == (
        b"[trainer-0] a2\n[trainer-1] rest"
    )
    assert refused(world, job_id, merge=1, at="trainer-0") == (400, "query_invalid")
    assert world.log(job_id, merge="auto") == want, "it has several workers"
    assert world.log(job_id, merge="auto", worker="trainer-0") == world.log(job_id) == b"a1\na2\n"
    assert refused(world, job_id, merge=2) == (400, "query_invalid")


def test_the_only_worker_of_a_job_is_not_named(world: World) -> None:
    job_id, order = world.placed()
    grown(world, order, b"a1\n")
    reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/logs", {"merge": "auto", "frames": 1})
    assert (reply.body, reply.headers.get("x-log-merged")) == (b"a1\n", None)
    assert reply.headers["x-log-worker"] == "trainer-0"


def test_each_line_with_its_time(gang: tuple[World, str, list[Order]]) -> None:
    world, job_id, (first, second) = gang
    size = grown(world, first, b"a1\na")
    world.clock.move(milliseconds=20)
    grown(world, second, b"b1\n")
    world.clock.move(milliseconds=20)
    grown(world, first, b"2\n", size)
    times = [
        (world.clock() - timedelta(milliseconds=back)).isoformat(timespec="milliseconds")[:-6]
        for back in (40, 20, 0)
    ]
    got = world.log(job_id, merge="auto", times=1).decode().splitlines()
    assert got == [
        f"[trainer-0] {times[0]}Z a1",
        f"[trainer-1] {times[1]}Z b1",
        f"[trainer-0] {times[2]}Z a2",
    ]
    alone = world.log(job_id, worker="trainer-1", times=1).decode()
    assert alone == f"{times[1]}Z b1\n"
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, job_id, worker="trainer-1", times=1, follow=1)
        eventually(lambda: ("log", f"{job_id}/1/trainer-1") in world.deps.hub._waiters)
        world.clock.move(seconds=5)
        grown(world, second, b"b2\n", 3)
        world.agent.exit(second, 0, log_size=6)
        world.agent.exit(first, 0, log_size=size + 2)
        later = world.clock().isoformat(timespec="milliseconds")[:-6]
        assert following.result(20).decode() == f"{alone}{later}Z b2\n"


@pytest.mark.parametrize("ahead", [0, 1, 3600, -86400])
def test_lines_are_in_the_order_in_which_they_were_written(
    gang: tuple[World, str, list[Order]], ahead: int
) -> None:
    """The agent was away from the server for ten seconds, and its clock may be wrong."""
    world, job_id, orders = gang
    clock = round((world.clock().timestamp() + ahead) * 1000)
    for name, order in zip("ab", orders, strict=True):
        late = 10_000 if name == "a" else 7_500
        times = [(0, clock - late), (3, clock - late + 5_000)]
        log = {"offset": 0, "length": 6, "times": times}
        written = f"{name}1\n{name}2\n".encode()
        world.agent.report(item(order, log=log), log=written, clock=clock)
    assert world.log(job_id, merge="auto") == (
        b"[trainer-0] a1\n[trainer-1] b1\n[trainer-0] a2\n[trainer-1] b2\n"
    )
    shown = world.log(job_id, worker="trainer-0", times=1).decode()
    first = datetime.fromisoformat(shown.partition(" ")[0])
    skipped = timedelta(seconds=10 - (ahead if abs(ahead) < 2 else 0))
    assert abs(world.clock() - skipped - first) < timedelta(seconds=0.1)


def test_merged_workers_are_followed_to_the_end(gang: tuple[World, str, list[Order]]) -> None:
    world, job_id, (first, second) = gang
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, job_id, merge=1, follow=1)
        topic = ("log", f"{job_id}/1/trainer-1")
        eventually(lambda: topic in world.deps.hub._waiters)
        for number in range(5):
            grown(world, first, b"a%d\n" % number, 3 * number)
            grown(world, second, b"b%d\n" % number, 3 * number)
        grown(world, second, b"the end", 15)
        world.agent.exit(first, 0, log_size=15)
        world.agent.exit(second, 0, log_size=22)
        lines = following.result(20).splitlines()
    assert [line for line in lines if line.startswith(b"[trainer-0] ")] == [
        b"[trainer-0] a%d" % number for number in range(5)
    ]
    assert [line for line in lines if line.startswith(b"[trainer-1] ")] == [
        *(b"[trainer-1] b%d" % number for number in range(5)),
        b"[trainer-1] the end",
    ]
    assert len(lines) == 11


def test_who_follows_all_workers_may_come_before_they_are_there(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "4"}})
    job_id = world.submit(instance_count=2, distribute_job_type="NCCL2")
    assert world.log(job_id, merge=1) == b""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, job_id, merge=1, follow=1)
        eventually(lambda: ("job", job_id) in world.deps.hub._waiters)
        world.plan()
        for order in orders_of(world, job_id):
            world.agent.run(order, b"hello\n")
        got = following.result(20)
    assert sorted(got.splitlines()) == [b"[trainer-0] hello", b"[trainer-1] hello"]


def test_the_log_of_the_worker_that_failed(gang: tuple[World, str, list[Order]]) -> None:
    world, job_id, (first, second) = gang
    assert refused(world, job_id, failed=1) == (404, "logs_nothing_failed")
    world.agent.start(first)
    world.agent.start(second)
    grown(world, second, b"broken\n")
    world.agent.exit(second, 3, log_size=7)
    world.agent.exit(first, 0, log_size=0)
    assert world.state(job_id) == "failed"
    reply = world.raw(f"/api/v1/jobs/{job_id}/logs", failed=1)
    assert (reply.body, reply.headers["x-log-worker"]) == (b"broken\n", "trainer-1")


def test_the_attempt_that_failed_of_a_job_that_went_on(world: World) -> None:
    job_id, order = world.placed(max_retries=1, retry_exit_codes="any")
    grown(world, order, b"first\n")
    world.agent.exit(order, 3, log_size=6)
    world.clock.move(minutes=10)
    world.plan()
    world.agent.run(world.agent.order(job_id), b"second\n")
    assert world.state(job_id) == "success"
    reply = world.raw(f"/api/v1/jobs/{job_id}/logs", failed=1)
    assert (reply.body, reply.headers["x-log-attempt"]) == (b"first\n", "1")
    assert refused(world, job_id, failed=1, attempt=2) == (404, "logs_nothing_failed")


def test_lines_that_match(world: World) -> None:
    job_id, order = world.placed()
    data = b"step 1 loss 0.5\nwarn\n\x00\xff loss 7\nstep 2 loss 0.25\nloss without an end"
    grown(world, order, data)
    want = b"step 1 loss 0.5\n\x00\xff loss 7\nstep 2 loss 0.25\nloss without an end\n"
    assert world.log(job_id, grep="loss") == want
    assert world.log(job_id, grep=r"loss 0\.\d+$") == b"step 1 loss 0.5\nstep 2 loss 0.25\n"
    assert world.log(job_id, grep="loss", tail=2) == b"step 2 loss 0.25\nloss without an end\n"
    assert world.log(job_id, grep="absent") == b""
    told = frames(world, job_id, grep="warn", complete=1)
    assert b"".join(line for _, _, line in told) == b"warn\n"
    assert told[-1][:2] == ("trainer-0", data.rindex(b"\n") + 1)
    assert frames(world, job_id, grep="warn")[-1] == ("trainer-0", len(data), b"")


def test_a_search_in_what_is_not_there_finds_nothing(world: World) -> None:
    assert world.log(world.submit(), grep="x") == b""


def test_matching_lines_of_all_workers(gang: tuple[World, str, list[Order]]) -> None:
    world, job_id, (first, second) = gang
    one = grown(world, first, b"a1 loss\nno\n")
    world.clock.move(seconds=2)
    grown(world, second, b"b1 loss\nno\n")
    world.clock.move(seconds=2)
    grown(world, first, b"a2 loss\n", one)
    want = b"[trainer-0] a1 loss\n[trainer-1] b1 loss\n[trainer-0] a2 loss\n"
    assert world.log(job_id, merge=1, grep="loss") == want


def test_a_pattern_that_would_backtrack_for_ever_takes_no_time(world: World) -> None:
    job_id, order = world.placed()
    line = b"a" * 100_000 + b"b\n"
    grown(world, order, line)
    assert world.log(job_id, grep="^(a+)+$") == b""
    assert world.log(job_id, grep="^(a+)+b$") == line


def test_matching_lines_are_followed_to_the_end(world: World) -> None:
    job_id, order = world.placed()
    size = grown(world, order, b"loss 1\nno\nlo")
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(frames, world, job_id, grep="loss", follow=1)
        topic = ("log", f"{job_id}/1/trainer-0")
        eventually(lambda: topic in world.deps.hub._waiters)
        size = grown(world, order, b"ss 2\nno\n", size)
        size = grown(world, order, b"loss 3", size)
        world.agent.exit(order, 0, log_size=size)
        received = following.result(20)
    assert b"".join(data for _, _, data in received) == b"loss 1\nloss 2\nloss 3\n"
    assert received[-1][:2] == ("trainer-0", size)


def test_a_long_search_shows_how_far_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddlecloud.server.services.logs.read.MAX_BLOCKS", 2)
    job_id, order = world.placed()
    data = b"0123456789abcde\n" * 100_000
    grown(world, order, data)
    received = frames(world, job_id, grep="absent")
    assert len(received) >= 3
    assert {frame[2] for frame in received} == {b""}
    assert received[-1][1] == len(data)


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1"])
def test_what_cannot_be_searched_is_refused(world: World, pattern: str) -> None:
    assert refused(world, world.submit(), grep=pattern) == (400, "grep_invalid")


def test_bytes_are_given_as_they_came(world: World) -> None:
    job_id, order = world.placed()
    data = bytes(range(256)) + b"\r10%\r20%\r\n" + b"x" * 10_000_000 + b"\nlast"
    for begin in range(0, len(data), 4_000_000):
        grown(world, order, data[begin : begin + 4_000_000], begin)
    assert world.log(job_id) == data
    assert world.log(job_id, offset=len(data) - 6) == data[-6:]
    assert world.log(job_id, tail=2) == data[-10_000_005:]
    assert world.log(job_id, grep="x{100}") == b"x" * 10_000_000 + b"\n"
    merged = world.log(job_id, merge=1)
    assert merged.endswith(b"[trainer-0] " + b"x" * 10_000_000 + b"\n[trainer-0] last")


def test_a_follower_is_handed_what_comes_without_a_look_at_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, job_id, follow=1)
        topic = ("log", f"{job_id}/1/trainer-0")
        waiters = world.deps.hub._waiters
        eventually(lambda: any(w._sleep is not None for w in waiters.get(topic, ())))
        reads: list[int] = []
        read = world.deps.logs.read

        def noting(path: str, offset: int, limit: int) -> bytes:
            reads.append(offset)
            return read(path, offset, limit)

        monkeypatch.setattr(world.deps.logs, "read", noting)
        for number in range(50):
            grown(world, order, b"%04d\n" % number, 5 * number)
        assert reads == []
        world.agent.exit(order, 0, log_size=250)
        assert following.result(20) == b"".join(b"%04d\n" % number for number in range(50))


def test_the_times_of_a_log_go_with_the_job(world: World) -> None:
    _, order = world.placed()
    size = grown(world, order, b"one\n")
    world.clock.move(seconds=5)
    grown(world, order, b"two\n", size)
    world.agent.exit(order, 0, log_size=8)
    times = world.deps.settings.store_dir / ".times"
    assert list(times.rglob("*.log"))
    world.clock.move(days=400)
    assert garbage_collection.collect(world.deps).jobs == 1
    assert not list(times.rglob("*.log"))


def test_a_package_that_is_not_installed_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment that is older than the program."""
    job_id, order = world.placed()
    world.agent.run(order, b"loss 1\n")
    monkeypatch.setitem(sys.modules, "re2", None)
    reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/logs", {"grep": "loss"})
    assert (reply.status, reply.code) == (500, "server_package_missing")
    assert "the server lacks the package re2" in json.loads(reply.body)["error"]["message"]
