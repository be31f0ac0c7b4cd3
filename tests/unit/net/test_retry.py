"""The retry policy: which errors, how often, after which pauses."""

from __future__ import annotations

import pytest

from paddlecloud.model.errors import (
    PaddleCloudError,
    Refused,
    Retry,
    StorageFull,
    TooMany,
    Unreachable,
)
from paddlecloud.net import retry
from paddlecloud.net.retry import Retries, RetryPolicy

CLOSED = Unreachable("server_closed", address="x")


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (Unreachable("server_closed"), retry.TRANSPORT.attempts),
        (Retry("store_crowded", limit=32), retry.TRANSPORT.attempts),
        (Unreachable("store_unreachable", place="there", reason="timed out"), 1),
        (Unreachable("server_cert_expired", address="x"), 1),
        (TooMany("too_many_waiting", waiting=1, limit=1), 1),
        (StorageFull("store_full", path="x"), 1),
    ],
)
def test_how_often(error: Retry, attempts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.TRANSPORT, "first_pause", 0)
    made: list[int] = []

    def call() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        retry.run(call)
    assert len(made) == attempts


def test_what_is_no_retry_is_raised_at_once() -> None:
    def call() -> None:
        raise Refused("gang_refused")

    with pytest.raises(Refused):
        retry.run(call)


def test_pauses_double_and_vary() -> None:
    retries = Retries(RetryPolicy(4, 1.0))
    pauses = [retries.next_pause(CLOSED) for _ in range(4)]
    assert pauses[3] is None
    for want, pause in zip((1.0, 2.0, 4.0), pauses[:3], strict=True):
        assert pause is not None and 0.8 * want <= pause <= 1.2 * want
    firsts = {Retries(RetryPolicy(2, 1.0)).next_pause(CLOSED) for _ in range(9)}
    assert len(firsts) > 1


def test_a_server_that_restarts_has_three_seconds() -> None:
    for _ in range(99):
        retries = Retries(retry.TRANSPORT)
        pauses = [retries.next_pause(CLOSED) or 0 for _ in range(retry.TRANSPORT.attempts)]
        assert 3.0 <= sum(pauses) <= 4.5


def test_no_attempt_begins_after_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(retry, "monotonic", lambda: now[0])
    retries = Retries(RetryPolicy(99, 1.0, budget=10.0))
    assert retries.next_pause(CLOSED) is not None
    now[0] += 9.0
    assert retries.next_pause(CLOSED) is None


@pytest.mark.parametrize(("asked", "want"), [(3.0, 3.0), (11.0, None)])
def test_retry_after_is_honoured_within_the_budget(asked: float, want: float | None) -> None:
    error = Retry("database_busy", path="x", seconds=1)
    error.retry_after = asked
    assert Retries(RetryPolicy(3, 0.1, budget=10.0)).next_pause(error) == want


def test_progress_starts_the_count_again() -> None:
    retries = Retries(RetryPolicy(2, 0.0, once=("store_failed",)))
    assert (retries.next_pause(CLOSED), retries.next_pause(CLOSED)) == (0.0, None)
    retries.reset()
    assert (retries.next_pause(CLOSED), retries.failed) == (0.0, 1)


def test_some_errors_are_worth_one_more_attempt() -> None:
    failed: PaddleCloudError = Retry("store_failed", place="x", detail="y")
    retries = Retries(RetryPolicy(9, 0.0, once=("store_failed",)))
    assert [retries.next_pause(error) for error in (CLOSED, failed, CLOSED, failed)] == [
        0.0,
        0.0,
        0.0,
        None,
    ]
