"""What workers use: told by an agent, shown to its owner, kept at its highest."""

from __future__ import annotations

from typing import Any

from paddlecloud.testing import item
from tests.integration.server.world import World

MIB = 1024 * 1024


def use(**changes: Any) -> dict[str, Any]:
    return {"cpu": 1.5, "memory": 100 * MIB, "peak_memory": 120 * MIB, "quiet": 0.0} | changes


def test_use_is_shown_while_it_runs_and_its_peak_for_ever(world: World) -> None:
    job_id, order = world.placed(memory=4096 * MIB)
    world.agent.start(order)
    (worker,) = world.look(job_id)["workers"]
    assert (worker["usage"], worker["peak_memory"]) == (None, None)
    world.agent.report(item(order, usage=use()))
    (worker,) = world.look(job_id)["workers"]
    assert worker["usage"] | {"at": ""} == {
        "at": "", "cpu": 1.5, "memory": 100 * MIB, "gpu": None, "gpu_memory": None, "quiet": 0.0,
    }  # fmt: skip
    assert worker["peak_memory"] == 120 * MIB
    world.agent.exit(order, peak_memory=110 * MIB, max_rss=90 * MIB)
    view = world.look(job_id)
    (worker,) = view["workers"]
    assert (worker["usage"], worker["peak_memory"]) == (None, 120 * MIB)
    (advice,) = view["advice"]
    assert "4096 MiB" in advice and "121 MiB" in advice
    world.agent.report(item(order, usage=use(cpu=9.0)))
    (row,) = world.user.get(f"/api/v1/jobs/{job_id}/usage")["workers"]
    assert (row["state"], row["usage"], row["peak_memory"]) == ("exited", None, 120 * MIB)


def test_quiet_goes_on_by_the_servers_clock(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.report(item(order, usage=use(cpu=0.0, quiet=30.0)))
    world.clock.move(seconds=5)
    (row,) = world.user.get(f"/api/v1/jobs/{job_id}/usage")["workers"]
    assert row["usage"]["quiet"] == 35.0


def test_everybody_sees_their_own(world: World) -> None:
    job_id, order = world.placed(job_name="mine")
    world.agent.start(order)
    world.agent.report(item(order, usage=use(gpu=0.5, gpu_memory=MIB)))
    (row,) = world.user.get("/api/v1/usage")["workers"]
    assert (row["job_id"], row["job_name"], row["worker"]) == (job_id, "mine", "trainer-0")
    assert row["asked"] == {"cpu": 1.0, "memory": 0, "gpu": 0}
    assert (row["usage"]["gpu"], row["usage"]["gpu_memory"]) == (0.5, MIB)
    assert world.caller("other").get("/api/v1/usage") == {"workers": []}
    assert world.caller("other").call("GET", f"/api/v1/jobs/{job_id}/usage").status == 404
    world.agent.exit(order)
    assert world.user.get("/api/v1/usage") == {"workers": []}


def test_numbers_beyond_reason_are_refused(world: World) -> None:
    _, order = world.placed()
    for wrong in ({"cpu": -1}, {"memory": -1}, {"quiet": 1e12}, {"cpu": 1e300}):
        assert world.agent.send(item(order, usage=use(**wrong))).status == 400
    assert world.count("replica_usage") == 0
