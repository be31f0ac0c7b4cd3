"""Scheduling, watching and cleaning through the loops, by a clock that the test moves."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from paddlecloud.db.tables import counters, jobs, leases
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Conflict, Retry, StorageFull
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops import maintenance, schedule
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.loops.runner import Leased, Loop, Runner
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.placement import release
from paddlecloud.server.settings import Retention, Settings
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, eventually, packed

TWO_POOLS = {
    "near": {"node": "node", "cpu": "1"},
    "far": {"node": "far", "cpu": "1"},
}


def test_the_second_job_waits_its_turn_and_says_why(world: World) -> None:
    _first, order = world.placed()
    second, third = world.submit(), world.submit(priority=1)
    world.plan()
    view = world.look(second)
    assert (view["job_status"], view["queue_position"]) == ("queue", 1)
    assert world.look(third)["queue_position"] == 0
    assert view["queue_reason"] == (
        "needs 1 x (1 CPU), but pool local has at most 0 CPU, 8 GiB free on one of its 1 machines"
    )
    zh = world.user.call("GET", f"/api/v1/jobs/{second}", headers={"accept-language": "zh"}).json()
    assert zh["queue_reason"].startswith("任务需要 1 个实例（每个 1 CPU），而资源池 local")
    world.agent.run(order)
    world.plan()
    assert [o["job"] for o in world.agent.poll() if o["want"] == "run"] == [third]


def test_a_reason_is_given_at_every_moment_of_waiting(world: World) -> None:
    reasons: list[str] = []
    blocker, order = world.placed()
    job_id = world.submit(max_retries=1)

    def note(state: str) -> None:
        view = world.look(job_id)
        assert view["job_status"] == state
        reasons.append(view["queue_reason"])

    note("schedule")
    world.plan()
    note("queue")
    world.agent.run(order)
    world.plan()
    note("schedule")
    own = world.agent.order(job_id)
    world.agent.exit(own, 101)
    note("schedule")
    assert len(set(reasons)) == 4
    assert "" not in reasons
    assert world.state(blocker) == "success"


def test_nobody_waits_longer_than_the_schedule_timeout(world: World) -> None:
    world.placed()
    job_id = world.submit()
    world.plan()
    world.clock.move(hours=23, minutes=59)
    world.plan()
    assert world.state(job_id) == "queue"
    world.clock.move(minutes=2)
    world.plan()
    view = world.look(job_id)
    assert view["job_status"] == "schedule timeout"
    assert "24:00:00" in view["error_msg"]


def test_a_pool_that_refuses_is_passed_over(make_world: MakeWorld) -> None:
    world = make_world(
        pools={"near": TWO_POOLS["near"] | {"start": "refuse"}, "far": TWO_POOLS["far"]}
    )
    far = world.agent_of("far-0")
    job_id = world.submit()
    world.plan()
    view = world.look(job_id)
    assert (view["job_status"], view["pool"]) == ("schedule", "")
    assert view["queue_reason"] == "pool near refused the job; trying another placement"
    world.plan()
    assert far.order(job_id)["attempt"] == 2
    assert world.look(job_id)["pool"] == "far"
    events = [row["event"] for row in world.user.get(f"/api/v1/jobs/{job_id}/history")["history"]]
    assert events == ["accepted", "pool refused"]


def test_a_refusal_gives_the_room_back(make_world: MakeWorld) -> None:
    world = make_world(pools={"near": TWO_POOLS["near"] | {"start": "refuse"}})
    refused = world.submit()
    world.plan()
    world.backends["near"].script.start = "ok"
    world.user.post(f"/api/v1/jobs/{refused}/kill")
    job_id = world.submit()
    world.plan()
    assert world.look(job_id)["pool"] == "near"


def test_a_pool_that_refuses_everything_does_not_keep_the_planner_busy(
    make_world: MakeWorld,
) -> None:
    world = make_world(pools={"near": TWO_POOLS["near"] | {"start": "refuse"}})
    world.submit()
    world.plan()
    assert world.count("attempts") == 1


def test_a_pool_that_goes_on_refusing_is_asked_less_and_less(make_world: MakeWorld) -> None:
    world = make_world(pools={"near": TWO_POOLS["near"] | {"start": "refuse"}})
    job_id = world.submit()
    asked_at: list[float] = []
    began = world.clock()
    for _ in range(40):
        before = world.count("attempts")
        world.plan()
        if world.count("attempts") > before:
            asked_at.append((world.clock() - began).total_seconds())
        world.clock.move(seconds=1)
    assert asked_at == [0, 1, 2, 4, 8, 16, 32], "the first time again costs nothing"
    view = world.look(job_id)
    told = "pool near refused the job again; next try at "
    assert (view["job_status"], view["queue_reason"][: len(told)]) == ("queue", told)
    world.backends["near"].script.start = "ok"
    world.clock.move(seconds=30)
    world.plan()
    assert world.look(job_id)["pool"] == "near"


def test_a_refusal_is_no_pause_for_other_pools(make_world: MakeWorld) -> None:
    refuses = {"start": "refuse"}
    world = make_world(pools={name: pool | refuses for name, pool in TWO_POOLS.items()})
    job_id = world.submit()
    for _ in range(3):
        world.plan()
    rows = world.deps.db.read(lambda tx: tx.all("select pool from attempts order by number"))
    assert rows == [("near",), ("far",), ("near",)]
    world.backends["far"].script.start = "ok"
    world.clock.move(seconds=1)
    world.plan()
    assert world.look(job_id)["pool"] == "far", "who refused last is asked last"


def test_what_cannot_be_let_go_in_one_pool_keeps_no_other_waiting(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(pools={name: pool | {"cpu": "3"} for name, pool in TWO_POOLS.items()})
    far = world.agent_of("far-0")
    for _ in range(3):
        job_id = world.submit()
        world.plan()
        world.agent.run(world.agent.order(job_id))
    world.clock.move(seconds=1)
    good = world.submit(cluster="far")
    world.plan()
    far.run(far.order(good))
    asked: list[str] = []

    def away(handle: Any, _grace: timedelta) -> None:
        asked.append(handle["name"])
        raise Retry("backend_later", pool="near")

    monkeypatch.setattr(release, "MAX_RELEASED", 2)
    monkeypatch.setattr(release, "MAX_FAILURES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(world.backends["near"], "stop", away)
        assert world.release() == 1
        assert len(asked) == 1, "who does not answer is not asked for each one"
        assert far.order(good, "forget")
        assert world.release() == 0
    assert world.release() == 3


def test_a_start_that_was_put_off_is_made_up_for(make_world: MakeWorld) -> None:
    world = make_world(pools={"near": TWO_POOLS["near"] | {"start": "later"}})
    backend = world.backends["near"]
    job_id = world.submit()
    world.plan()
    assert (world.state(job_id), backend.started) == ("schedule", {})
    watch = Watch()
    watch.tick(world.deps, world.clock())
    assert backend.started == {}
    backend.script.start = "ok"
    watch.tick(world.deps, world.clock())
    assert backend.started == {f"{job_id}-1": 1}
    assert world.count("attempts") == 1


def test_a_start_that_was_cut_short_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server dies between saving the place and asking the backend."""
    job_id = world.submit()

    def die(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(world.backends["local"], "start", die)
        with pytest.raises(KeyboardInterrupt):
            world.plan()
    assert world.backends["local"].started == {}
    Watch().tick(world.deps, world.clock())
    assert world.backends["local"].started == {f"{job_id}-1": 1}
    assert world.agent.order(job_id)["attempt"] == 1


def test_agents_that_vanished_are_asked_for_again(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.backends["local"].started.clear()
    Watch().tick(world.deps, world.clock())
    assert world.backends["local"].started == {f"{job_id}-1": 1}
    assert world.state(job_id) == "running"


def test_an_end_that_was_taken_in_but_not_drawn_is_drawn_by_the_watch(world: World) -> None:
    job_id, _ = world.placed()
    note = '{"cause":"exit","exit_code":0,"started_at":"2026-01-01T00:00:00Z"}'
    world.deps.db.write(
        lambda tx: tx.execute("update replicas set state = 'exited', exit_record = ?", (note,))
    )
    Watch().tick(world.deps, world.clock())
    assert world.state(job_id) == "success"


def small_retention(settings: Settings) -> Settings:
    keep = Retention(finished_jobs=timedelta(days=2), unused_files=timedelta(days=1))
    return replace(settings, retention=keep)


def test_only_what_is_old_is_deleted(make_world: MakeWorld) -> None:
    world = make_world(change=small_retention)
    old_files, kept_files = world.snapshot({"a": b"old"}), world.snapshot({"a": b"kept"})
    old, order = world.placed(snapshot=old_files)
    world.agent.upload(order, "model", b"12345")
    world.agent.run(order, b"log\n")
    world.clock.move(days=1, hours=12)
    young, order = world.placed(snapshot=kept_files)
    world.agent.run(order, b"log\n")
    waiting = world.submit(snapshot=kept_files)
    assert garbage_collection.collect(world.deps).jobs == 0
    world.clock.move(days=1)
    reply = world.user.call("POST", "/api/v1/admin/gc")
    assert (reply.status, reply.code) == (403, "auth_admin")
    answer = world.caller("root", role=UserRole.ADMIN).post("/api/v1/admin/gc")
    assert answer["jobs"] == 1
    assert answer["bytes"] >= 9
    assert world.user.call("GET", f"/api/v1/jobs/{old}").status == 404
    assert list(world.deps.store.list(f"users/someone/output/{old}/")) == []
    assert world.log(young) == b"log\n"
    assert world.state(waiting) == "schedule"
    entries = world.user.get(f"/api/v1/jobs/{waiting}/files", prefix="/")["files"]
    assert "a" in [row["path"] for row in entries]
    assert world.raw(f"/api/v1/jobs/{waiting}/files/a").body == b"kept"


def test_unused_files_go_after_their_time_and_shared_contents_stay(make_world: MakeWorld) -> None:
    world = make_world(change=small_retention)
    unused = world.snapshot({"a": b"shared", "b": b"alone"})
    world.clock.move(days=3)
    used = world.snapshot({"a": b"shared"})
    job_id = world.submit(snapshot=used)
    world.clock.move(hours=1)
    maintenance.tick(world.deps, world.clock())
    rows = world.deps.db.read(lambda tx: tx.all("select id from snapshots"))
    assert unused not in {row[0] for row in rows}
    assert world.raw(f"/api/v1/jobs/{job_id}/files/a").body == b"shared"
    sizes = sorted(stat.size for stat in world.deps.store.list("users/someone/blobs/"))
    assert 5 not in sizes, "the content that nobody names is gone"


def test_contents_that_never_came_to_a_snapshot_go_too(make_world: MakeWorld) -> None:
    world = make_world(change=small_retention)
    for caller, data in ((world.user, b"mine"), (world.caller("another"), b"theirs")):
        caller.post("/api/v1/blobs", packed(data))
    assert garbage_collection.collect(world.deps).bytes == 0, "an upload may still be going on"
    world.clock.move(days=2)
    assert garbage_collection.collect(world.deps).bytes == 10
    assert [s.path for s in world.deps.store.list("users/") if "/blobs/" in s.path] == []


def test_uploads_get_their_turn_while_files_go_and_what_they_name_stays(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(change=small_retention)
    contents = [f"{number}".encode() for number in range(4)]
    for data in contents:
        world.user.post("/api/v1/blobs", packed(data))
    world.clock.move(days=2)
    paths = [stat.path for stat in world.deps.store.list("users/someone/blobs/")]
    last = next(data for data in contents if world.blob(data).name in paths[-1])
    left: list[int] = []

    def pause() -> None:
        left.append(sum(world.blob(data).exists() for data in contents))
        if len(left) == 1:
            world.snapshot({"a": last})

    monkeypatch.setattr(garbage_collection, "HELD", 0.0)
    monkeypatch.setattr(garbage_collection, "_pause", pause)
    assert garbage_collection.collect(world.deps).bytes == 3
    assert left == [3, 2, 1]
    assert world.blob(last).read_bytes() == last


def test_a_machine_that_left_is_forgotten_after_a_day(world: World) -> None:
    job_id, order = world.placed()
    world.agent_of("node-1").poll()
    stays = world.agent_of("node-2")

    def silent() -> str:
        stays.poll()
        maintenance.tick(world.deps, world.clock())
        return str(world.user.get("/api/v1/doctor")["checks"][2]["detail"])

    world.clock.move(hours=23)
    assert "node-0, node-1" in silent()
    world.clock.move(hours=2)
    detail = silent()
    assert "node-1" not in detail
    assert "node-0" in detail, "it has a job to run"
    world.agent.run(order)
    world.clock.move(hours=25)
    assert silent().startswith("node-2: ")
    assert all(check["ok"] for check in world.user.get("/api/v1/doctor")["checks"])
    assert world.state(job_id) == "success"
    world.agent.poll()
    assert "node-0: " in world.user.get("/api/v1/doctor")["checks"][2]["detail"]


def test_files_that_are_wanted_again_are_kept(make_world: MakeWorld) -> None:
    world = make_world(change=small_retention)
    offered, named = world.snapshot({"a": b"offered"}), world.snapshot({"a": b"named"})
    world.clock.move(hours=23)
    assert world.snapshot({"a": b"offered"}) == offered
    job_id = world.submit(snapshot=named)
    world.deps.db.write(lambda tx: jobs.delete_job(tx, job_id))
    world.clock.move(hours=23)
    garbage_collection.collect(world.deps)
    assert world.count("snapshots") == 3, "these and the one of run.sh"
    world.clock.move(hours=2)
    garbage_collection.collect(world.deps)
    assert world.count("snapshots") == 0


def test_a_job_that_cannot_be_deleted_does_not_keep_the_others(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(change=small_retention)
    monkeypatch.setattr(garbage_collection, "BATCH", 1)
    ids = []
    for _ in range(3):
        job_id, order = world.placed()
        world.agent.run(order)
        ids.append(job_id)
    real = world.deps.store.delete_tree

    def delete_tree(path: str) -> int:
        if ids[0] in path:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(world.deps.store, "delete_tree", delete_tree)
    world.clock.move(days=3)
    assert garbage_collection.collect(world.deps).jobs == 2
    assert [row["job_id"] for row in world.user.get("/api/v1/jobs")["jobs"]] == [ids[0]]


def test_a_live_job_keeps_everything_however_old_it_is(make_world: MakeWorld) -> None:
    world = make_world(change=small_retention)
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"log\n")
    waiting = world.submit()
    world.clock.move(days=400)
    assert garbage_collection.collect(world.deps).jobs == 0
    assert world.log(job_id) == b"log\n"
    for job in (job_id, waiting):
        assert world.raw(f"/api/v1/jobs/{job}/files/run.sh").body == b"echo hi\n"


def test_a_runner_that_never_began_can_be_stopped(world: World) -> None:
    Runner(world.deps, (schedule.loop(),)).stop()
    assert world.deps.hub.closed


def test_the_runner_is_woken_by_a_submit(world: World) -> None:
    quiet = replace(schedule.loop(), every=timedelta(hours=1))
    runner = Runner(world.deps, (quiet,))
    runner.start()
    try:
        job_id = world.submit()
        eventually(lambda: world.look(job_id)["pool"] == "local")
    finally:
        runner.stop()


@pytest.mark.parametrize(
    ("error", "traced"),
    [(RuntimeError("once"), True), (StorageFull("database_full", path="db"), False)],
)
def test_a_tick_that_fails_does_not_end_its_loop(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception, traced: bool
) -> None:
    """What was foreseen is one line in the log."""
    calls: list[datetime] = []
    done = threading.Event()

    def tick(_deps: Deps, now: datetime) -> None:
        calls.append(now)
        if len(calls) == 1:
            raise error
        done.set()

    runner = Runner(world.deps, (Loop(name="test", tick=tick, every=timedelta(milliseconds=1)),))
    runner.start()
    try:
        assert done.wait(20)
    finally:
        runner.stop()
    (told,) = [record for record in caplog.records if "loop test failed" in record.getMessage()]
    assert bool(told.exc_info) is traced
    assert traced or "no disk space left for the database db" in told.getMessage()


@pytest.mark.slow
def test_a_loop_that_another_server_runs_is_left_alone(world: World) -> None:
    calls: list[datetime] = []
    ttl = timedelta(hours=1)
    world.deps.db.write(lambda tx: leases.take_lease(tx, "loop-test", "other", world.clock(), ttl))
    loop = Loop(name="test", tick=lambda _, now: calls.append(now), every=timedelta(seconds=60))
    runner = Runner(world.deps, (loop,))
    runner.start()
    bell = world.deps.hub.wake_event("test")
    for _ in range(3):
        bell.set()
        eventually(lambda: not bell.is_set())
    assert calls == []
    world.clock.move(hours=2)
    bell.set()
    eventually(lambda: len(calls) == 1)
    runner.stop()


def test_a_server_that_ends_gives_its_loops_back(world: World) -> None:
    done = threading.Event()
    loop = Loop(name="test", tick=lambda _, __: done.set(), every=timedelta(hours=1))
    runner = Runner(world.deps, (loop,))
    runner.start()
    assert done.wait(20)
    held = world.deps.db.read(lambda tx: tx.one("select holder, expires_at > 0 from leases"))
    assert held == (world.deps.boot, 1)
    runner.stop()
    ttl = timedelta(seconds=1)
    world.deps.db.write(lambda tx: leases.take_lease(tx, "loop-test", "next", world.clock(), ttl))
    held = world.deps.db.read(lambda tx: tx.one("select holder from leases"))
    assert held == ("next",)


def test_a_loop_that_slept_through_its_lease_writes_nothing(world: World) -> None:
    leased = Leased(world.deps, "loop-test")
    assert leased.held()
    world.clock.move(hours=1)
    leased.write(lambda tx: counters.next_number(tx, "mine"))  # nobody took over meanwhile
    world.clock.move(hours=1)
    ttl = timedelta(seconds=1)
    world.deps.db.write(lambda tx: leases.take_lease(tx, "loop-test", "other", world.clock(), ttl))
    for hours in (0, 1):
        world.clock.move(hours=hours)
        with pytest.raises(Conflict, match="another server"):
            leased.write(lambda tx: counters.next_number(tx, "mine"))
        with pytest.raises(Conflict, match="another server"):
            leased.submit(lambda tx: counters.next_number(tx, "mine")).result(10)
    assert leased.read(lambda tx: tx.one("select value from counters where name = 'mine'")) == (1,)
    assert leased.held(), "the other one let it lapse"
    assert leased.write(lambda tx: counters.next_number(tx, "mine")) == 2


def test_every_link_is_looked_at_by_the_doctor(world: World) -> None:
    checks = {c["name"]: c for c in world.user.get("/api/v1/doctor")["checks"]}
    assert (checks["database"]["ok"], checks["store"]["ok"]) == (True, True)
    assert (checks["agent"]["ok"], "no agent has connected yet" in checks["agent"]["detail"]) == (
        False,
        True,
    )
    world.agent.poll()
    assert all(check["ok"] for check in world.user.get("/api/v1/doctor")["checks"])
    world.submit()
    database, _, agent = world.user.get("/api/v1/doctor")["checks"]
    assert database["detail"] == "1 job"
    (node,) = world.deps.nodes()["local"]
    assert agent["detail"].startswith(f"node-0: {node.total.cpu:g} CPU, "), "as the pool counts"
    world.clock.move(minutes=2)
    agent = world.user.get("/api/v1/doctor")["checks"][2]
    assert (agent["ok"], "node-0" in agent["detail"]) == (False, True)


def test_metrics_count_requests_and_jobs(world: World) -> None:
    world.submit()
    world.agent.poll()
    text = world.raw("/metrics").body.decode()
    assert 'paddlecloud_jobs{state="schedule"} 1.0\n' in text
    assert 'paddlecloud_agent_silent_seconds{agent="node-0"} 0.0\n' in text
    line = 'paddlecloud_requests_total{method="POST",route="/api/v1/jobs",status="200"} 1.0\n'
    assert line in text
    assert text.count("# TYPE paddlecloud_jobs gauge") == 1


def test_the_doctor_tells_that_outputs_were_deleted_for_lack_of_space(world: World) -> None:
    def said() -> str:
        world.agent.poll()
        return str(world.user.get("/api/v1/doctor")["checks"][2]["detail"])

    note = world.deps.settings.agent_dir / "unsent.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("{}")
    assert said().startswith("node-0: ") and "deleted" not in said()
    note.write_text(json.dumps({"times": 3, "at": world.clock().timestamp()}))
    assert "unsent outputs were deleted early for lack of disk space, 3 times" in said()
    world.clock.move(days=8)
    assert "deleted" not in said()
