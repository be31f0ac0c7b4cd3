"""Retries take their time: which failures, after how long, and what the person is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.server.services.agents import lost_agents
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World


def failed_once(world: World, code: int = 101, **changes: Any) -> tuple[str, dict[str, Any]]:
    job_id, order = world.placed(**({"max_retries": 3} | changes))
    world.agent.run(order, b"first\n", code)
    return job_id, order


def runs(world: World, job_id: str) -> bool:
    """Whether it got a place now."""
    world.plan()
    return bool(world.look(job_id)["pool"])


def test_a_retry_waits_and_says_until_when(world: World) -> None:
    job_id, _ = failed_once(world)
    assert not runs(world, job_id)
    view = world.look(job_id)
    at = (world.clock() + timedelta(seconds=1)).astimezone(world.deps.settings.zone)
    shown = f"{at.isoformat(' ', 'seconds')[:19]} (Asia/Shanghai)"
    want = f"the last attempt failed; retry 1 of 3 starts at {shown}"
    assert (view["job_status"], view["queue_reason"]) == ("queue", want)
    assert view["error_msg"] == "trainer-0 exited with code 101"
    world.clock.move(seconds=1)
    assert runs(world, job_id)
    assert world.agent.order(job_id)["run"]["env"]["PADDLECLOUD_ATTEMPT"] == "2"


def test_each_pause_is_twice_as_long(world: World) -> None:
    job_id, _ = failed_once(world)
    for pause in (1, 2, 4):
        world.clock.move(seconds=pause - 0.001)
        assert not runs(world, job_id)
        world.clock.move(seconds=0.001)
        assert runs(world, job_id)
        world.agent.run(world.agent.order(job_id), b"again\n", 102)
    view = world.look(job_id)
    assert (view["job_status"], view["attempts"], view["exit_code"]) == ("failed", 4, 102)


def test_the_first_pause_is_a_setting(make_world: MakeWorld) -> None:
    minute = timedelta(minutes=1)
    world = make_world(
        change=lambda s: replace(s, scheduling=replace(s.scheduling, retry_pause=minute))
    )
    job_id, _ = failed_once(world)
    world.clock.move(seconds=59)
    assert not runs(world, job_id)
    world.clock.move(seconds=1)
    assert runs(world, job_id)


def test_the_first_lost_machine_costs_no_time_and_the_second_does(world: World) -> None:
    job_id, order = world.placed(max_retries=3)
    world.agent.start(order)
    lost_agents.mark_lost(world.deps, "node-0")
    world.agent.poll()
    assert runs(world, job_id)
    world.agent.start(world.agent.order(job_id))
    lost_agents.mark_lost(world.deps, "node-0")
    world.agent.poll()
    assert not runs(world, job_id)
    world.clock.move(seconds=1)
    assert runs(world, job_id)


@pytest.mark.parametrize(
    ("code", "changes", "want"),
    [
        (1, {}, "failed"),
        (1, {"retry_exit_codes": "1"}, "schedule"),
        (101, {"retry_exit_codes": "1"}, "failed"),
        (1, {"retry_exit_codes": "any"}, "schedule"),
        (127, {"retry_exit_codes": "any"}, "failed"),
        (101, {"max_retries": 0}, "failed"),
    ],
)
def test_only_listed_codes_are_tried_again(
    world: World, code: int, changes: dict[str, Any], want: str
) -> None:
    job_id, _ = failed_once(world, code, **changes)
    assert world.state(job_id) == want


def test_the_loop_wakes_up_in_time(world: World) -> None:
    job_id, _ = failed_once(world)
    assert world.schedule.tick(world.deps, world.clock()) == 1.0
    assert world.schedule.tick(world.deps, world.clock.move(seconds=0.75)) == 0.25
    assert world.schedule.tick(world.deps, world.clock.move(seconds=0.25)) is None
    assert world.look(job_id)["attempts"] == 2


def test_a_job_is_killed_in_its_pause(world: World) -> None:
    job_id, _ = failed_once(world)
    world.plan()
    assert world.user.post(f"/api/v1/jobs/{job_id}/kill")["job_status"] == "killed"
    want = "killed on request while waiting for its next attempt"
    assert world.look(job_id)["error_msg"] == want
    world.clock.move(hours=1)
    assert not runs(world, job_id)


def test_a_pause_holds_up_nobody_else(world: World) -> None:
    job_id, _ = failed_once(world, priority="high")
    other, _ = world.placed()
    assert (world.look(other)["pool"], world.look(job_id)["pool"]) == ("local", "")
