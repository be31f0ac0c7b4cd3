"""A job of a higher class takes the place of one of a lower, over a real database and real HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Invalid, Refused
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World


def allow_preemption(world: World) -> World:
    pools = world.deps.pools
    assert isinstance(pools, dict)
    for name, pool in list(pools.items()):
        pools[name] = replace(pool, preemption=True)
    return world


@pytest.fixture
def shared(world: World) -> World:
    """One machine of one CPU whose pool allows preemption."""
    return allow_preemption(world)


def a_victim(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A job of class low that runs long enough to be asked to go."""
    job_id, order = world.placed(**({"priority": "low"} | changes))
    world.agent.start(order)
    world.clock.move(minutes=10)
    return job_id, order


def an_urgent(world: World) -> str:
    """A job of class urgent that waited long enough to ask others to go."""
    job_id = world.submit(priority="urgent")
    world.plan()
    world.clock.move(seconds=31)
    world.plan()
    return job_id


def test_the_lower_class_is_asked_to_stop_with_grace_and_both_are_told_why(shared: World) -> None:
    low, order = a_victim(shared)
    urgent = an_urgent(shared)
    stop = shared.agent.order(low, "stop")
    assert (stop["replica"], stop["cause"], stop["grace"]) == (order["replica"], "preempted", 40)
    assert "being stopped in pool local" in shared.look(urgent)["queue_reason"]
    assert shared.state(low) == "running", "until it has ended"


def test_it_goes_back_to_schedule_with_its_number_and_no_retry_counted(shared: World) -> None:
    low, order = a_victim(shared)
    number = shared.job(low).number
    urgent = an_urgent(shared)
    shared.agent.exit(order, None, cause="preempted", signal=15)
    job = shared.job(low)
    assert (job.state, job.number, job.retried, job.pool) == ("schedule", number, 0, None)
    reason = shared.look(low)["queue_reason"]
    assert reason == (
        f"stopped to free resources for {urgent}, whose priority urgent is above its own low; "
        "waiting to be placed again"
    )
    history = shared.user.get(f"/api/v1/jobs/{low}/history")["history"]
    assert (history[-1]["event"], history[-1]["reason"]) == ("attempt lost", reason)


def test_the_freed_place_is_for_whom_it_was_freed_and_the_other_comes_back(shared: World) -> None:
    low, order = a_victim(shared)
    urgent = an_urgent(shared)
    shared.agent.exit(order, None, cause="preempted", signal=15)
    shared.plan()
    assert shared.job(urgent).pool == "local"
    assert shared.job(low).pool is None
    second = shared.agent.order(urgent)
    shared.agent.run(second)
    shared.plan()
    again = shared.agent.order(low)
    assert again["replica"] == f"{low}.2.trainer-0"
    shared.agent.run(again)
    view = shared.look(low)
    assert (view["job_status"], view["attempts"], view["failure"]) == ("success", 2, None)


def test_asking_again_stops_nobody_twice_and_no_second_one(make_world: MakeWorld) -> None:
    world = allow_preemption(make_world(pools={"local": {"node": "node", "cpu": "2"}}))
    lows = [a_victim(world)[0] for _ in range(2)]
    an_urgent(world)
    for _ in range(3):
        world.clock.move(seconds=10)
        world.plan()
    stopped = [o for o in world.agent.poll() if o["want"] == "stop"]
    assert len(stopped) == 1
    assert stopped[0]["job"] == lows[1], "the younger one"


def test_who_ends_by_itself_meanwhile_has_ended_well(shared: World) -> None:
    low, order = a_victim(shared)
    an_urgent(shared)
    shared.agent.exit(order, 0)
    assert shared.state(low) == "success"


def test_a_kill_of_the_one_that_has_to_go_ends_it(shared: World) -> None:
    low, order = a_victim(shared)
    an_urgent(shared)
    shared.user.post(f"/api/v1/jobs/{low}/kill", {})
    shared.agent.exit(order, None, cause="preempted", signal=15)
    assert shared.state(low) == "killed"


def test_where_the_pool_does_not_allow_it_the_higher_class_waits(world: World) -> None:
    low, _ = a_victim(world)
    an_urgent(world)
    world.clock.move(minutes=30)
    world.plan()
    assert world.state(low) == "running"
    assert world.agent.poll() == [], "nobody was told anything"


def test_a_plan_says_which_classes_its_users_may_use(make_world: MakeWorld) -> None:
    def with_limits(settings: Any) -> Any:
        plans = dict(settings.plans)
        plans["small"] = replace(plans["free"], max_priority="normal")
        return replace(settings, plans=plans, default_plan="small")

    world = make_world(change=with_limits)
    assert world.submit(priority="normal")
    with pytest.raises(Refused) as refused:
        world.submit(priority="high")
    assert refused.value.code == "priority_not_allowed"
    with pytest.raises(Invalid):
        world.submit(priority="highest")
    assert world.submit(world.caller("root", role=UserRole.ADMIN), priority="urgent")


def test_a_pool_that_names_its_users_takes_nobody_elses_job(world: World) -> None:
    pools = world.deps.pools
    assert isinstance(pools, dict)
    pools["local"] = replace(pools["local"], users=frozenset({"someone"}))
    world.submit()
    with pytest.raises(Refused):
        world.submit(world.caller("other"))
