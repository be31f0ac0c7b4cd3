"""A scripted server and a client of it, for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddlecloud import Client
from tests.unit.client.fake_server import AK, SK, FakeServer, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(host=server.url, ak=AK, sk=SK) as made:
        yield made
