"""A spawner per module, and the proof after each test that nothing of its replicas is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.supervisor.zygote import Spawner
from tests.integration.agent.replicas import Bench


@pytest.fixture(scope="module")
def spawner() -> Iterator[Spawner]:
    started = Spawner.start()
    yield started
    started.close()


@pytest.fixture
def bench(spawner: Spawner, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spawner, tmp_path)
    yield made
    made.check_nothing_is_left()
