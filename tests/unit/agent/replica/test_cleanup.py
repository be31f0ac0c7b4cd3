"""What the cleanup does, and what does not wait for it, nor it for that."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from paddlecloud.agent.agent import Agent
from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.inputs.cache import InputCache
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica.cleanup import Cleanup
from paddlecloud.agent.supervisor.zygote import Spawner
from tests.integration.agent.replicas import eventually


class NoSpawner:
    def can_overlay(self, _root: str, _tree: str) -> bool:
        return False

    def kill_orphans(self) -> tuple[str, list[int]]:
        return "", []


HOLDS_THE_LOCK = """
import sys
from pathlib import Path
from paddlecloud.agent.replica import records
lock = records.take_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def at_work(tmp_path: Path) -> Iterator[tuple[Cleanup, Tracked]]:
    """The cleanup of an agent, at work while inside, and a replica without records."""
    config = AgentConfig(
        path=tmp_path / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
    )
    context = Context(config, AgentLog(tmp_path / "agent.log"), cast("Spawner", NoSpawner()))
    agent = Agent(context)
    cleanup = agent._cleanup
    root = context.registry.root("r")
    root.mkdir(parents=True)
    lost = context.registry.add(Tracked(id="r", fence=1, root=root, run=None, acked=0))
    lost.stage = Stage.LAUNCHED
    thread = threading.Thread(target=cleanup.work)
    thread.start()
    try:
        yield cleanup, lost
    finally:
        context.stop()
        cleanup.close()
        thread.join(20)
        agent._reporter._notices.close()
    assert not thread.is_alive()


def test_a_lost_replica_is_reaped_while_a_large_cache_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned = threading.Event()
    monkeypatch.setattr(InputCache, "prune", lambda *_: 0 if pruned.wait(60) else 1)
    with at_work(tmp_path) as (cleanup, lost):
        cleanup.reap(lost)
        try:
            eventually(lambda: lost.stage is Stage.OVER)
        finally:
            pruned.set()
    assert lost.all_ended is False, "nothing is known of it"


def test_processes_that_do_not_end_are_reported_and_waited_for(tmp_path: Path) -> None:
    with at_work(tmp_path) as (cleanup, lost):
        words = [sys.executable, "-c", HOLDS_THE_LOCK, lost.path("lock")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            cleanup.reap(lost)
            held = eventually(lambda: lost.held)
            assert held == {"code": "replica_not_ending", "params": {"pids": str(holder.pid)}}
            assert lost.alive
            holder.stdin.close()
            eventually(lambda: lost.stage is Stage.OVER)
        assert lost.held is None
