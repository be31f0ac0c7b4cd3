"""What a watcher tells of states, when the log and the server's word of them come in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from paddlecloud.cli.job_status import LAST_STATE, _States, follow
from paddlecloud.cli.output import Output
from paddlecloud.client.sdk import Client, Job
from paddlecloud.client.transport import DONE
from paddlecloud.model.errors import Internal
from tests.unit.cli.scripted import ID, JOB, VIEW, submits
from tests.unit.client.fake_server import AK, SK, Answer, FakeServer, error, ok


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
    states.job_wrote()
    states._change(a_job("schedule", "accepted"))
    states._change(a_job("schedule", "starting", attempts=1, pool="local"))
    states._change(a_job("running", attempts=1, pool="local"))
    assert told(capsys) == ["running"]


def test_a_wait_between_two_attempts_is_told_though_the_first_was_never_seen_to_run(
    states: _States, capsys: pytest.CaptureFixture[str]
) -> None:
    states._change(a_job("schedule", "starting", attempts=1, pool="local"))
    states.job_wrote()
    states._change(a_job("queue", "again soon", attempts=1))
    states.job_wrote()
    assert told(capsys) == ["schedule: starting", "running", "queue: again soon", "running"]


def test_a_job_with_a_place_that_cannot_go_on_says_why(
    states: _States, capsys: pytest.CaptureFixture[str]
) -> None:
    states._change(a_job("running", attempts=1, pool="local"))
    states._change(a_job("running", "no space is left", attempts=1, pool="local"))
    states._change(a_job("running", attempts=1, pool="local"))
    assert told(capsys) == ["running", "running: no space is left", "running"]


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(host=server.url, ak=AK, sk=SK) as made:
        yield made


BROKEN = {"message": "it broke", "advice": "mend it", "last_lines": ["one"]}


@pytest.mark.parametrize(
    ("worker", "in_one_place", "again"),
    [("trainer-0", True, False), ("trainer-0", False, True), ("trainer-1", True, False)],
)
def test_last_lines_that_were_just_read_are_not_told_again(
    server: FakeServer,
    client: Client,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    worker: str,
    in_one_place: bool,
    again: bool,
) -> None:
    failure = {**BROKEN, "worker": worker}
    submits(server, {**VIEW, "job_status": "failed", "version": 9, "failure": failure})
    monkeypatch.setattr(Output, "in_one_place", in_one_place)
    assert follow(client, Job(VIEW), Output("en", {})) == 1
    out, err = capsys.readouterr()
    assert out == "one\n"
    assert "it broke\nmend it\n" in err
    assert (f"last lines of {worker}:\n  one\n" in err) is again


SUCCESS = {**VIEW, "job_status": "success", "version": 9}


@pytest.mark.parametrize(
    ("log", "in_one_place", "begins"),
    [(b"one", True, "\n"), (b"one", False, ""), (b"one\n", True, ""), (b"", True, "")],
)
def test_a_log_without_a_last_line_end_is_kept_apart_from_what_is_told(
    server: FakeServer,
    client: Client,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log: bytes,
    in_one_place: bool,
    begins: str,
) -> None:
    submits(server, SUCCESS)
    monkeypatch.setattr(Client, "logs", lambda *_, **__: iter([log] if log else []))
    monkeypatch.setattr(Output, "in_one_place", in_one_place)
    assert follow(client, Job(SUCCESS), Output("en", {})) == 0
    out, err = capsys.readouterr()
    told = err[err.rindex("running\n") + 8 :] if "running\n" in err else err
    assert out == log.decode()
    assert told.startswith(f"{begins}{ID}: success\n")


def test_a_job_that_succeeds_while_the_database_restarts_is_a_success(
    server: FakeServer, client: Client
) -> None:
    """Either connection meets some of the failures, whichever comes first."""
    submits(server, VIEW)
    job = Job(client.transport.post("/jobs", {}, schema=DONE)["job"])
    later = [error(503, "Retry", "database_failed", "no database"), Answer(b"<html>", 502)]
    server.routes[f"GET {JOB}"] = [*later, ok(VIEW), *later, *later, ok(SUCCESS)]
    assert follow(client, job, Output("en", {})) == 0


def test_an_error_that_is_over_when_the_log_ends_is_forgotten(
    server: FakeServer, client: Client
) -> None:
    server.routes[f"GET {JOB}"] = [error(500, "Internal", "internal", "!"), ok(SUCCESS)]
    states = _States(client, ID, Output("en", {}))
    states.start()
    assert states.last(LAST_STATE).state == "success"


def test_an_error_that_is_not_over_is_told(server: FakeServer, client: Client) -> None:
    server.routes[f"GET {JOB}"] = [error(500, "Internal", "internal", "!")]
    states = _States(client, ID, Output("en", {}))
    states.start()
    with pytest.raises(Internal):
        states.last(LAST_STATE)
