"""Outputs that their owner's bucket does not take: waited for, then kept and told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlecloud.agent.outputs import unsent
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import World

ALWAYS = 100_000
SAID = "[paddlecloud] these outputs are not in the bucket: "


def kept(world: World, replica: str) -> dict[str, str]:
    top = world.directory / unsent.DIRECTORY / replica
    files = (path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): path.read_text() for path in files}


def test_a_bucket_that_takes_nothing_is_waited_for_so_long_and_no_longer(world: World) -> None:
    world.server.fault("/files/", "503", times=ALWAYS)
    replica = world.run("echo weights > $OUTPUT_PATH/model", patience=0.5)
    end = world.ended(replica)
    assert (end["cause"], end["exit_code"]) == ("outputs_lost", 0)
    assert end["message"].startswith("rank-0/model (scripted); they are kept for 7 days on ")
    assert world.text(replica).startswith(f"{SAID}rank-0/model (scripted); ")
    assert kept(world, replica) == {"rank-0/model": "weights\n"}
    assert str(world.directory / unsent.DIRECTORY / replica) in end["message"]


def test_the_server_s_own_store_is_waited_for_so_long_and_no_longer(world: World) -> None:
    world.server.fault("/files/", "507", times=ALWAYS)
    replica = world.run("echo weights > $OUTPUT_PATH/model", store_patience=0.5)
    end = world.ended(replica)
    assert (end["cause"], end["exit_code"]) == ("outputs_lost", 0)
    assert end["said"]["code"] == "unsent_kept"
    assert "the server could not store these outputs" in world.text(replica)
    assert kept(world, replica) == {"rank-0/model": "weights\n"}


@pytest.mark.slow
def test_what_a_killed_one_left_is_kept_and_named_at_once(world: World) -> None:
    world.server.fault("/files/", "503", times=ALWAYS)
    replica = world.run("echo half > $OUTPUT_PATH/model", store_patience=3600.0)
    world.server.wait(lambda: world.stored(replica).held)
    assert world.stored(replica).held[-1]["code"] in ("held_sending", "scripted")
    assert not world.stored(replica).over
    world.server.order(replica, "stop", run={"store_patience": 0.5})
    end = world.ended(replica)
    assert end["said"]["params"]["files"] == "rank-0/model"
    assert kept(world, replica) == {"rank-0/model": "half\n"}


@pytest.mark.slow
def test_a_bad_end_says_what_was_not_kept_as_well(world: World) -> None:
    world.server.fault("/files/", "503", times=ALWAYS)
    replica = world.run("echo half > $OUTPUT_PATH/model; exit 3", store_patience=0.5)
    end = world.ended(replica)
    assert (end["cause"], end["exit_code"]) == ("exit", 3)
    assert end["said"]["code"] == "unsent_kept"


@pytest.mark.slow
def test_what_is_refused_while_it_runs_is_told_until_it_is_taken(idle_world: World) -> None:
    world = idle_world
    world.server.settings["ship_interval"] = 0.1
    world.server.fault("/files/", "403", times=ALWAYS)
    replica = world.run("echo one > $OUTPUT_PATH/model; sleep 600", patience=3600.0)
    world.start_agent()
    world.server.wait(lambda: world.stored(replica).held)
    assert world.stored(replica).held[-1] == {"code": "scripted", "params": {}, "runs": True}
    world.server.faults.clear()
    (world.root(replica) / "output" / "model").write_text("two, and longer\n")
    world.server.wait(lambda: world.stored(replica).held[-1]["code"] == "held_no_more")
    assert world.stored(replica).files == {"output/model": b"two, and longer\n"}


@pytest.mark.slow
def test_a_server_of_before_says_no_patience_and_all_is_waited_for(world: World) -> None:
    world.server.fault("/files/", "503", times=4)
    replica = world.run("echo weights > $OUTPUT_PATH/model")
    assert world.ended(replica)["cause"] == "exit"
    assert world.stored(replica).files == {"output/model": b"weights\n"}
    assert kept(world, replica) == {}


def test_what_is_refused_is_named_and_what_is_taken_is_not(world: World) -> None:
    world.server.fault("/files/output/model", "403", times=ALWAYS)
    command = "echo weights > $OUTPUT_PATH/model; echo good > $OUTPUT_PATH/report"
    replica = world.run(command, patience=3600.0)
    end = world.ended(replica)
    assert end["cause"] == "outputs_lost"
    assert end["message"].startswith("rank-0/model (scripted); ")
    assert end["said"]["code"] == "unsent_kept"
    assert end["said"]["params"]["files"] == "rank-0/model"
    assert world.stored(replica).files == {"output/report": b"good\n"}
    eventually(lambda: "the server has all of it but what was not sent" in world.agent_log())
    assert kept(world, replica) == {"rank-0/model": "weights\n"}


def test_what_the_server_itself_refuses_of_other_jobs_is_kept_and_fails_none(world: World) -> None:
    world.server.fault("/files/", "403", times=ALWAYS)
    replica = world.run("echo weights > $OUTPUT_PATH/model", store_patience=3600.0)
    end = world.ended(replica)
    assert (end["cause"], end["said"]["code"]) == ("exit", "unsent_kept")
    assert SAID not in world.text(replica)
    assert "the server could not store these outputs" in world.text(replica)
    assert kept(world, replica) == {"rank-0/model": "weights\n"}


def test_a_bad_end_stays_what_it_is_and_the_log_tells_the_rest(world: World) -> None:
    world.server.fault("/files/", "403", times=ALWAYS)
    replica = world.run("echo half > $OUTPUT_PATH/model; exit 3", patience=3600.0)
    end = world.ended(replica)
    assert (end["cause"], end["exit_code"]) == ("exit", 3)
    assert f"{SAID}rank-0/model (scripted); " in world.text(replica)
    assert kept(world, replica) == {"rank-0/model": "half\n"}
    assert (world.root(replica) / "output" / "model").exists(), "for the next attempt"


def test_what_was_kept_for_longer_than_promised_goes(world: World) -> None:
    old = world.directory / unsent.DIRECTORY / "of-before"
    (old / "output").mkdir(parents=True)
    young = world.directory / unsent.DIRECTORY / "of-now"
    young.mkdir()
    os.utime(old, (1, 1))
    world.server.fault("/files/", "403", times=ALWAYS)
    replica = world.run("echo weights > $OUTPUT_PATH/model", patience=3600.0)
    assert world.ended(replica)["cause"] == "outputs_lost"
    assert names(world.directory / unsent.DIRECTORY) == {"of-now", replica}


def names(top: Path) -> set[str]:
    return {path.name for path in top.iterdir()}
