"""What is tried again at once, and what a server has tried often enough itself."""

from __future__ import annotations

import pytest

from paddlecloud.model.errors import Retry, Unreachable
from paddlecloud.net import retry


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (Unreachable("server_closed"), retry.TRIES),
        (Retry("store_crowded", limit=32), retry.TRIES),
        (Unreachable("store_unreachable", place="there", reason="timed out"), 1),
    ],
)
def test_how_often(error: Retry, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE", 0)
    made: list[int] = []

    def call() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        retry.patiently(call)
    assert len(made) == tries
