"""Over which directory the empty one of a replica's view is laid."""

from __future__ import annotations

import pytest

from paddlecloud.agent.sandbox.isolation import cover_of

ROOT = "/srv/paddlecloud/agent/replicas/one"


@pytest.mark.parametrize(
    ("closed", "hide", "want"),
    [
        pytest.param([], [], "/srv/paddlecloud/agent/replicas", id="at least that of all replicas"),
        pytest.param(
            ["/srv/paddlecloud/agent", "/srv/paddlecloud/agent/replicas"],
            [],
            "/srv/paddlecloud/agent",
            id="the topmost that others may not pass",
        ),
        pytest.param(
            ["/srv/paddlecloud/agent"],
            ["/etc/paddlecloud", "/srv/paddlecloud"],
            "/srv/paddlecloud",
            id="one further up that is to be hidden",
        ),
        pytest.param(
            ["/srv"],
            ["/srv/paddlecloud"],
            "/srv",
            id="not one that is hidden by it anyway",
        ),
        pytest.param(
            [ROOT], [], "/srv/paddlecloud/agent/replicas", id="never the replica's own directory"
        ),
    ],
)
def test_the_cover(closed: list[str], hide: list[str], want: str) -> None:
    assert cover_of(ROOT, hide, lambda path: path not in closed) == want
