"""One world a test: a fake server, and the agent that a test starts for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.whole.world import World


@pytest.fixture
def idle_world(tmp_path: Path) -> Iterator[World]:
    """No agent runs yet."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(idle_world: World) -> World:
    """An agent runs."""
    idle_world.start_agent()
    return idle_world
