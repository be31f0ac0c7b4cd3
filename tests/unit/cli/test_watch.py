"""What a watcher tells of states, when the log and the server's word of them come in any order."""

from __future__ import annotations

from typing import Any, cast

import pytest

from paddlecloud.cli.render import Output
from paddlecloud.cli.watch import _States
from paddlecloud.client.sdk import Client, Job


def a_job(state: str, reason: str = "", *, attempts: int = 0, pool: str = "") -> Job:
    view: dict[str, Any] = {"job_id": "job-1", "job_status": state, "queue_reason": reason}
    return Job({**view, "attempts": attempts, "pool": pool})


@pytest.fixture
def states() -> _States:
    return _States(cast(Client, None), "job-1", Output("en", {}))


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]


def test_a_job_that_speaks_runs_whatever_the_server_says_late(
    states: _States, capsys: pytest.CaptureFixture[str]
) -> None:
    states.heard_from_job()
    states._change(a_job("schedule", "accepted"))
    states._change(a_job("schedule", "starting", attempts=1, pool="local"))
    states._change(a_job("running", attempts=1, pool="local"))
    assert told(capsys) == ["running"]


def test_a_wait_between_two_attempts_is_told_though_the_first_was_never_seen_to_run(
    states: _States, capsys: pytest.CaptureFixture[str]
) -> None:
    states._change(a_job("schedule", "starting", attempts=1, pool="local"))
    states.heard_from_job()
    states._change(a_job("queue", "again soon", attempts=1))
    states.heard_from_job()
    assert told(capsys) == ["schedule: starting", "running", "queue: again soon", "running"]
