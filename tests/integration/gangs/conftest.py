"""One home for each module: its server and its agent start once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gangs.gang_home import GangHome, a_gang_home


@pytest.fixture(scope="module")
def gang_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangHome]:
    with a_gang_home(tmp_path_factory.mktemp("gangs")) as found:
        yield found
