"""Whatever the network and the server do, no log byte and no exit code is lost or doubled."""

from __future__ import annotations

import json

import pytest

from paddlecloud.agent.replica import inspect
from paddlecloud.agent.replica.inspect import Phase
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.fake_server import SK
from tests.integration.agent.whole.world import World

pytestmark = pytest.mark.slow

LINES = 400
COUNT = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); done"
COUNTED = "".join(f"line {i}\n" for i in range(LINES))
UNTIL_GO = "while ! test -e $OUTPUT_PATH/../go; do sleep 0.02; done"


def test_answers_that_get_lost_double_nothing(world: World) -> None:
    world.server.fault("/report", "lose the answer", times=3)
    world.server.fault("/poll", "lose the answer")
    replica = world.run(f"{COUNT}; exit 5")
    eventually(lambda: "the server has all of it" in world.agent_log())
    world.server.wait(lambda: not world.server.faults)
    assert world.ended(replica)["exit_code"] == 5
    assert world.text(replica) == COUNTED


def test_a_server_that_is_busy_is_asked_again(world: World) -> None:
    world.server.fault("/report", "503", times=3)
    replica = world.run("echo hi; exit 2")
    assert world.ended(replica)["exit_code"] == 2
    assert world.text(replica) == "hi\n"


def test_a_full_disk_of_the_server_delays_and_loses_nothing(world: World) -> None:
    world.server.fault("/report", "507", times=3)
    world.server.fault("/files/", "507", times=3)
    replica = world.run("echo hi; echo model > $OUTPUT_PATH/model")
    assert world.ended(replica)["exit_code"] == 0
    assert world.stored(replica).files == {"output/model": b"model\n"}
    assert "its outputs wait" in world.agent_log()


def test_a_report_that_is_refused_does_not_hold_up_the_others(world: World) -> None:
    first = world.run("echo up; sleep 600")
    world.says(first, "up")
    world.server.fault("/report", "400", times=2)
    others = [world.run(f"echo {n}; exit {n}") for n in range(4)]
    assert [world.ended(other)["exit_code"] for other in others] == [0, 1, 2, 3]


def test_the_server_comes_back_on_another_port(world: World) -> None:
    replica = world.run(f"echo before; {UNTIL_GO}; echo after; exit 4")
    world.says(replica, "before")
    pid = world.running(replica)
    world.server.stop()
    (world.root(replica) / "go").touch()
    eventually(lambda: inspect.inspect(world.root(replica)).phase is Phase.EXITED)
    polls = len(world.server.polls)
    world.server.start()
    world.server.wait(lambda: len(world.server.polls) > polls)
    assert world.ended(replica)["exit_code"] == 4
    assert world.text(replica) == "before\nafter\n"
    assert {note["pid"] for note in world.stored(replica).started} == {pid}
    # Either side may have lost count, so the new server is asked from the beginning, once.
    world.server.wait(lambda: 0 in [poll["cursor"] for poll in world.server.polls[polls:]])
    world.server.wait(lambda: world.server.polls[-1]["cursor"] > 0)


def test_orders_that_were_given_while_it_was_away(world: World) -> None:
    replica = world.run("echo up; sleep 600")
    world.says(replica, "up")
    world.server.stop()
    world.server.order(replica, "stop", grace=0.1)
    other = world.run("exit 6")
    world.server.start()
    assert world.ended(replica)["cause"] == "stopped"
    assert world.ended(other)["exit_code"] == 6


def test_a_server_that_lost_the_end_of_a_log_gets_it_again(world: World) -> None:
    replica = world.run(f"{COUNT}; {UNTIL_GO}; echo end")
    world.says(replica, f"line {LINES - 1}\n")
    with world.server.changed:
        del world.stored(replica).log[100:]
    (world.root(replica) / "go").touch()
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica) == COUNTED + "end\n"


def test_a_log_larger_than_one_report(world: World) -> None:
    size = 9 * 1024 * 1024
    replica = world.run(f"head -c {size} /dev/zero | tr '\\0' x; exit 1")
    ended = world.ended(replica)
    assert (ended["exit_code"], ended["log_size"]) == (1, size)
    assert world.stored(replica).log == b"x" * size


def test_a_job_that_opens_its_stream_anew_loses_nothing(world: World) -> None:
    replica = world.run(f"echo a long first line; {UNTIL_GO}; echo short > /dev/stderr; echo last")
    world.says(replica, "a long first line")
    (world.root(replica) / "go").touch()
    ended = world.ended(replica)
    assert world.text(replica) == "a long first line\nshort\nlast\n"
    assert ended["log_size"] == len(world.stored(replica).log)


def test_keys_that_were_renewed_are_read_again(idle_world: World) -> None:
    idle_world.configure(sk="an old one")
    idle_world.start_agent()
    idle_world.server.wait(lambda: idle_world.server.refused)
    idle_world.configure(sk=SK)
    assert idle_world.ended(idle_world.run("exit 3"))["exit_code"] == 3


def test_a_stranger_on_the_old_port_is_not_believed(world: World) -> None:
    replica = world.run(f"echo up; {UNTIL_GO}; echo model > $OUTPUT_PATH/model")
    world.says(replica, "up")
    facts = json.loads(world.server.endpoint_file.read_text())
    world.server.endpoint_file.write_text(json.dumps(facts | {"boot": "somebody else"}))
    world.server.cut_off()
    (world.root(replica) / "go").touch()
    eventually(lambda: "its start mark is another one" in world.agent_log())
    world.server.endpoint_file.write_text(json.dumps(facts))
    world.ended(replica)
    assert world.stored(replica).files == {"output/model": b"model\n"}
