"""A supervisor that comes up in the very moment in which the agent looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.replica.inspect import Phase


def test_a_supervisor_that_begins_during_the_look_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its lock and writes its record right after it was seen not to hold the lock."""

    def holder(_: Path) -> None:
        records.create(tmp_path / records.RUN, {"pid": None, "started_at": None})

    monkeypatch.setattr(records, "lock_holder", holder)
    assert inspect.inspect(tmp_path).phase is Phase.NOT_STARTED


def test_a_supervisor_that_had_begun_and_is_gone_is_dead(tmp_path: Path) -> None:
    records.create(tmp_path / records.RUN, {"pid": None, "started_at": None})
    (tmp_path / records.LOCK).touch()
    assert inspect.inspect(tmp_path).phase is Phase.LOST
