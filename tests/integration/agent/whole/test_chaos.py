"""kill -9 of the agent at seeded random moments, with a server that loses answers and restarts."""

from __future__ import annotations

import random

import pytest

from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import World, pids_of

LINES = 50
COMMAND = (
    f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.00$((i % 10)); done; "
    "echo $1 > $OUTPUT_PATH/model; exit $1"
)
WANT = "".join(f"line {i}\n" for i in range(LINES))


def test_nothing_is_lost_or_doubled(idle_world: World) -> None:
    _survive(idle_world, random.Random(1), jobs=10, kills=6)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 106))
def test_nothing_is_lost_or_doubled_for_long(idle_world: World, seed: int) -> None:
    _survive(idle_world, random.Random(seed), jobs=60, kills=40)


def _survive(world: World, dice: random.Random, *, jobs: int, kills: int) -> None:
    world.start_agent()
    codes: dict[str, int] = {}
    for step in range(max(jobs, kills)):
        if step < jobs:
            code = dice.randrange(1, 100)
            codes[world.run(f"set -- {code}; {COMMAND}")] = code
        if dice.random() < 0.3:
            world.server.fault(dice.choice(["/report", "/poll", "/files/"]), "lose the answer")
        if dice.random() < 0.1:
            world.server.stop()
            world.server.start()
        _let_pass(world, dice.uniform(0.0, 0.25))
        if step < kills:
            world.kill_agent()
            world.start_agent()
    for replica, code in codes.items():
        ended = world.ended(replica)
        assert (ended["cause"], ended["exit_code"]) == ("exit", code)
        assert world.text(replica) == WANT
        assert world.stored(replica).files == {"output/model": f"{code}\n".encode()}
        assert len({note["pid"] for note in world.stored(replica).started}) == 1
        assert pids_of(replica) == []
    for replica in codes:
        world.server.order(replica, "forget")
    eventually(lambda: list((world.directory / "replicas").iterdir()) == [])


def _let_pass(world: World, seconds: float) -> None:
    """A random moment: nothing is waited for, so nothing is expected of it."""
    with world.server.changed:
        world.server.changed.wait(seconds)
