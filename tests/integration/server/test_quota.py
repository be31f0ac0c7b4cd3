"""Plans hold: jobs wait, are refused or stopped by them, with the numbers, and minutes add up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddlecloud.db.tables import usage
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Forbidden, Invalid, NotFound, Refused, TooMany
from paddlecloud.model.policy.quota import FREE, UNLIMITED, Plan
from paddlecloud.server.http.app import App
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.files import snapshots, storage_usage
from paddlecloud.server.services.transfer.blobs import BlobUpload
from paddlecloud.server.settings import Settings
from paddlecloud.testing import ScriptedAgent
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_uploads import MIB, begun
from tests.integration.server.world import World, a_submit, packed

NODE = "node-0"
EVENING = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""20:00 in Shanghai: four hours are left of the day."""
MakeTeam = Callable[..., World]


@pytest.fixture
def team(make_world: MakeWorld) -> MakeTeam:
    """A team server with one public pool; what is given is its default plan."""

    def make(*, private: bool = False, machine: str = "16", **limits: Any) -> World:
        plan = replace(FREE, **limits)

        def change(settings: Settings) -> Settings:
            plans = {"free": plan, "big": Plan(running_jobs=9), "unlimited": UNLIMITED}
            return replace(settings, team=True, plans=plans, default_plan="free")

        world = make_world(pools={"local": {"node": "node", "cpu": machine}}, change=change)
        world.clock.now = EVENING
        pools = {name: replace(pool, private=private) for name, pool in world.deps.pools.items()}
        world.app.close()
        world.deps = replace(world.deps, pools=pools)
        world.app = App(world.deps)
        return world.enter()

    return make


def runs(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A job that runs, and its order."""
    job_id, order = world.placed(**changes)
    world.agent.start(order)
    assert world.state(job_id) == "running"
    return job_id, order


def limit(view: dict[str, Any], name: str) -> tuple[float | None, float | None]:
    row = next(row for row in view["limits"] if row["name"] == name)
    return row["used"], row["limit"]


def test_a_job_too_many_waits_with_the_numbers_until_one_has_ended(team: MakeTeam) -> None:
    world = team()
    _, first = runs(world)
    runs(world)
    answer = world.user.post("/api/v1/jobs", a_submit(world.spec()))
    third = answer["job"]["job_id"]
    assert answer["notes"][-1] == (
        "the job has to wait: its owner already has 2 running jobs, the limit of the plan; it "
        "starts when one of them has ended"
    )
    world.plan()
    view = world.look(third)
    assert view["job_status"] == "queue"
    assert view["queue_reason"] == (
        "its owner already has 2 running jobs, the limit of the plan; it starts when one of them "
        "has ended"
    )
    other = world.caller("other")
    elses = world.submit(other)
    world.plan()
    assert other.get(f"/api/v1/jobs/{elses}")["pool"] == "local"
    world.agent.exit(first)
    world.plan()
    assert world.look(third)["pool"] == "local"


def test_a_job_shows_how_long_it_may_run_before_and_after_it_has_a_place(team: MakeTeam) -> None:
    world = team(minutes_a_job=30)
    accepted = world.user.post("/api/v1/jobs", a_submit(world.spec()))["job"]
    again = world.user.post("/api/v1/jobs", a_submit(world.spec()))["job"]
    assert (accepted["wall_time"], again["wall_time"]) == ("00:30:00", "00:30:00")
    assert world.look(again["job_id"])["wall_time"] == "00:30:00"
    world.plan()
    order = world.agent.order(again["job_id"])
    world.agent.start(order)
    assert world.look(again["job_id"])["wall_time"] == "00:30:00"
    world.agent.exit(order)
    assert world.look(again["job_id"])["wall_time"] == "00:30:00"


def test_a_private_pool_holds_nobody_to_the_plans_minutes(team: MakeTeam) -> None:
    world = team(minutes_a_job=30, running_jobs=0, private=True)
    answer = world.user.post("/api/v1/jobs", a_submit(world.spec()))
    assert not any("has to wait" in note for note in answer["notes"])
    assert world.look(answer["job"]["job_id"])["wall_time"] == ""


def test_a_placed_job_counts_before_it_is_heard_of(team: MakeTeam) -> None:
    world = team(running_jobs=1)
    world.placed()
    second = world.submit()
    world.plan()
    assert world.look(second)["pool"] == ""
    assert limit(world.user.get("/api/v1/quota"), "running_jobs") == (1, 1)


def test_used_up_minutes_hold_a_job_until_midnight(team: MakeTeam) -> None:
    world = team(minutes_a_day=10)
    _, order = runs(world)
    world.clock.move(minutes=10)
    world.agent.exit(order)
    answer = world.user.call(
        "POST", "/api/v1/jobs", body=a_submit(world.spec()), headers={"accept-language": "zh"}
    ).json()
    waits = answer["job"]["job_id"]
    assert answer["notes"][-1] == (
        "任务需要等待：用户套餐每天的 10 分钟运行时间已使用 10.0 分钟，任务将在 "
        "2026-01-06 00:00 (Asia/Shanghai) 重新计算后启动"
    )
    world.plan()
    assert world.look(waits)["queue_reason"] == (
        "10.0 of the 10 running minutes per day of its owner's plan are used; the job starts "
        "after the reset at 2026-01-06 00:00 (Asia/Shanghai)"
    )
    world.clock.move(hours=3, minutes=49)
    world.plan()
    assert world.look(waits)["pool"] == ""
    world.clock.move(minutes=1)
    world.plan()
    assert world.look(waits)["pool"] == "local"


def test_waiting_for_ones_own_quota_does_not_count_as_waiting(team: MakeTeam) -> None:
    world = team(running_jobs=1)
    runs(world)
    waits = world.submit()
    world.plan()
    for _ in range(3):
        world.clock.move(hours=30)
        world.plan()
    assert world.state(waits) == "queue"
    world.user.post(f"/api/v1/jobs/{waits}/kill")
    assert world.state(waits) == "killed"


def test_waiting_counts_again_when_the_quota_is_no_longer_the_reason(team: MakeTeam) -> None:
    world = team(running_jobs=1, machine="2")
    _, first = runs(world)
    waits = world.submit(cpu=2)
    world.plan()
    assert world.job(waits).quota_since == EVENING
    world.clock.move(hours=30)
    _, foreign = _runs_for(world, "other")
    world.agent.exit(first, ran=60.0)
    world.plan()
    job = world.job(waits)
    assert job.quota_since is None
    assert job.waiting_since == world.clock()
    world.clock.move(hours=24, seconds=1)
    world.plan()
    assert world.state(waits) == "schedule timeout"
    world.agent.exit(foreign)


def _runs_for(world: World, name: str) -> tuple[str, dict[str, Any]]:
    job_id = world.submit(world.caller(name))
    world.plan()
    order = world.agent.order(job_id)
    world.agent.start(order)
    return job_id, order


def test_a_job_that_reaches_the_daily_limit_is_stopped_there(team: MakeTeam) -> None:
    world = team(minutes_a_day=60, minutes_a_job=None)
    first, one = runs(world)
    second, two = runs(world)
    watch = Watch()
    world.clock.move(minutes=29)
    _passed(watch, 29 * 60)
    watch.tick(world.deps, world.clock())
    assert world.agent.poll() == []
    world.clock.move(minutes=1)
    _passed(watch, 60)
    watch.tick(world.deps, world.clock())
    stops = {order["job"]: order for order in world.agent.poll()}
    assert {(o["want"], o["cause"]) for o in stops.values()} == {("stop", "wall_time")}
    assert set(stops) == {first, second}
    watch.tick(world.deps, world.clock())
    assert world.agent.poll() == []
    world.agent.exit(one, 143, cause="wall_time", ran=1800.0)
    view = world.look(first)
    assert view["job_status"] == "timeout"
    assert view["error_msg"] == (
        "the 60 running minutes per day of its owner's plan are used up (60.0 min), so the job was "
        "stopped; they reset at 2026-01-06 00:00 (Asia/Shanghai)"
    )
    world.agent.exit(two, 0, ran=1799.0)
    assert world.state(second) == "success"


def _passed(watch: Watch, seconds: float) -> None:
    """As if so much real time had passed since the last tick."""
    watch.steps.seconds -= seconds


def test_over_midnight_the_minutes_of_the_new_day_count(team: MakeTeam) -> None:
    world = team(minutes_a_day=60, minutes_a_job=None)
    world.clock.move(hours=3, minutes=10)
    job_id, order = runs(world)
    watch = Watch()
    for _ in range(2):
        world.clock.move(minutes=50)
        _passed(watch, 50 * 60)
        watch.tick(world.deps, world.clock())
    assert world.agent.poll() == []
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day") == (50.0, 60)
    world.agent.exit(order, ran=6000.0)
    assert world.state(job_id) == "success"
    days = world.user.get("/api/v1/quota/history")["days"]
    assert [(day["date"], day["minutes"], day["jobs"]) for day in days] == [
        ("2026-01-06", 50.0, 1),
        ("2026-01-05", 50.0, 1),
    ]


def test_one_job_gets_the_minutes_of_a_job(team: MakeTeam) -> None:
    world = team()
    job_id, order = world.placed()
    assert order["run"]["max_seconds"] == 1800.0
    world.agent.start(order)
    assert world.job(job_id).deadline == EVENING + timedelta(minutes=30)
    world.agent.exit(order, 143, cause="wall_time")
    view = world.look(job_id)
    assert view["job_status"] == "timeout"
    assert view["error_msg"] == (
        "the job exceeded the 30 minutes that its owner's plan allows per job, and was stopped"
    )


def test_a_private_pool_has_no_limits(team: MakeTeam) -> None:
    world = team(private=True, running_jobs=1, minutes_a_day=1)
    _, first = world.placed(cpu=4, wall_time=7200)
    assert first["run"]["max_seconds"] == 7200.0
    world.agent.start(first)
    world.clock.move(minutes=30)
    watch = Watch()
    watch.tick(world.deps, world.clock())
    second, _ = world.placed()
    assert world.look(second)["pool"] == "local"
    view = world.user.get("/api/v1/quota")
    assert limit(view, "minutes_a_day") == (0.0, 1)


@pytest.mark.parametrize(
    ("plan", "asks", "code"),
    [
        ({"cpu": 2.0}, {"cpu": 3}, "quota_beyond"),
        ({"memory": 2**30}, {"memory": 2**31}, "quota_beyond"),
        ({"running_jobs": 0}, {}, "quota_none"),
        ({}, {"priority": 100}, "priority_not_allowed"),
    ],
)
def test_what_the_plan_never_allows_is_refused_at_submit(
    team: MakeTeam, plan: dict[str, Any], asks: dict[str, Any], code: str
) -> None:
    world = team(**plan)
    spec = world.spec(**asks) | {"snapshot": "sha256:" + "0" * 64}
    for route in ("/api/v1/jobs/validate", "/api/v1/jobs"):
        with pytest.raises(Refused) as refused:
            world.user.post(route, a_submit(spec))
        assert refused.value.code == code
    assert world.count("jobs") == 0


def test_resources_in_use_hold_the_next_job(team: MakeTeam) -> None:
    world = team(running_jobs=None, gpu=0, memory=2**32)
    runs(world, memory=3 * 2**30)
    waits = world.submit(memory=2 * 2**30)
    world.plan()
    reason = world.look(waits)["queue_reason"]
    assert reason.startswith("needs 1 CPU, 2 GiB in total, but running jobs leave")
    assert "1 GiB of its owner's plan" in reason
    assert world.job(waits).quota_since is not None


def test_a_full_queue_is_a_429_with_a_wait(team: MakeTeam) -> None:
    world = team(waiting_jobs=3)
    body = a_submit(world.spec())
    known = world.user.post("/api/v1/jobs", body)["job"]["job_id"]
    for _ in range(2):
        world.submit()
    asked = world.user.call("POST", "/api/v1/jobs/validate", body=a_submit(world.spec()))
    assert asked.status == 429
    reply = world.user.call("POST", "/api/v1/jobs", body=a_submit(world.spec()))
    assert (reply.status, reply.headers["retry-after"]) == (429, "60")
    with pytest.raises(TooMany, match="3 of your jobs are already waiting, your plan allows 3"):
        reply.json()
    assert world.user.post("/api/v1/jobs", body)["job"]["job_id"] == known
    assert world.count("jobs") == 3
    world.submit(world.caller("other"))


def test_files_beyond_the_plan_are_refused_before_they_are_uploaded(team: MakeTeam) -> None:
    world = team(storage=1000)
    world.snapshot({"a": b"a" * 600})
    with pytest.raises(
        Refused, match="not enough storage for 500 B more: 600 B of your plan's 1000 B"
    ):
        world.snapshot({"b": b"b" * 500})
    unasked = world.user.call("POST", "/api/v1/blobs", body=packed(b"c" * 500))
    assert unasked.code == "quota_storage"
    # What is there already needs no room.
    world.snapshot({"again": b"a" * 600, "small": b"d" * 400})
    assert limit(world.user.get("/api/v1/quota"), "storage") == (1000, 1000)


def test_unfinished_uploads_take_up_room(team: MakeTeam) -> None:
    world = team(storage=40 * MIB)
    started, further = b"s" * (30 * MIB), b"f" * (20 * MIB)
    digest, _ = begun(world, started)
    whole = "for 20 MiB more: 0 B of your plan's 40 MiB .* 30 MiB are reserved for unfinished"
    with pytest.raises(Refused, match=whole):
        begun(world, further)
    with pytest.raises(Refused, match="reserved for unfinished uploads"):
        world.snapshot({"small": b"m" * (11 * MIB)})
    unasked = world.user.call("POST", "/api/v1/blobs", body=packed(b"c" * (11 * MIB)))
    assert unasked.code == "quota_storage_open"
    # Its own room is not in its way, nor in that of what is submitted with it.
    assert not begun(world, started)[1]["stored"]
    entries = [["model", "file", len(started), digest, 0, ""]]
    assert world.user.post("/api/v1/snapshots", {"entries": entries})["missing"] == [digest]
    world.snapshot({"small": b"m" * (10 * MIB)})
    upload = BlobUpload(world.deps, "someone", digest)
    record = upload.open()
    for number in range(1, record.count + 1):
        upload.put_part(record, number, b"s" * record.size_of(number))
    assert world.user.post(f"/api/v1/uploads/{digest}/finish", {}) == {"stored": True}
    assert limit(world.user.get("/api/v1/quota"), "storage") == (40 * MIB, 40 * MIB)


@pytest.mark.parametrize("size", [9 * MIB, MIB, 100_000])
def test_streams_beside_each_other_share_the_room(team: MakeTeam, size: int) -> None:
    world = team(storage=10 * MIB)
    streams = [snapshots.Receiver(world.deps, "someone") for _ in range(4)]
    going, number = list(streams), 0
    while going and number < 1000:
        number += 1
        for stream in list(going):
            try:
                stream.feed(packed(number.to_bytes(4) + os.urandom(size - 4)))
            except Refused as error:
                assert error.code == "quota_storage"
                going.remove(stream)
    for stream in streams:
        stream.close()
    files = world.deps.store.list("users/someone/blobs/")
    kept = sum(stat.size for stat in files)
    uncounted = len(streams) * snapshots.UNCOUNTED if size < snapshots.UNCOUNTED else 0
    assert 10 * MIB - size < kept <= 10 * MIB + uncounted
    assert limit(world.user.get("/api/v1/quota"), "storage")[0] == kept


def test_a_file_that_is_wrong_does_not_count(team: MakeTeam) -> None:
    world = team()
    for data in (b"good" * MIB, bytes(100)):
        bad = bytearray(packed(data))
        bad[-1] ^= 1
        assert world.user.call("POST", "/api/v1/blobs", body=bytes(bad)).code == "blob_digest"
    assert limit(world.user.get("/api/v1/quota"), "storage")[0] == 0


def test_an_upload_counts_once_however_often_it_is_finished(
    team: MakeTeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = team(storage=10 * MIB)
    data = os.urandom(3 * MIB)
    digest, answer = begun(world, data)
    upload, size = BlobUpload(world.deps, "someone", digest), answer["part_size"]
    record = upload.open()
    for number in range(1, record.count + 1):
        upload.put_part(record, number, data[(number - 1) * size : number * size])
    real, taken = world.deps.store.delete, list[int]()

    def delete(path: str) -> None:
        """From then on it holds no room."""
        taken.append(world.deps.db.read(lambda tx: usage.stored_bytes(tx, "someone")))
        real(path)

    monkeypatch.setattr(world.deps.store, "delete", delete)
    state = upload.find()
    assert state is not None
    assert upload.complete(state, digest)
    upload.completed(record)
    assert taken == [len(data)]
    assert limit(world.user.get("/api/v1/quota"), "storage")[0] == len(data)


def test_outputs_count_and_are_never_thrown_away(team: MakeTeam) -> None:
    world = team(storage=1000)
    job_id, order = runs(world)
    assert world.agent.upload(order, "model", b"m" * 2000).status == 200
    world.agent.exit(order)
    assert world.state(job_id) == "success"
    world.release()
    storage_usage.count(world.deps, world.clock())
    used, most = limit(world.user.get("/api/v1/quota"), "storage")
    assert used == 2000 + len(b"echo hi\n")
    assert most == 1000
    with pytest.raises(Refused, match="more than your plan's 1000 B"):
        world.submit()
    later = world.with_clock(world.clock() + timedelta(days=91))
    garbage_collection.collect(later)
    assert limit(world.user.get("/api/v1/quota"), "storage")[0] == len(b"echo hi\n")


def test_the_clean_loop_counts_files_anew(team: MakeTeam) -> None:
    world = team()
    world.snapshot({"a": b"a" * 600})
    world.deps.db.write(lambda tx: usage.add_files(tx, "someone", -593))
    garbage_collection.collect(world.deps)
    assert world.deps.db.read(lambda tx: usage.files_bytes(tx, "someone")) == 600


def test_the_clean_loop_counts_outputs_anew(team: MakeTeam) -> None:
    """An older server on the same database has changed a job, and knows nothing of the sum."""
    world = team()
    job_id = world.submit()
    db = world.deps.db
    files = db.read(lambda tx: usage.stored_bytes(tx, "someone"))
    change = "update jobs set output_bytes = 70 where id = ?"
    db.write(lambda tx: tx.execute(change, (job_id,)))
    assert db.read(lambda tx: usage.stored_bytes(tx, "someone")) == files
    garbage_collection.collect(world.deps)
    assert db.read(lambda tx: usage.stored_bytes(tx, "someone")) == files + 70


def test_what_is_sent_while_files_are_counted_anew_counts_too(
    team: MakeTeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = team()
    world.user.post("/api/v1/blobs", packed(b"a" * 600))
    later = world.with_clock(datetime.now(UTC) + timedelta(days=91))
    delete = world.deps.store.delete

    def send_meanwhile(path: str) -> None:
        world.user.post("/api/v1/blobs", packed(b"b" * 50))
        delete(path)

    monkeypatch.setattr(world.deps.store, "delete", send_meanwhile)
    garbage_collection.collect(later)
    assert world.deps.db.read(lambda tx: usage.files_bytes(tx, "someone")) == 50


def test_minutes_outlive_a_jump_of_the_clock(team: MakeTeam) -> None:
    world = team(minutes_a_day=600)
    _, order = runs(world)
    watch = Watch()
    watch.tick(world.deps, world.clock())
    world.clock.move(minutes=5)
    _passed(watch, 300)
    watch.tick(world.deps, world.clock())
    watch.tick(world.deps, world.clock.move(hours=2))
    used, _ = limit(world.user.get("/api/v1/quota"), "minutes_a_day")
    assert used is not None
    assert abs(used - 5) < 0.2
    world.agent.exit(order, ran=301.0)
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day")[0] == pytest.approx(5.02)


def test_a_job_killed_before_its_start_was_heard_of_is_counted(team: MakeTeam) -> None:
    world = team()
    job_id, order = world.placed()
    world.user.post(f"/api/v1/jobs/{job_id}/kill")
    world.clock.move(minutes=2)
    began = world.clock().timestamp() - 60
    world.agent.exit(order, 143, cause="stopped", started_at=began, ran=60.0)
    assert world.state(job_id) == "killed"
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day")[0] == 1.0


def test_every_attempt_counts_once(team: MakeTeam) -> None:
    world = team()
    job_id, order = runs(world, max_retries=1)
    world.clock.move(minutes=3)
    world.agent.exit(order, 101, ran=180.0)
    world.agent.exit(order, 101, ran=180.0)
    world.clock.move(seconds=1)
    world.plan()
    again = world.agent.order(job_id)
    assert again["run"]["max_seconds"] == 1800.0 - 180.0
    world.agent.start(again)
    world.clock.move(minutes=4)
    world.agent.exit(again, 0, ran=240.0)
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day")[0] == 7.0
    assert world.count("usage") == 2


def test_an_admin_changes_a_plan_and_the_change_is_written_down(team: MakeTeam) -> None:
    world = team(running_jobs=1)
    boss = world.caller("boss", role=UserRole.ADMIN)
    runs(world)
    waits = world.submit()
    world.plan()
    assert world.look(waits)["pool"] == ""
    path = "/api/v1/admin/users/someone/quota"
    view = boss.post(path, {"limits": {"running_jobs": 2, "storage": "1Gi", "cpu": None}})
    assert limit(view, "running_jobs") == (1, 2)
    assert limit(view, "storage")[1] == 2**30
    assert view["own_limits"] == ["cpu", "running_jobs", "storage"]
    world.plan()
    assert world.look(waits)["pool"] == "local"
    view = boss.post(path, {"plan": "big", "limits": {"running_jobs": "plan", "cpu": "plan"}})
    assert (view["plan"], limit(view, "running_jobs")) == ("big", (2, 9))
    assert boss.get(path)["own_limits"] == ["storage"]
    assert boss.post(path, {"plan": None})["plan"] == "free"
    rows = world.deps.db.read(lambda tx: tx.all("select actor, action, target from audit"))
    assert rows == [("boss", "quota.set", "someone")] * 3
    plans = boss.get("/api/v1/admin/plans")["plans"]
    assert [(plan["name"], plan["default"]) for plan in plans] == [
        ("free", True),
        ("big", False),
        ("unlimited", False),
    ]
    assert boss.get(f"{path}/history", days=1)["days"][0]["jobs"] == 1


def test_who_may_change_what(team: MakeTeam) -> None:
    world = team()
    boss = world.caller("boss", role=UserRole.ADMIN)
    path = "/api/v1/admin/users/someone/quota"
    for call in (world.user.get, world.user.post):
        with pytest.raises(Forbidden):
            call(path)
    with pytest.raises(NotFound):
        boss.get("/api/v1/admin/users/nobody/quota")
    for wrong, code in (
        ({"plan": "none such"}, "plan_unknown"),
        ({"limits": {"minutes": 3}}, "quota_limit_unknown"),
        ({"limits": {"cpu": -1}}, "quota_limit_value"),
        ({"limits": {"minutes": "plan"}}, "quota_limit_unknown"),
        ({"limits": {"max_priority": "top"}}, "quota_priority"),
    ):
        with pytest.raises(Invalid) as invalid:
            boss.post(path, wrong)
        assert invalid.value.code == code
    assert world.count("audit") == 0


def test_without_a_team_nothing_is_limited_and_everything_is_counted(world: World) -> None:
    _, order = runs(world)
    for _ in range(3):
        world.submit()
    world.clock.move(minutes=1)
    world.agent.exit(order, ran=60.0)
    view = world.user.get("/api/v1/quota")
    assert (view["plan"], view["minutes_left"]) == ("unlimited", None)
    assert all(row["limit"] is None for row in view["limits"])
    assert limit(view, "waiting_jobs") == (3, None)
    days = world.user.get("/api/v1/quota/history", days=2)["days"]
    assert sum(day["private_minutes"] for day in days) == 1.0


def test_today_and_the_gauges_tell_the_same(team: MakeTeam) -> None:
    world = team()
    runs(world)
    now = world.clock.move(minutes=6)
    today = world.deps.db.read(lambda tx: quota.today(world.deps, tx, "someone", now))
    assert (today.used, today.limit) == (6.0, 100)
    assert today.renews == "2026-01-06 00:00 (Asia/Shanghai)"
    admin = world.caller("boss", role=UserRole.ADMIN)
    for caller in (world.user, admin):
        text = caller.call("GET", "/metrics").body.decode()
        assert 'paddlecloud_quota_minutes_today{user="someone"} 6' in text
        assert 'paddlecloud_quota_running_jobs{user="someone"} 1' in text
    other = world.caller("other").call("GET", "/metrics").body.decode()
    assert 'paddlecloud_jobs{state="running"} 1' in other
    assert "someone" not in other


def test_a_plan_that_the_settings_lost_is_the_default_one(team: MakeTeam) -> None:
    world = team()
    world.deps.db.write(lambda tx: usage.set_plan(tx, "someone", "gone", {}))
    assert world.user.get("/api/v1/quota")["plan"] == "free"


def test_a_second_agent_changes_nothing_about_the_count(team: MakeTeam) -> None:
    world = team()
    late: ScriptedAgent = world.agent_of(NODE)
    job_id, order = runs(world)
    world.clock.move(minutes=1)
    late.report({"replica": order["replica"], "fence": order["fence"] - 1, "lost": True})
    assert world.state(job_id) == "running"
    world.agent.exit(order, ran=60.0)
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day")[0] == 1.0
