"""A monitor that comes up in the very moment in which the agent looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.runtime import control, record
from paddlecloud.runtime.control import Phase


def test_a_monitor_that_begins_during_the_look_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its lock and writes its record right after it was seen not to hold the lock."""

    def holder(_: Path) -> None:
        record.create(tmp_path / record.RUN, {"pid": None, "started_at": None})

    monkeypatch.setattr(record, "lock_holder", holder)
    assert control.inspect(tmp_path).phase is Phase.NOT_STARTED


def test_a_monitor_that_had_begun_and_is_gone_is_dead(tmp_path: Path) -> None:
    record.create(tmp_path / record.RUN, {"pid": None, "started_at": None})
    (tmp_path / record.LOCK).touch()
    assert control.inspect(tmp_path).phase is Phase.LOST
