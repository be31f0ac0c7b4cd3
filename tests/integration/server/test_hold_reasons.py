"""What holds a worker up is told with its job, whoever's files they are; a kill waits for none."""

from __future__ import annotations

from typing import Any

from paddlecloud.testing import item
from tests.integration.server.world import World

FULL = {"code": "store_full", "params": {"path": "users/a/model"}}
WHY = "no disk space left on the server"


def tells(world: World, order: dict[str, Any], **held: Any) -> None:
    world.agent.report(item(order, held=held))


def test_outputs_that_find_no_room_are_told_until_they_do(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    tells(world, order, **FULL)
    job = world.look(job_id)
    (told,) = job["advice"]
    assert (job["job_status"], told.count(WHY)) == ("running", 1)
    assert job["queue_reason"] == told, "whoever watches or lists it hears it, too"
    assert told.startswith(
        "the command of trainer-0 has ended, but its outputs or log are not all stored"
    )
    tells(world, order, **FULL)
    assert world.look(job_id)["version"] == job["version"], "it is no news"
    headers = {"accept-language": "zh"}
    zh = world.user.call("GET", f"/api/v1/jobs/{job_id}", headers=headers).json()
    assert "服务器没有空间了" in zh["advice"][0]
    world.agent.exit(order, 0)
    job = world.look(job_id)
    assert (job["job_status"], job["advice"], job["queue_reason"]) == ("success", [], "")


def test_of_one_that_goes_on_it_is_told_when_all_is_well_again(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    tells(world, order, **FULL, runs=True)
    (told,) = world.look(job_id)["advice"]
    assert told.startswith(f"outputs of trainer-0 are not stored yet ({WHY}")
    tells(world, order, code="held_no_more")
    assert world.look(job_id)["advice"] == []


def test_files_that_do_not_come_are_why_it_waits(world: World) -> None:
    job_id, order = world.placed()
    starts = world.look(job_id)["queue_reason"]
    silent = {"place": "there", "reason": "timed out"}
    tells(world, order, code="store_unreachable", params=silent)
    job = world.look(job_id)
    assert job["queue_reason"].startswith(
        "trainer-0 waits for its files before it starts (the store"
    )
    assert job["advice"] == [job["queue_reason"]]
    tells(world, order, code="held_no_more")
    assert world.look(job_id)["queue_reason"] == starts
    world.agent.start(order)
    assert world.look(job_id)["advice"] == []


def test_what_is_on_its_way_is_no_trouble(world: World) -> None:
    job_id, order = world.placed()
    tells(world, order, code="held_fetching")
    want = "downloading the files of trainer-0; it starts when they are complete"
    assert world.look(job_id)["queue_reason"] == want
    world.agent.start(order)
    tells(world, order, code="held_sending")
    want = "the command of trainer-0 has ended, storing its outputs"
    assert world.look(job_id)["queue_reason"] == want
    tells(world, order, **FULL)
    assert WHY in world.look(job_id)["queue_reason"]


def test_packages_that_are_installed_are_why_it_waits(world: World) -> None:
    job_id, order = world.placed()
    tells(world, order, code="environment_making", params={"key": "e1"})
    want = "installing the packages of --requirements; the job starts when that is done"
    assert world.look(job_id)["queue_reason"] == want
    world.agent.start(order)
    assert world.look(job_id)["advice"] == []


def test_processes_that_do_not_end_are_named_until_they_do(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    tells(world, order, code="replica_not_ending", params={"pids": "12, 34"})
    job = world.look(job_id)
    assert job["job_status"] == "running"
    assert "the supervisor of trainer-0 on machine node-0 was killed" in job["queue_reason"]
    assert "its processes 12, 34 do not exit" in job["queue_reason"]
    world.agent.report(item(order, lost=True, all_ended=True))
    assert world.look(job_id)["advice"] != [job["queue_reason"]]


def test_who_kills_it_waits_for_no_store(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    assert order["run"]["store_patience"] == 6 * 3600
    world.user.post(f"/api/v1/jobs/{job_id}/kill")
    stop = world.agent.order(job_id, "stop")
    assert stop["run"]["store_patience"] == stop["grace"] == 40
    said = {
        "code": "unsent_kept",
        "params": {"files": "output/model", "reason": WHY, "host": "h", "place": "/p", "days": 7},
    }
    world.agent.exit(order, 0, cause="stopped", said=said)
    job = world.look(job_id)
    assert job["job_status"] == "killed"
    assert f"these outputs were not stored: output/model ({WHY})" in job["error_msg"]
