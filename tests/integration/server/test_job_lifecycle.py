"""The life of a job, played over HTTP by a scripted agent: reports in every order, and kills."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paddlecloud.model.errors import Conflict
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.agents import lost_agents
from paddlecloud.server.services.agents import orders as agents_orders
from paddlecloud.testing import item
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, eventually


def test_from_submit_to_success(world: World) -> None:
    job_id, order = world.placed(cpu=0.5, memory=64 * 2**20, wall_time=60, env={"A": "b"})
    run = order["run"]
    assert (run["command"], run["worker"], run["rank"]) == ("sh run.sh", "trainer-0", 0)
    assert (run["cpu_limit"], run["memory_limit"], run["max_seconds"]) == (0.5, 64 * 2**20, 60)
    assert (run["env"]["A"], run["env"]["JOB_ID"]) == ("b", job_id)
    assert "placed in pool local" in world.look(job_id)["queue_reason"]
    world.agent.start(order, pid=77)
    view = world.look(job_id)
    assert (view["job_status"], view["instance_ids_list"]) == ("running", ["77"])
    assert view["queue_reason"] == ""
    assert world.agent.log(order, 0, b"hello\n") == 6
    answer = world.agent.exit(order, 0, log_size=6, max_rss=1000, cpu_seconds=0.5)
    assert answer == {
        "acks": [{"replica": order["replica"], "log_size": 6, "exited": True}],
        "stale": [],
    }
    view = world.look(job_id)
    assert (view["job_status"], view["exit_code"], view["error_msg"]) == ("success", 0, "")
    assert view["workers"][0]["log_bytes"] == 6
    assert world.log(job_id) == b"hello\n"
    events = world.user.get(f"/api/v1/jobs/{job_id}/history")["history"]
    assert [row["event"] for row in events] == ["accepted", "started", "succeeded"]


def test_log_pieces_may_repeat_overlap_and_leave_gaps(world: World) -> None:
    job_id, order = world.placed()
    assert world.agent.log(order, 4, b"gap") == 0
    assert world.agent.log(order, 0, b"0123") == 4
    assert world.agent.log(order, 0, b"0123") == 4
    assert world.agent.log(order, 2, b"2345") == 6
    assert world.agent.log(order, 9, b"9") == 6
    assert world.log(job_id) == b"012345"
    assert world.log(job_id, offset=4) == b"45"
    assert world.log(job_id, offset=99) == b""


def test_several_replicas_share_a_report(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "2"}})
    (first, a), (second, b) = world.placed(), world.placed()
    items = [
        item(order, started={"pid": 1, "at": 0.0}, log={"offset": 0, "length": length})
        for order, length in ((a, 3), (b, 2))
    ]
    answer = world.agent.report(*items, log=b"aaabb")
    assert [ack["log_size"] for ack in answer["acks"]] == [3, 2]
    assert (world.log(first), world.log(second)) == (b"aaa", b"bb")


def test_an_exit_before_the_log_is_whole_is_not_accepted(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"half")
    assert world.agent.exit(order, 0, log_size=8)["acks"][0] == {
        "replica": order["replica"],
        "log_size": 4,
        "exited": False,
    }
    assert world.state(job_id) == "running"
    note = {"cause": "exit", "exit_code": 0, "log_size": 8}
    last = item(order, log={"offset": 4, "length": 4}, exited=note)
    assert world.agent.report(last, log=b"half")["acks"][0]["exited"] is True
    assert (world.state(job_id), world.log(job_id)) == ("success", b"halfhalf")


def test_a_report_after_the_end_is_answered_the_same(world: World) -> None:
    job_id, order = world.placed()
    world.agent.log(order, 0, b"bye")
    first = world.agent.exit(order, 3, log_size=3)
    before = world.job(job_id)
    assert world.agent.exit(order, 3, log_size=3) == first
    world.agent.start(order)
    assert world.agent.exit(order, 0, log_size=3) == first
    assert world.job(job_id) == before


@pytest.mark.parametrize(
    "change", [{"fence": 0}, {"replica": "job-1.1.trainer-0"}, {"replica": ""}]
)
def test_a_stale_or_unknown_replica_is_listed_and_changes_nothing(
    world: World, change: dict[str, Any]
) -> None:
    job_id, order = world.placed()
    wrong = item(order, started={"pid": 1, "at": 0.0}, log={"offset": 0, "length": 3}) | change
    right = item(order, log={"offset": 0, "length": 2})
    answer = world.agent.report(wrong, right, log=b"xxxok")
    assert answer["stale"] == [wrong["replica"]]
    assert [ack["log_size"] for ack in answer["acks"]] == [2]
    assert (world.state(job_id), world.log(job_id)) == ("schedule", b"ok")


def test_the_agent_of_another_node_has_no_say(world: World) -> None:
    job_id, order = world.placed()
    stranger = world.agent_of("node-9")
    assert stranger.start(order)["stale"] == [order["replica"]]
    assert stranger.upload(order, "model", b"x").code == "fence_stale"
    where = "/api/v1/agent/snapshots/" + order["run"]["snapshot"]
    reply = stranger.caller.call("GET", where, {"replica": order["replica"]})
    assert (reply.status, reply.code) == (404, "replica_unknown")
    assert world.state(job_id) == "schedule"
    stranger.name = "node-0"
    with pytest.raises(Exception, match="identifies itself as node-0"):
        stranger.poll()


def test_an_agent_reads_the_files_of_its_replica_and_no_others(world: World) -> None:
    _, order = world.placed()
    agent, snapshot = world.agent.caller, order["run"]["snapshot"]
    entries = agent.get(f"/api/v1/agent/snapshots/{snapshot}", replica=order["replica"])["entries"]
    assert [row[0] for row in entries] == ["run.sh"]
    blob = agent.call("GET", f"/api/v1/agent/blobs/{entries[0][3]}", {"replica": order["replica"]})
    assert blob.body == b"echo hi\n"
    query = {"replica": order["replica"], "offset": "5"}
    rest = agent.call("GET", f"/api/v1/agent/blobs/{entries[0][3]}", query)
    assert rest.body == b"hi\n"
    other = world.snapshot({"secret": b"secret"}, world.caller("another"))
    reply = agent.call("GET", f"/api/v1/agent/snapshots/{other}", {"replica": order["replica"]})
    assert (reply.status, reply.code) == (404, "snapshot_unknown")
    path = f"/api/v1/agent/blobs/{'0' * 64}"
    assert agent.call("GET", path, {"replica": order["replica"]}).status == 404


def test_failure_words_reach_the_person(world: World) -> None:
    job_id, order = world.placed()
    log = (
        b"".join(b"line %d\n" % n for n in range(50)) + b"ModuleNotFoundError: No module named 'x'"
    )
    world.agent.log(order, 0, log)
    world.agent.exit(order, 1, log_size=len(log))
    view = world.look(job_id)
    assert (view["job_status"], view["exit_code"]) == ("failed", 1)
    cause = "ModuleNotFoundError: No module named 'x'"
    assert view["error_msg"] == f"trainer-0 exited with code 1: {cause}"
    failure = view["failure"]
    assert len(failure["last_lines"]) == 20
    assert failure["last_lines"][-1].startswith("ModuleNotFoundError")
    assert "install the module x" in failure["advice"]
    zh = world.user.call("GET", f"/api/v1/jobs/{job_id}", headers={"accept-language": "zh"}).json()
    assert zh["error_msg"] == f"trainer-0 以退出码 1 结束：{cause}"


ENDS: list[tuple[dict[str, Any], str, str]] = [
    ({"exit_code": 127}, "failed", "could not find"),
    ({"exit_code": None, "signal": 9, "oom": True}, "failed", "ran out of memory"),
    ({"exit_code": None, "signal": 11}, "failed", "segmentation fault"),
    ({"exit_code": None, "cause": "start_failed", "message": "no space"}, "failed", "no space"),
    ({"exit_code": None, "signal": 15, "cause": "wall_time"}, "timeout", "wall_time of 00:01:00"),
    ({"exit_code": 0, "started_at": 1e300}, "success", ""),
]


@pytest.mark.parametrize(("record", "state", "words"), ENDS)
def test_every_kind_of_end_is_told_apart(
    world: World, record: dict[str, Any], state: str, words: str
) -> None:
    job_id, order = world.placed(wall_time=60)
    world.agent.exit(order, **record)
    view = world.look(job_id)
    assert view["job_status"] == state
    assert words in view["error_msg"]


def test_why_it_could_not_start_is_told_in_one_language(world: World) -> None:
    """Of a start by the agent and of an end that left outputs: both carry a sentence of ours."""
    job_id, order = world.placed()
    said = {"code": "agent_workspace_failed", "params": {"path": "/x", "reason": "EIO"}}
    world.agent.exit(order, None, cause="start_failed", message="m", said=said)
    assert world.look(job_id)["error_msg"] == (
        "trainer-0 could not be started: cannot set up the job's files at /x: EIO"
    )
    headers = {"accept-language": "zh"}
    zh = world.user.call("GET", f"/api/v1/jobs/{job_id}", headers=headers).json()
    assert zh["error_msg"] == "trainer-0 无法启动：无法准备任务的文件，/x：EIO"
    rows = world.user.call("GET", f"/api/v1/jobs/{job_id}/history", headers=headers).json()
    assert rows["history"][-1]["reason"] == zh["error_msg"]


def test_a_wall_time_that_nobody_watched_is_ended_by_the_server(world: World) -> None:
    job_id, order = world.placed(wall_time=60)
    assert order["grace"] == 40.0, "its supervisor grants it first"
    world.agent.start(order)
    Watch().tick(world.deps, world.clock.move(seconds=60 + 40 + 29))
    assert world.agent.poll() == []
    Watch().tick(world.deps, world.clock.move(seconds=2))
    stop = world.agent.order(job_id, "stop")
    assert (stop["cause"], stop["grace"]) == ("wall_time", 40.0)
    world.agent.exit(order, None, signal=15, cause="wall_time")
    assert world.state(job_id) == "timeout"


def kill(world: World, job_id: str) -> dict[str, Any]:
    view: dict[str, Any] = world.user.post(f"/api/v1/jobs/{job_id}/kill")
    return view


def test_kill_while_it_waits(world: World) -> None:
    job_id = world.submit()
    view = kill(world, job_id)
    assert (view["job_status"], view["kill_flag"]) == ("killed", 1)
    assert view["error_msg"] == "killed on request before it started"
    world.plan()
    assert world.agent.poll() == []


def test_kill_while_it_starts(world: World) -> None:
    job_id, order = world.placed()
    assert kill(world, job_id)["job_status"] == "killing"
    stop = world.agent.order(job_id, "stop")
    assert (stop["run"]["command"], stop["cause"]) == ("sh run.sh", "stopped")
    world.agent.exit(order, None, cause="stopped", started_at=None)
    view = world.look(job_id)
    assert (view["job_status"], view["error_msg"]) == (
        "killed",
        "killed on request before it started",
    )


def test_kill_while_it_runs_and_once_more_while_it_dies(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    assert kill(world, job_id)["job_status"] == "killing"
    version = kill(world, job_id)["version"]
    assert kill(world, job_id)["version"] == version
    assert len(world.agent.poll()) == 1
    world.agent.exit(order, 0)
    view = world.look(job_id)
    assert (view["job_status"], view["error_msg"]) == ("killed", "killed on request while running")


def test_kill_of_what_is_over_is_a_conflict(world: World) -> None:
    job_id, order = world.placed()
    world.agent.run(order)
    with pytest.raises(Conflict, match="already ended as success"):
        kill(world, job_id)


def test_a_killed_job_whose_agent_is_lost_is_killed(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    kill(world, job_id)
    world.agent.report(item(order, lost=True))
    assert world.state(job_id) == "killed"


def test_who_speaks_on_after_being_given_up_is_stale(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    assert [world.agent.log(order, 2 * n, b"a\n") for n in range(3)] == [2, 4, 6]
    lost_agents.mark_lost(world.deps, world.agent.name)
    more = item(order, log={"offset": 6, "length": 2})
    answer = world.agent.report(more, log=b"b\n")
    assert (answer["acks"], answer["stale"]) == ([], [order["replica"]])
    assert world.log(job_id) == b"a\na\na\n"


def test_the_orders_of_a_life(world: World) -> None:
    job_id, order = world.placed()
    assert world.agent.poll() == []
    world.agent.run(order)
    assert world.agent.poll() == [], "not before its log is safe"
    assert [world.release(), world.release()] == [1, 0]
    forget = world.agent.order(job_id, "forget")
    assert forget["run"] is None
    assert forget["seq"] > order["seq"]
    assert world.agent.poll() == []


@pytest.mark.timeout(50)
def test_an_order_behind_many_that_can_wait_does_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents_orders, "MAX_ORDERS", 1)
    monkeypatch.setattr(agents_orders, "IDLE_SECONDS", 60.0)
    done, order = world.placed()
    world.agent.run(order)
    assert world.release() == 1
    running = world.submit()
    world.plan()
    wanted = [(o["job"], o["want"]) for _ in range(2) for o in world.agent.poll(wait=60.0)]
    assert wanted == [(done, "forget"), (running, "run")]


def test_an_agent_that_begins_anew_hears_of_live_replicas_only(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "3"}})
    (_, done), (running, _), (dying, _) = world.placed(), world.placed(), world.placed()
    world.agent.run(done)
    kill(world, dying)
    world.agent.cursor = 0
    orders = world.agent.poll()
    assert {(order["job"], order["want"]) for order in orders} == {
        (running, "run"),
        (dying, "stop"),
    }


def test_an_agent_of_another_version_is_asked_to_go(world: World) -> None:
    world.agent.version = "0.0.0"
    began = time.monotonic()
    body = {"agent": "node-0", "boot": "b", "version": "0", "cursor": 0, "wait": 30}
    body |= {"capacity": {"cpu": 1.0, "memory": 1}}
    assert world.agent.caller.post("/api/v1/agent/poll", body)["restart"] is True
    assert time.monotonic() - began < 20


def test_a_poll_returns_when_an_order_comes(world: World) -> None:
    world.agent.poll()
    job_id = world.submit()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(world.agent.poll, 30.0)
        wait_for_waiter(world, ("agent", "node-0"))
        world.plan()
        assert [order["job"] for order in waiting.result(20)] == [job_id]


def test_a_look_returns_when_the_job_changes(world: World) -> None:
    job_id, order = world.placed()
    version = world.look(job_id)["version"]
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(world.look, job_id, wait=30, version=version)
        wait_for_waiter(world, ("job", job_id))
        world.agent.start(order)
        assert waiting.result(20)["job_status"] == "running"


def test_a_look_returns_when_only_the_reason_changes(world: World) -> None:
    world.placed()
    job_id = world.submit()
    version = world.look(job_id)["version"]
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(world.look, job_id, wait=30, version=version)
        wait_for_waiter(world, ("job", job_id))
        world.plan()
        assert waiting.result(20)["job_status"] == "queue"


def test_a_look_does_not_wait_for_what_is_over(world: World) -> None:
    job_id, order = world.placed()
    world.agent.run(order)
    began = time.monotonic()
    assert world.look(job_id, wait=30, version=10**6)["job_status"] == "success"
    assert time.monotonic() - began < 20


def test_a_follower_gets_every_byte_and_the_end(world: World) -> None:
    job_id = world.submit()
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, job_id, follow=1)
        wait_for_waiter(world, ("log", f"{job_id}/1/trainer-0"))
        world.plan()
        order = world.agent.order(job_id)
        for n in range(20):
            world.agent.log(order, n * 3, b"%02d\n" % n)
        world.agent.exit(order, 0, log_size=60)
        assert following.result(20) == b"".join(b"%02d\n" % n for n in range(20))


def test_the_tail_of_a_log(world: World) -> None:
    job_id, order = world.placed()
    world.agent.log(order, 0, b"one\ntwo\nthree\n")
    reply = world.raw(f"/api/v1/jobs/{job_id}/logs", tail=2)
    assert (reply.body, reply.headers["x-log-offset"]) == (b"two\nthree\n", "4")
    assert reply.headers["x-log-attempt"] == "1"
    assert world.log(job_id, tail=0) == b""
    reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/logs", {"worker": "trainer-7"})
    assert (reply.status, reply.code) == (400, "worker_unknown")
    for attempt in (2, 0):
        reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/logs", {"attempt": attempt})
        assert (reply.status, reply.code) == (404, "attempt_unknown")


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x09{}", b"\xff" * 8, b"\0\0\0\x02[]"])
def test_a_broken_report_is_refused(world: World, body: bytes) -> None:
    reply = world.agent.caller.call("POST", "/api/v1/agent/report", body=body)
    assert (reply.status, reply.code) == (400, "body_invalid")


def test_reports_of_many_threads_are_all_taken_in(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "8"}})
    orders = [world.placed() for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda pair: world.agent.run(pair[1], b"x" * 1000), orders))
    assert {world.state(job_id) for job_id, _ in orders} == {"success"}


def wait_for_waiter(world: World, topic: tuple[str, str]) -> None:
    """Until the server's event loop waits for news of this topic."""
    eventually(lambda: topic in world.deps.hub._waiters)


ODD = ["\u00b2", "1.\u00b2.trainer-0", "\0", "x" * 5000]


@pytest.mark.parametrize("replica", ODD)
def test_an_odd_name_of_a_replica_is_an_unknown_one(world: World, replica: str) -> None:
    job_id, order = world.placed()
    name = f"{job_id}.{replica}" if replica.isdigit() else replica
    answer = world.agent.report(item(order, lost=True) | {"replica": name})
    assert answer["stale"] == [name]
    reply = world.agent.caller.call("GET", f"/api/v1/agent/blobs/{0:064}", {"replica": name})
    assert (reply.status, reply.code) == (404, "replica_unknown")


@pytest.mark.parametrize(
    "note", [{"pid": -1, "at": 0.0}, {"pid": 2**31, "at": 0.0}, {"pid": 10**30, "at": 0.0}]
)
def test_a_pid_that_can_be_none_is_refused(world: World, note: dict[str, Any]) -> None:
    job_id, order = world.placed()
    assert world.agent.send(item(order, started=note)).code == "body_invalid"
    assert world.state(job_id) == "schedule"


@pytest.mark.parametrize(
    "capacity", [{"cpu": -1}, {"cpu": 1e300}, {"memory": 10**30}, {"memory": -1}, {"gpu": 10**9}]
)
def test_a_machine_that_can_be_none_is_refused(world: World, capacity: dict[str, Any]) -> None:
    body = {"agent": "node-0", "boot": "b", "version": "0", "cursor": 0, "wait": 0}
    body["capacity"] = {"cpu": 1.0, "memory": 1} | capacity
    reply = world.agent.caller.call("POST", "/api/v1/agent/poll", body=body)
    assert (reply.status, reply.code) == (400, "body_invalid")
