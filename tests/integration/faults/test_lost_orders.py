"""An order that reached an agent, or left a server, in the moment of its death."""

from __future__ import annotations

from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import World


def test_a_forget_that_a_dying_agent_heard_is_made_up_for(idle_world: World) -> None:
    """The server counts it as delivered: a new agent that asks for live orders does not get it."""
    idle_world.start_agent()
    replica = idle_world.run("echo done")
    idle_world.ended(replica)
    idle_world.kill_agent()
    del idle_world.server.orders[replica]
    kept = idle_world.run("echo up; sleep 600")
    idle_world.start_agent()
    eventually(lambda: not idle_world.root(replica).exists())
    idle_world.says(kept, "up")
    assert idle_world.root(kept).exists()


def test_a_forget_that_a_dying_server_said_is_made_up_for(idle_world: World) -> None:
    """The agent stays; it asks the next server for what is live, and that is another job."""
    idle_world.start_agent()
    replica = idle_world.run("echo done")
    kept = idle_world.run("echo up; sleep 600")
    idle_world.ended(replica)
    idle_world.says(kept, "up")
    idle_world.server.stop()
    del idle_world.server.orders[replica]
    assert idle_world.root(replica).exists()
    eventually(lambda: "cannot poll" in idle_world.agent_log())
    idle_world.server.start()
    eventually(lambda: not idle_world.root(replica).exists())
    assert idle_world.running(kept)


def test_what_is_over_but_still_ordered_is_kept(idle_world: World) -> None:
    """A worker that is done while others of its job run: forgetting it would start it again."""
    idle_world.start_agent()
    replica = idle_world.run("echo once >> $OUTPUT_PATH/runs; cat $OUTPUT_PATH/runs")
    idle_world.ended(replica)
    for _ in range(2):
        idle_world.kill_agent()
        idle_world.start_agent()
        idle_world.ended(idle_world.run("true"))
        # An answer without orders, and so the end of the round, is requested at once.
        idle_world.server.wait(lambda: idle_world.server.polls[-1]["wait"] > 0)
    assert idle_world.root(replica).exists()
    assert idle_world.text(replica) == "once\n"
