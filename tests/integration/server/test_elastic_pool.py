"""Jobs in a pool that makes machines on demand: one machine for each job, within its limits."""

from __future__ import annotations

from typing import Any

import pytest

from paddlecloud.model.errors import Refused
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_agent_join import ask, joined
from tests.integration.server.world import World

POOL = {"elastic": "1", "join": "1", "nodes": "2", "cpu": "4"}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(pools={"cloud": POOL})


def placed_on(world: World, job_id: str) -> set[str]:
    row = "select node from replicas where job_id = ?"
    return {node for (node,) in world.deps.db.read(lambda tx: tx.all(row, (job_id,)))}


def test_each_job_has_a_machine_of_its_own(world: World) -> None:
    jobs = [world.submit(cpu=1) for _ in range(3)]
    world.plan()
    assert [placed_on(world, job_id) for job_id in jobs] == [{"cloud-0"}, {"cloud-1"}, set()]
    assert "cloud" in world.look(jobs[2])["queue_reason"]
    credentials = world.backends["cloud"].credentials[f"{jobs[0]}-1"]
    assert credentials is not None
    agent = joined(world, ask(world, credentials.join_token, node="cloud-0"))
    agent.run(agent.order(jobs[0]), b"hello\n")
    assert world.state(jobs[0]) == "success"
    world.plan()
    assert placed_on(world, jobs[2]) == {"cloud-0"}, "another machine, in its turn"


def test_the_workers_of_one_job_may_share_a_machine(world: World) -> None:
    gang = world.submit(cpu=1, instance_count=3)
    world.plan()
    assert placed_on(world, gang) == {"cloud-0", "cloud-1"}


@pytest.mark.parametrize("asked", [{"cpu": 5}, {"cpu": 4, "instance_count": 3}])
def test_what_is_beyond_the_limits_is_refused_at_submit(
    world: World, asked: dict[str, Any]
) -> None:
    with pytest.raises(Refused):
        world.submit(**asked)


def test_the_total_counts_too(make_world: MakeWorld) -> None:
    world = make_world(pools={"cloud": POOL | {"total_cpu": "6"}})
    first, second = world.submit(cpu=4), world.submit(cpu=4)
    world.plan()
    assert (placed_on(world, first), placed_on(world, second)) == ({"cloud-0"}, set())
    small = world.submit(cpu=2)
    world.plan()
    assert placed_on(world, small) == {"cloud-1"}


def test_capacity_may_differ_between_owners(make_world: MakeWorld) -> None:
    world = make_world(pools={"cloud": POOL | {"without": "someone"}})
    waits = world.submit()
    other = world.submit(world.caller("other"))
    world.plan()
    assert (placed_on(world, waits), placed_on(world, other)) == (set(), {"cloud-0"})
