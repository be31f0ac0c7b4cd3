"""Replicas that were given up: whoever comes back with one ends it, and no bill is left running."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.backends.scripted import Scripted
from paddlecloud.db.tables import agents as rows
from paddlecloud.model.errors import Retry
from paddlecloud.server.http.app import App
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.agents import lost_agents
from paddlecloud.server.settings import Settings
from paddlecloud.testing import item
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World


def lost(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A job that ran, and whose agent was not heard of any more."""
    job_id, order = world.placed(**changes)
    world.agent.start(order)
    lost_agents.mark_lost(world.deps, "node-0")
    return job_id, order


def test_an_agent_that_comes_back_is_told_to_end_what_was_given_up(world: World) -> None:
    job_id, order = lost(world)
    assert world.state(job_id) == "failed"
    world.release()
    stop = world.agent.order(job_id, "stop")
    assert (stop["replica"], stop["grace"], stop["cause"]) == (order["replica"], 0.0, "stopped")
    world.agent.cursor = 0
    assert world.agent.order(job_id, "stop")["run"]["began"], "after a restart it hears it again"
    answer = world.agent.exit(order, None, signal=9, cause="stopped", log_size=999)
    assert answer["acks"][0]["exited"] is True
    assert world.agent.order(job_id, "forget")["replica"] == order["replica"]
    world.agent.cursor = 0
    assert world.agent.poll() == []


def test_a_machine_that_was_lost_is_no_place_until_it_is_heard_of(world: World) -> None:
    job_id, _ = lost(world, max_retries=1)
    world.clock.move(seconds=5)
    world.plan()
    job = world.look(job_id)
    assert (job["attempts"], job["pool"]) == (1, ""), "the retry is not burnt"
    assert job["job_status"] == "queue"
    assert job["queue_reason"].startswith("pool local has no machine at the moment")
    assert world.submit(), "nor is anybody refused for it"
    world.agent.poll()
    world.plan()
    assert world.look(job_id)["attempts"] == 2


def test_a_machine_that_was_heard_of_meanwhile_stays_a_place(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.agent.start(order)
    (before,) = world.deps.db.read(rows.list_agents)
    world.clock.move(minutes=1)
    world.agent.poll()
    lost_agents.mark_lost(world.deps, "node-0", before.seen_at)
    world.clock.move(seconds=5)
    world.plan()
    assert world.look(job_id)["attempts"] == 2


def test_a_machine_that_stays_silent_is_tried_again_at_last(world: World) -> None:
    """Its agent may be dead, and only a job that is placed there has one started."""
    job_id, _ = lost(world, max_retries=1)
    world.clock.move(minutes=12)
    world.plan()
    assert world.look(job_id)["attempts"] == 2


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("all_ended", [True, False, None])
def test_that_a_job_was_stopped_is_said_only_if_its_agent_is_certain(
    world: World, all_ended: bool | None, killed: bool
) -> None:
    """An agent of an earlier version does not say it."""
    job_id, order = world.placed()
    world.agent.start(order)
    if killed:
        world.user.post(f"/api/v1/jobs/{job_id}/kill")
    certainty = {} if all_ended is None else {"all_ended": all_ended}
    world.agent.report(item(order, lost=True, **certainty))
    job = world.look(job_id)
    assert job["job_status"] == ("killed" if killed else "failed")
    may_run = "processes that left its process tree may still be running" in job["error_msg"]
    assert may_run is not bool(all_ended)
    if not killed:
        assert ("all its processes were stopped" in job["error_msg"]) is bool(all_ended)
    headers = {"accept-language": "zh"}
    zh = world.user.call("GET", f"/api/v1/jobs/{job_id}", headers=headers).json()
    assert ("脱离其进程树的进程可能仍在运行" in zh["error_msg"]) is may_run


def test_a_job_that_is_killed_while_its_machine_is_silent_may_still_run(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.user.post(f"/api/v1/jobs/{job_id}/kill")
    lost_agents.mark_lost(world.deps, "node-0")
    job = world.look(job_id)
    assert job["job_status"] == "killed"
    assert "lost contact with machine node-0" in job["error_msg"]


def test_a_loss_that_shifts_the_blame_keeps_the_last_words_of_the_culprit(
    make_world: MakeWorld,
) -> None:
    """An abort long before a failure is its cause, unless something else may have been earlier."""
    world = make_world(pools={"local": {"node": "node", "cpu": "4"}})
    job_id = world.submit(instance_count=3, distribute_job_type="NCCL2", job_type="cpu")
    world.plan()
    orders = {order["run"]["rank"]: order for order in world.agent.poll()}
    for order in orders.values():
        world.agent.start(order)
    now = world.clock().timestamp()
    world.agent.log(orders[0], 0, b"no such column\n")
    world.agent.exit(orders[0], 1, log_size=15, finished_at=now + 16)
    world.agent.exit(orders[1], None, signal=6, finished_at=now + 5)
    assert world.look(job_id)["failure"]["worker"] == "trainer-1"
    world.agent.report(item(orders[2], lost=True))
    failure = world.look(job_id)["failure"]
    assert (failure["worker"], failure["last_lines"]) == ("trainer-0", ["no such column"])


def test_a_killed_gang_has_the_last_words_of_its_first_worker(make_world: MakeWorld) -> None:
    """Whichever report tells of the last end."""
    world = make_world(pools={"local": {"node": "node", "cpu": "4"}})
    job_id = world.submit(instance_count=2, distribute_job_type="NCCL2", job_type="cpu")
    world.plan()
    orders = {order["run"]["rank"]: order for order in world.agent.poll()}
    for order in orders.values():
        world.agent.start(order)
    world.agent.log(orders[0], 0, b"begun\n")
    world.user.post(f"/api/v1/jobs/{job_id}/kill")
    world.agent.exit(orders[0], None, signal=15, cause="stopped", log_size=6)
    world.agent.exit(orders[1], None, signal=15, cause="stopped")
    failure = world.look(job_id)["failure"]
    assert (failure["worker"], failure["last_lines"]) == ("trainer-0", ["begun"])


def test_what_was_given_up_has_no_say_but_for_its_end(world: World) -> None:
    job_id, order = lost(world, max_retries=1)
    world.agent.poll()
    world.plan()
    second = world.agent.order(job_id)
    assert second["attempt"] == 2
    for note in ({"started": {"pid": 1, "at": 0.0}}, {"log": {"offset": 0, "length": 3}}):
        answer = world.agent.report(item(order, **note), log=b"old" if "log" in note else b"")
        assert answer == {"acks": [], "stale": [order["replica"]]}
    assert world.agent.upload(order, "model", b"old").code == "fence_stale"
    world.agent.start(second)
    assert world.agent.report(item(order, lost=True))["stale"] == []
    assert world.agent.order(job_id, "forget")["replica"] == order["replica"]
    assert (world.state(job_id), world.log(job_id)) == ("running", b"")


def test_a_refused_replica_is_ended_too(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "1", "start": "refuse"}})
    job_id = world.submit()
    world.plan()
    stop = world.agent.order(job_id, "stop")
    assert stop["run"]["began"] is False
    world.agent.exit(stop, None, cause="stopped", started_at=None)
    assert world.agent.order(job_id, "forget")["replica"] == stop["replica"]


def test_the_last_lines_of_a_lost_job_are_told(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"epoch 1\nepoch 2\n")
    lost_agents.mark_lost(world.deps, "node-0")
    assert world.look(job_id)["failure"]["last_lines"] == ["epoch 1", "epoch 2"]


def test_the_watch_settles_a_killed_job_and_those_beside_it(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "cpu": "2"}})
    (killed, _), (other, _) = world.placed(), world.placed()
    world.user.post(f"/api/v1/jobs/{killed}/kill")
    note = '{"cause":"exit","exit_code":0,"started_at":"2026-01-01T00:00:00Z"}'
    world.deps.db.write(
        lambda tx: tx.execute("update replicas set state = 'exited', exit_record = ?", (note,))
    )
    Watch().tick(world.deps, world.clock())
    assert (world.state(killed), world.state(other)) == ("killed", "success")


def test_a_look_around_that_finds_nothing_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, order = world.placed()
    world.agent.start(order)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the writer is not for looking")

    monkeypatch.setattr(world.deps.db, "write", refuse)
    Watch().tick(world.deps, world.clock())


def test_an_attempt_that_is_over_gives_its_place_back_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, order = world.placed()
    stopped: list[object] = []
    backend = world.backends["local"]

    def stop(handle: object, grace: object) -> None:
        stopped.append(handle)
        if len(stopped) == 1:
            raise Retry("backend_later", pool="local")
        Scripted.stop(backend, handle, grace)  # type: ignore[arg-type]

    monkeypatch.setattr(backend, "stop", stop)
    assert world.release() == 0, "not while it runs"
    world.agent.run(order)
    assert [world.release(), world.release(), world.release()] == [0, 1, 0]
    assert stopped == [{"name": f"{job_id}-1"}] * 2
    assert backend.started == {}


def test_nothing_is_forgotten_before_it_is_on_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, order = world.placed()
    world.agent.upload(order, "model", b"12345")
    world.agent.run(order, b"log\n")
    flushed: list[object] = []

    def fail(paths: object) -> None:
        flushed.append(paths)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(world.deps.logs, "flush", fail)
        with pytest.raises(OSError, match="Input/output"):
            world.release()
    assert flushed == [[f"users/someone/output/{job_id}/log/trainer-0.log"]]
    assert world.agent.poll() == []
    assert world.release() == 1
    assert world.agent.order(job_id, "forget")["replica"] == order["replica"]


def test_only_running_time_counts_for_the_wall_time(world: World) -> None:
    job_id, order = world.placed(wall_time=100, max_retries=1)
    assert order["run"]["max_seconds"] == 100
    world.clock.move(seconds=1000)
    world.agent.start(order)
    world.clock.move(seconds=30)
    world.agent.exit(order, 101)
    world.clock.move(seconds=1000)
    world.plan()
    second = world.agent.order(job_id)
    assert second["run"]["max_seconds"] == 70
    Watch().tick(world.deps, world.clock.move(seconds=1000))
    assert [o["want"] for o in world.agent.poll()] == ["forget"], "the second has not begun yet"
    world.agent.start(second)
    Watch().tick(world.deps, world.clock.move(seconds=70 + 40 + 29))
    assert world.agent.poll() == []
    Watch().tick(world.deps, world.clock.move(seconds=2))
    assert world.agent.order(job_id, "stop")["cause"] == "wall_time"


def test_times_are_those_of_the_run_and_not_of_the_report(world: World) -> None:
    job_id, order = world.placed()
    began = world.clock.move(seconds=10).timestamp()
    world.clock.move(hours=1)
    world.agent.report(item(order, started={"pid": 1, "at": began}))
    assert world.job(job_id).started_at == world.clock.move(hours=-1)
    world.clock.move(hours=2)
    world.agent.exit(order, 0, started_at=began, finished_at=began + 20)
    job = world.job(job_id)
    assert job.started_at is not None
    assert job.finished_at is not None
    assert (job.finished_at - job.started_at).total_seconds() == 20


def test_an_agent_may_read_only_the_files_of_its_live_replica(world: World) -> None:
    own = world.snapshot({"a": b"own"})
    other = world.snapshot({"b": b"other"})
    _, order = world.placed(snapshot=own)
    agent, replica = world.agent.caller, {"replica": order["replica"]}
    assert agent.call("GET", f"/api/v1/agent/snapshots/{own}", replica).status == 200
    for snapshot in (other, "sha256:0"):
        reply = agent.call("GET", f"/api/v1/agent/snapshots/{snapshot}", replica)
        assert (reply.status, reply.code) == (404, "snapshot_unknown")
    sums = {path: digest(path) for path in ("own", "other")}
    blob = agent.call("GET", f"/api/v1/agent/blobs/{sums['own']}", replica)
    assert (blob.body, blob.headers["x-content-sha256"]) == (b"own", sums["own"])
    assert agent.call("GET", f"/api/v1/agent/blobs/{sums['other']}", replica).status == 404
    world.agent.run(order)
    reply = agent.call("GET", f"/api/v1/agent/blobs/{sums['own']}", replica)
    assert (reply.status, reply.code) == (404, "replica_unknown")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_order_for_a_pool_that_is_gone_is_still_given(world: World) -> None:
    job_id, order = world.placed()
    del world.backends["local"]
    deps = replace(world.deps, pools={}, backends={})
    world.stage.app = App(deps)
    world.agent.cursor = 0
    assert world.agent.order(job_id)["replica"] == order["replica"]


def test_the_limits_of_the_log_and_of_installs_go_with_the_order(make_world: MakeWorld) -> None:
    run = make_world().placed()[1]["run"]
    assert run["log_limit"] == 2**30
    assert run["install_seconds"] == 1800.0


def test_no_limit_is_none(make_world: MakeWorld) -> None:
    world = make_world(
        change=lambda settings: replace(settings, running=replace(settings.running, log_limit=0))
    )
    assert world.placed()[1]["run"]["log_limit"] is None


def test_the_wall_limit_of_installs_is_a_setting(make_world: MakeWorld) -> None:
    world = make_world(
        change=lambda settings: replace(
            settings, running=replace(settings.running, install_limit=timedelta(minutes=5))
        )
    )
    assert world.placed()[1]["run"]["install_seconds"] == 300.0


def test_agents_are_told_how_much_to_keep(make_world: MakeWorld) -> None:
    def change(settings: Settings) -> Settings:
        return replace(settings, running=replace(settings.running, cache_limit=2**20))

    agent = make_world(change=change).agent
    question = {"agent": agent.name, "boot": agent.boot, "version": agent.version}
    more = {"cursor": 0, "wait": 0, "capacity": {"cpu": 1.0, "memory": 1}, "enforces": {}}
    answer = agent.caller.post("/api/v1/agent/poll", question | more)
    assert answer["settings"]["cache_limit"] == 2**20
