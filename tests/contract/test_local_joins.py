"""The local backend where several servers share a database: own machine, and those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.backends.base import JoinedByAgents, KeepsAgent, Presence
from paddlecloud.backends.local import Local
from paddlecloud.model.job import Resources
from paddlecloud.testing import a_job, a_replica, an_attempt


@pytest.fixture
def elsewhere(tmp_path: Path) -> Local:
    """The backend of a server whose own machine runs no jobs."""
    config = str(tmp_path / "agent.json")
    return Local({"node": "", "joins": "1", "agent_config": config, "each_cpu": "3"})


def test_a_server_without_a_machine_of_its_own_starts_nothing(
    elsewhere: Local, tmp_path: Path
) -> None:
    job = a_job()
    replicas = (a_replica(job.id, node="b"), a_replica(job.id, rank=1, node="a"))
    handle = elsewhere.start(an_attempt(job, replicas=replicas))
    assert handle == {"node": "a,b"}
    assert elsewhere.look(handle).presence is Presence.UP
    elsewhere.ensure_agent()
    assert elsewhere.capacity() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_joins_gives_what_the_pool_takes_of_each(elsewhere: Local) -> None:
    node = elsewhere.joined("a", Resources(cpu=64, memory=2**30, gpu=2), "host-a")
    assert (node.id, node.host) == ("a", "host-a")
    assert node.total == Resources(cpu=3, memory=2**30, gpu=2)


def test_its_abilities_are_known(elsewhere: Local) -> None:
    assert isinstance(elsewhere, JoinedByAgents)
    assert isinstance(elsewhere, KeepsAgent)


def test_alone_on_its_database_another_node_is_gone(tmp_path: Path) -> None:
    alone = Local({"node": "local", "agent_config": str(tmp_path / "agent.json")})
    assert alone.look({"node": "other"}).presence is Presence.GONE
    assert alone.look({"node": "local"}).presence is Presence.COMING
