"""The local backend where several servers share a database: own machine, and those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.agent.sandbox import cgroups
from paddlecloud.backends import local
from paddlecloud.backends.base import AgentState, JoinedByAgents, KeepsAgent, ServerContext
from paddlecloud.backends.local import Local, LocalSettings
from paddlecloud.model.jobs.job import Resources
from paddlecloud.testing import a_job, a_replica, an_attempt


@pytest.fixture
def elsewhere(tmp_path: Path) -> Local:
    """The backend of a server whose own machine runs no jobs."""
    server = ServerContext(shared=True, agent_config=tmp_path / "agent.json")
    return Local(LocalSettings(cpu=3), server)


def test_a_server_without_a_machine_of_its_own_starts_nothing(
    elsewhere: Local, tmp_path: Path
) -> None:
    job = a_job()
    replicas = (a_replica(job.id, node="b"), a_replica(job.id, rank=1, node="a"))
    attempt = an_attempt(job, replicas=replicas)
    elsewhere.start(attempt, None)
    handle = elsewhere.handle(attempt)
    assert handle == {"name": f"{job.id}-1", "node": "a,b"}
    assert elsewhere.status(handle).state is AgentState.UP
    elsewhere.ensure_agent()
    assert elsewhere.capacity("") == ()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_joins_gives_what_the_pool_takes_of_each(elsewhere: Local) -> None:
    node = elsewhere.joined("a", Resources(cpu=64, memory=2**30, gpu=2), "host-a")
    assert (node.id, node.host) == ("a", "host-a")
    assert node.total == Resources(cpu=3, memory=2**30, gpu=2)


def test_its_abilities_are_known(elsewhere: Local) -> None:
    assert isinstance(elsewhere, JoinedByAgents)
    assert isinstance(elsewhere, KeepsAgent)


def test_alone_on_its_database_another_node_is_gone(tmp_path: Path) -> None:
    alone = Local(
        LocalSettings(), ServerContext(node="local", agent_config=tmp_path / "agent.json")
    )
    assert alone.status({"node": "other"}).state is AgentState.GONE
    assert alone.status({"node": "local"}).state is AgentState.STARTING


def its_own(backend: Local) -> Resources:
    (node,) = backend.capacity("")
    return node.total


def test_what_the_control_groups_leave_is_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first question on, before any agent has spoken, and again when that changes."""
    server = ServerContext(node="local", agent_config=tmp_path / "agent.json", gpu=0)
    whole = Resources(cpu=float(local._cpus()), memory=local._memory(), gpu=0)
    left: list[tuple[float | None, int | None]] = [(None, None)]
    monkeypatch.setattr(local, "ceiling", lambda: left[0])
    backend = Local(LocalSettings(), server)
    assert its_own(backend) == whole
    left[0] = (1.0, 2**20)
    assert its_own(backend) == whole, "nobody looks each time"
    monkeypatch.setattr(backend, "_read_at", 0.0)
    assert its_own(backend) == Resources(cpu=1.0, memory=2**20, gpu=0)
    assert its_own(Local(LocalSettings(cpu=64), server)) == Resources(cpu=64.0, memory=2**20, gpu=0)
    left[0] = (1e9, 2**62)
    assert its_own(Local(LocalSettings(), server)) == whole
    left[0] = (0.1, None)
    assert its_own(Local(LocalSettings(), server)).cpu == 1.0, (
        "it runs a job of the usual size, if slowly"
    )


def test_the_server_and_its_agent_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "tree" / "pod").mkdir(parents=True)
    (tmp_path / "tree" / "pod" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "tree" / "memory.max").write_text("4194304\n")
    mount = f"30 23 0:26 / {tmp_path / 'tree'} rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "mountinfo").write_text(mount)
    (tmp_path / "cgroup").write_text("0::/pod\n")
    assert local.ceiling(tmp_path) == cgroups.ceiling(proc=tmp_path) == (1.5, 2**22)
    assert local.ceiling(tmp_path / "nowhere") == (None, None)
