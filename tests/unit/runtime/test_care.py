"""What the janitor does, and what does not wait for it, nor it for that."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from paddlecloud.runtime.agent import Agent
from paddlecloud.runtime.book import Stage, Tracked
from paddlecloud.runtime.config import AgentConfig
from paddlecloud.runtime.journal import Journal
from paddlecloud.runtime.materials import Materials
from paddlecloud.runtime.site import Site
from paddlecloud.runtime.spawn import Spawner
from tests.integration.runtime.replicas import eventually


class NoSpawner:
    def layers(self, _root: str, _tree: str) -> bool:
        return False


def test_a_lost_replica_is_reaped_while_a_large_cache_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned = threading.Event()
    monkeypatch.setattr(Materials, "prune", lambda *_: 0 if pruned.wait(60) else 1)
    config = AgentConfig(
        path=tmp_path / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
    )
    site = Site(config, Journal(tmp_path / "agent.log"), cast("Spawner", NoSpawner()))
    agent = Agent(site)
    janitor = agent._janitor
    root = site.book.root("r")
    root.mkdir(parents=True)
    lost = site.book.add(Tracked(id="r", fence=1, root=root, run=None, acked=0))
    lost.stage = Stage.LAUNCHED
    janitor.reap(lost)
    thread = threading.Thread(target=janitor.work)
    thread.start()
    try:
        eventually(lambda: lost.stage is Stage.OVER)
    finally:
        pruned.set()
        site.stop()
        janitor.close()
        thread.join(20)
        agent._reporter._notices.close()
    assert not thread.is_alive()
