"""What is known of a replica's store: from which order, and that a new agent knows it too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddlecloud.agent.registry import Tracked, read_order, write_order
from paddlecloud.agent.replica.lifecycle import Lifecycle
from tests.unit.agent.runs import said


def known(root: Path, *orders: dict[str, Any] | None) -> Tracked:
    nobody = cast("Any", None)
    lifecycle = Lifecycle(cast("Any", SimpleNamespace(grace=1.0)), nobody, nobody, nobody)
    tracked = Tracked(id=root.name, fence=1, root=root, run=None, acked=0)
    for run in orders:
        lifecycle._update(tracked, {"fence": 1, "run": said(**run) if run else run})
    return tracked


@pytest.mark.parametrize(
    ("run", "own_bucket", "patience"),
    [
        ({"patience": 5.0}, True, 5.0),
        ({"patience": 5.0, "store_patience": None}, True, 5.0),
        ({"patience": None, "store_patience": 7.0}, False, 7.0),
        ({"command": "true"}, False, None),
    ],
)
def test_a_bucket_and_the_server_s_store_are_told_apart(
    tmp_path: Path, run: dict[str, Any], *, own_bucket: bool, patience: float | None
) -> None:
    tracked = known(tmp_path, run)
    assert (tracked.own_bucket, tracked.store_timeout) == (own_bucket, patience)


@pytest.mark.parametrize("run", [{"patience": 5.0}, {"store_patience": 5.0}])
def test_an_order_that_says_nothing_of_it_changes_nothing(
    tmp_path: Path, run: dict[str, Any]
) -> None:
    tracked = known(tmp_path, run, None, {})
    assert (tracked.own_bucket, tracked.store_timeout) == ("patience" in run, 5.0)


@pytest.mark.parametrize("run", [{"patience": 5.0, "direct": True}, {"store_patience": 5.0}, {}])
def test_a_later_agent_knows_the_store_before_the_server_says_anything(
    tmp_path: Path, run: dict[str, Any]
) -> None:
    tracked = known(tmp_path, run)
    write_order(tracked, cast("Any", {"replica_id": tracked.id}))
    found = read_order(tmp_path)
    assert found is not None
    assert found.own_bucket == tracked.own_bucket == ("patience" in run)
    assert found.store_timeout == tracked.store_timeout == (5.0 if run else None)
    assert found.direct == tracked.direct == ("direct" in run)
