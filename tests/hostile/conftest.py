"""What other suites built: their servers, their agents, their replicas."""

from __future__ import annotations

from tests.integration.agent.conftest import bench, spawner
from tests.integration.server.conftest import make_world, stage, world
from tests.integration.server.test_isolation import team

__all__ = ["bench", "make_world", "spawner", "stage", "team", "world"]
