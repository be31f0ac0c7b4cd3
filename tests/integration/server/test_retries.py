"""A job that is tried again: a new attempt in a new place, with the old logs set aside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from paddlecloud.db.tables import jobs
from paddlecloud.model.jobs.job import Resources, Role
from paddlecloud.scheduler.view import Place, Slot
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.agents import lost_agents
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.placement import apply, planner_input
from paddlecloud.testing import item
from tests.integration.server.world import World, eventually


def lost_job(world: World, log: bytes = b"first\n", **changes: Any) -> tuple[str, dict[str, Any]]:
    """A job whose first attempt ran, wrote `log` and was lost; it waits for its next place."""
    job_id, order = world.placed(max_retries=1, **changes)
    world.agent.start(order)
    world.agent.log(order, 0, log)
    world.agent.report(item(order, lost=True, all_ended=True))
    assert world.state(job_id) == "schedule"
    return job_id, order


def test_a_lost_attempt_goes_back_to_schedule_with_a_reason(world: World) -> None:
    job_id, order = lost_job(world)
    view = world.look(job_id)
    want = (
        "the supervisor of trainer-0 on machine node-0 was killed, so the outcome of trainer-0 is "
        "unknown; all its processes were stopped"
    )
    assert (view["queue_reason"], view["pool"], view["attempts"]) == (want, "", 1)
    assert world.agent.order(job_id, "forget")["replica"] == order["replica"]
    history = world.user.get(f"/api/v1/jobs/{job_id}/history")["history"]
    assert (history[-1]["event"], history[-1]["reason"]) == ("attempt lost", want)


def test_the_next_attempt_is_another_replica_with_a_higher_fence(world: World) -> None:
    job_id, first = lost_job(world)
    world.plan()
    second = world.agent.order(job_id)
    assert second["replica"] == f"{job_id}.2.trainer-0"
    assert second["fence"] > first["fence"]
    assert second["run"]["env"]["PADDLECLOUD_ATTEMPT"] == "2"
    assert world.agent.start(first)["stale"] == [first["replica"]]
    assert world.agent.upload(first, "model", b"old").code == "fence_stale"


def test_success_at_last_leaves_no_trace_of_the_failure(world: World) -> None:
    job_id, _ = lost_job(world)
    world.plan()
    second = world.agent.order(job_id)
    world.agent.start(second)
    assert world.look(job_id)["error_msg"] == ""
    world.agent.exit(second, 0)
    view = world.look(job_id)
    assert (view["job_status"], view["error_msg"], view["exit_code"]) == ("success", "", 0)
    assert view["failure"] is None


def test_no_more_retries_than_asked_for(world: World) -> None:
    job_id, _ = lost_job(world)
    world.plan()
    world.agent.exit(world.agent.order(job_id), 9)
    view = world.look(job_id)
    assert (view["job_status"], view["attempts"], view["exit_code"]) == ("failed", 2, 9)
    world.plan()
    world.release()
    assert [order["want"] for order in world.agent.poll()] == ["forget"]


def test_the_log_is_found_before_and_after_the_next_start(world: World) -> None:
    job_id, _ = lost_job(world)
    assert world.log(job_id) == world.log(job_id, attempt=1) == b"first\n"
    world.plan()
    assert (world.log(job_id), world.log(job_id, attempt=1)) == (b"", b"first\n")
    second = world.agent.order(job_id)
    world.agent.log(second, 0, b"second\n")
    assert (world.log(job_id), world.log(job_id, attempt=1)) == (b"second\n", b"first\n")
    listed = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert [row["path"] for row in listed] == [
        f"output/{job_id}/",
        f"output/{job_id}/log/attempt-1/trainer-0.log",
        f"output/{job_id}/log/trainer-0.log",
    ]


def test_files_of_the_log_directory_are_set_aside_too(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.agent.upload(order, "events/a", b"1", area="log")
    world.agent.upload(order, "model", b"1")
    world.agent.exit(order, 101)
    world.clock.move(seconds=1)
    world.plan()
    second = world.agent.order(job_id)
    world.agent.upload(second, "events/a", b"2", area="log")
    listed = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert [row["path"].removeprefix(f"output/{job_id}/") for row in listed] == [
        "",
        "log/attempt-1/rank-0/events/a",
        "log/rank-0/events/a",
        "rank-0/model",
    ]


def test_a_server_that_dies_after_setting_aside_sets_aside_once(world: World) -> None:
    job_id, order = lost_job(world)
    job_files.set_logs_aside(world.deps, world.job(job_id))
    assert world.log(job_id) == world.log(job_id, attempt=1) == b"first\n"
    # A straggler of the lost attempt comes too late, but for its end.
    assert late_log(world, order, 6) == [order["replica"]]
    assert world.agent.upload(order, "events/late", b"x", area="log").code == "fence_stale"
    world.plan()
    world.agent.log(world.agent.order(job_id), 0, b"second\n")
    assert (world.log(job_id), world.log(job_id, attempt=1)) == (b"second\n", b"first\n")


def late_log(world: World, order: dict[str, Any], offset: int) -> Any:
    """Which replicas the server calls stale when a piece of log comes for this one."""
    piece = item(order, log={"offset": offset, "length": 5})
    return world.agent.report(piece, log=b"late\n")["stale"]


def test_a_first_piece_that_comes_after_setting_aside_does_not_mix(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.agent.report(item(order, lost=True))
    job_files.set_logs_aside(world.deps, world.job(job_id))
    assert late_log(world, order, 0) == [order["replica"]]
    world.plan()
    assert (world.log(job_id), world.log(job_id, attempt=1)) == (b"", b"")


def test_the_log_of_a_job_killed_between_attempts_is_found(world: World) -> None:
    job_id, _ = lost_job(world)
    job_files.set_logs_aside(world.deps, world.job(job_id))
    assert world.user.post(f"/api/v1/jobs/{job_id}/kill")["job_status"] == "killed"
    assert world.log(job_id) == world.log(job_id, follow=1) == b"first\n"


def test_a_follower_is_told_where_one_attempt_ends_and_asks_for_the_next(world: World) -> None:
    job_id, _ = lost_job(world)
    where = f"/api/v1/jobs/{job_id}/logs"
    with ThreadPoolExecutor(2) as threads:
        following = threads.submit(world.raw, where, follow=1)
        pinned = threads.submit(world.raw, where, follow=1, attempt=1)
        eventually(
            lambda: len(world.deps.hub._waiters.get(("log", f"{job_id}/1/trainer-0"), ())) == 2
        )
        world.plan()
        for reply in (following.result(20), pinned.result(20)):
            assert (reply.body, reply.headers["x-log-attempt"]) == (b"first\n", "1")
        next_one = threads.submit(world.raw, where, follow=1, attempt=2)
        second = world.agent.order(job_id)
        world.agent.log(second, 0, b"second\n")
        world.agent.exit(second, 0, log_size=7)
        reply = next_one.result(20)
        assert (reply.body, reply.headers["x-log-attempt"]) == (b"second\n", "2")


def test_a_follower_who_comes_before_the_first_attempt_follows_that(world: World) -> None:
    job_id = world.submit()
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.raw, f"/api/v1/jobs/{job_id}/logs", follow=1)
        eventually(
            lambda: len(world.deps.hub._waiters.get(("log", f"{job_id}/1/trainer-0"), ())) == 1
        )
        world.plan()
        world.agent.run(world.agent.order(job_id), b"one\n")
        reply = following.result(20)
    assert (reply.body, reply.headers["x-log-attempt"]) == (b"one\n", "1")


def test_a_silent_agent_is_lost_only_after_it_was_watched(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.agent.start(order)
    world.agent.log(order, 0, b"first\n")
    watch = Watch()
    world.clock.move(hours=10)
    watch.tick(world.deps, world.clock())
    assert world.state(job_id) == "running", "a laptop that slept must not lose its jobs"
    for _ in range(18):
        watch.steps.seconds -= 5.0
        watch.tick(world.deps, world.clock())
    assert world.state(job_id) == "running"
    watch.steps.seconds -= 5.0
    watch.tick(world.deps, world.clock())
    assert world.state(job_id) == "schedule"


def test_an_agent_that_is_heard_of_again_is_not_lost(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    watch = Watch()
    watch.tick(world.deps, world.clock.move(minutes=10))
    watch.steps.seconds -= 5.0
    watch.tick(world.deps, world.clock())
    assert watch.silences.seconds["node-0"] > 0
    world.agent.poll()
    watch.steps.seconds -= 5.0
    watch.tick(world.deps, world.clock())
    assert watch.silences.seconds == {}
    assert world.state(job_id) == "running"


def test_a_lost_agent_without_retries_fails_the_job_in_words(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    lost_agents.mark_lost(world.deps, "node-0")
    view = world.look(job_id)
    assert view["job_status"] == "failed"
    assert "node-0" in view["error_msg"]
    assert "--max_retries" in view["failure"]["advice"]


def test_a_full_disk_only_delays_the_next_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = lost_job(world)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(world.deps.logs, "move", full)
        world.plan()
    assert (world.state(job_id), world.agent.poll()[-1]["want"]) == ("schedule", "forget")
    world.plan()
    assert world.agent.order(job_id)["attempt"] == 2


def test_a_decision_about_a_job_that_moved_on_is_dropped(world: World) -> None:
    job_id = world.submit()
    view, waiting = planner_input.read_view(world.deps, world.clock())
    world.user.post(f"/api/v1/jobs/{job_id}/kill")
    from_plan = [Place(job_id=job_id, pool="local", slots=())]
    assert apply.apply(world.deps, from_plan, waiting, view.now) == 0
    assert world.count("attempts") == 0


def test_a_lack_found_for_a_job_that_moved_on_holds_up_no_other(world: World) -> None:
    world.placed()
    gone, other = world.submit(), world.submit()
    world.plan()
    assert (world.state(gone), world.state(other)) == ("queue", "queue")
    found = world.deps.db.read(partial(jobs.waiting_jobs, per_owner=16))
    world.user.post(f"/api/v1/jobs/{gone}/kill")
    without_cards = Slot(Role.TRAINER, 0, "node-0", "127.0.0.1", asks=Resources(cpu=1, gpu=1))
    slot = Slot(Role.TRAINER, 0, "node-0", "127.0.0.1", asks=Resources(cpu=1))
    decisions = [
        Place(job_id=gone, pool="local", slots=(without_cards,)),
        Place(job_id=other, pool="local", slots=(slot,)),
    ]
    waiting = {job.id: job for job in found}
    assert apply.apply(world.deps, decisions, waiting, world.clock()) == 1
    assert (world.state(gone), world.state(other)) == ("killed", "schedule")


def test_retries_stop_at_the_schedule_timeout(world: World) -> None:
    job_id, _ = lost_job(world)
    world.clock.move(hours=25)
    world.plan()
    view = world.look(job_id)
    assert view["job_status"] == "schedule timeout"
    assert "could not be placed within 24:00:00" in view["error_msg"]
    assert world.log(job_id) == b"first\n"
