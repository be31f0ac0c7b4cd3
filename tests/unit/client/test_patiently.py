"""What is tried again at once, and what a server has tried often enough itself."""

from __future__ import annotations

import pytest

from paddlecloud.client import retries
from paddlecloud.model.errors import Retry, Unreachable


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (Unreachable("server_closed"), retries.TRIES),
        (Retry("store_crowded", limit=32), retries.TRIES),
        (Unreachable("store_unreachable", place="there", reason="timed out"), 1),
    ],
)
def test_how_often(error: Retry, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0)
    made: list[int] = []

    def call() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        retries.patiently(call)
    assert len(made) == tries
