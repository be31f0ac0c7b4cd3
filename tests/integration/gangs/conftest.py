"""One site for each module: its server and its agent start once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gangs.site import Site, a_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("gangs")) as found:
        yield found
