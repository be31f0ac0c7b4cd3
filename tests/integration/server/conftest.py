"""The stage of the session and a fresh world for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.server.silent_proxy import Valve
from tests.integration.server.smtp import SmtpServer
from tests.integration.server.world import Stage, World

MakeWorld = Callable[..., World]


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    stage = Stage().open()
    yield stage
    stage.close()


@pytest.fixture
def make_world(stage: Stage, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes the world of this test, with other pools or settings than usual."""
    made: list[World] = []

    def make(**changes: Any) -> World:
        made.append(World(stage, tmp_path / "home", **changes))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


@pytest.fixture
def valve(s3_settings: dict[str, str]) -> Iterator[Valve]:
    """A door to the bucket of the tests."""
    place = urlsplit(s3_settings["endpoint"])
    valve = Valve(place.hostname or "", place.port or 80)
    yield valve
    valve.close()


@pytest.fixture(scope="session")
def postman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmtpServer]:
    """Takes every mail but those to `nobody`; shared by all tests, who look at their own."""
    with SmtpServer(tmp_path_factory.mktemp("smtp"), "--refuse=nobody") as smtp:
        yield smtp
