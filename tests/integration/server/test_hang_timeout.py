"""A job that does nothing any more is ended; one that only pauses, or is not watched, is not."""

from __future__ import annotations

from typing import Any

import pytest

from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.testing import item
from tests.integration.server.world import World


def watched(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A running job that may be silent for a minute."""
    job_id, order = world.placed(**({"hang_timeout": 60} | changes))
    world.agent.start(order)
    world.agent.log(order, 0, b"step 1\n")
    return job_id, order


def use(world: World, order: dict[str, Any], quiet: float) -> None:
    world.agent.report(item(order, usage={"cpu": 0, "memory": 1, "peak_memory": 1, "quiet": quiet}))


def tick(world: World) -> list[dict[str, Any]]:
    """One look of the watch loop, and what the agent hears then."""
    Watch().tick(world.deps, world.clock())
    return world.agent.poll()


def test_a_silent_job_is_stopped_and_says_why(world: World) -> None:
    job_id, order = watched(world)
    use(world, order, 61)
    (stop,) = tick(world)
    assert (stop["want"], stop["cause"], stop["grace"]) == ("stop", "hung", 40)
    told = world.look(job_id)
    assert (told["job_status"], "for 00:01:00" in told["error_msg"]) == ("running", True)
    assert tick(world) == []
    world.agent.exit(order, None, signal=15, cause="hung", log_size=7)
    view = world.look(job_id)
    assert (view["job_status"], view["exit_code"]) == ("failed", 143)
    assert view["failure"]["worker"] == "trainer-0"
    assert view["failure"]["last_lines"] == ["step 1"]
    assert "stacks" in view["failure"]["advice"]


@pytest.mark.parametrize("quiet", [0, 30, 47.9])
def test_one_that_was_not_silent_for_so_long_goes_on(world: World, quiet: float) -> None:
    _, order = watched(world)
    use(world, order, quiet)
    world.clock.move(seconds=12)
    assert tick(world) == []


def test_silence_is_counted_on_between_two_words_of_the_agent(world: World) -> None:
    _, order = watched(world)
    use(world, order, 50)
    world.clock.move(seconds=9)
    assert tick(world) == []
    world.clock.move(seconds=1)
    assert [stop["cause"] for stop in tick(world)] == ["hung"]


def test_an_agent_that_is_away_makes_no_job_hang(world: World) -> None:
    """What it watched may have gone on; and a laptop may have slept."""
    job_id, order = watched(world)
    use(world, order, 20)
    world.clock.move(hours=8)
    assert tick(world) == []
    assert world.state(job_id) == "running"


def test_it_is_off_by_default(world: World) -> None:
    _, order = watched(world, hang_timeout=None)
    use(world, order, 1e6)
    assert tick(world) == []
    assert order["run"]["stacks"] is False


def test_its_agent_is_told_to_be_ready(world: World) -> None:
    assert watched(world)[1]["run"]["stacks"] is True


def test_a_hang_is_tried_again_only_if_any_failure_is(world: World) -> None:
    job_id, order = watched(world, max_retries=1, retry_exit_codes="any")
    use(world, order, 61)
    tick(world)
    world.agent.exit(order, None, signal=15, cause="hung", log_size=7)
    assert world.state(job_id) == "schedule"
