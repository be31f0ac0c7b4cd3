"""What is tried again, and after how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.messages import render
from paddlecloud.model.diagnosis.outcome import settle
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Failure, Job, Reason, ReplicaState
from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE, MOST_PORTS_TAKEN, pause_before_retry
from paddlecloud.model.jobs.states import Event, JobState
from tests.unit.model.builders import NOW, a_job, a_replica, a_spec, an_attempt, ended

SECOND = timedelta(seconds=1)
WALL_TIME = ended(by_signal=15, cause=ExitCause.WALL_TIME)
PORT_TAKEN = ended(cause=ExitCause.PORT_TAKEN, ran=False, message="62001 (squatter, pid 7)")


def outcome(record: ExitRecord | None, tail: bytes = b"", **spec: object) -> Event:
    """What follows for a job of two retries whose only replica ended so (None: lost)."""
    replica = a_replica(ended=record) if record else a_replica(state=ReplicaState.LOST)
    job = a_job(spec=a_spec(**({"max_retries": 2} | spec)))  # type: ignore[arg-type]
    step = settle(job, an_attempt(replica), {"trainer-0": tail})
    assert step is not None
    return step[0]


AGAIN, NOT = Event.ATTEMPT_LOST, Event.BROKE


@pytest.mark.parametrize(
    ("record", "by_default", "by_any"),
    [
        pytest.param(None, AGAIN, AGAIN, id="lost"),
        pytest.param(ended(101), AGAIN, AGAIN, id="Paddle says: start me again"),
        pytest.param(ended(102), AGAIN, AGAIN, id="so it does"),
        pytest.param(ended(1), NOT, AGAIN, id="a plain failure"),
        pytest.param(ended(by_signal=9), NOT, AGAIN, id="a kill from outside"),
        pytest.param(ended(by_signal=11), NOT, AGAIN, id="a crash"),
        pytest.param(ended(126), NOT, NOT, id="not executable"),
        pytest.param(ended(127), NOT, NOT, id="not found"),
        pytest.param(ended(by_signal=9, oom=True), NOT, NOT, id="memory death"),
        pytest.param(ended(1, cause=ExitCause.HUNG), NOT, AGAIN, id="a hang"),
        pytest.param(ended(cause=ExitCause.START_FAILED, ran=False), NOT, NOT, id="no start"),
        pytest.param(WALL_TIME, Event.WALL_TIME_OVER, Event.WALL_TIME_OVER, id="wall time"),
    ],
)
def test_only_what_can_pass_is_tried_again(
    record: ExitRecord | None, by_default: Event, by_any: Event
) -> None:
    assert outcome(record) is by_default
    assert outcome(record, retry_any_exit=True) is by_any
    without = outcome(record, max_retries=0, retry_any_exit=True)
    assert without is (Event.WALL_TIME_OVER if record == WALL_TIME else NOT)


@pytest.mark.parametrize(
    ("record", "spec", "why"),
    [
        (ended(5), {}, "exit code 5 is not in --retry_exit_codes (101,102)"),
        (ended(by_signal=11), {}, "exit code 139 is not in --retry_exit_codes (101,102)"),
        (ended(1, cause=ExitCause.HUNG), {}, "only with --retry_exit_codes=any"),
        (ended(by_signal=9, oom=True), {"retry_any_exit": True}, "out of memory again"),
        (ended(127), {"retry_any_exit": True}, "it would fail again in the same way"),
        (ended(101), {"max_retries": 1, "retried": 1}, "--max_retries=1) are used"),
        (ended(5), {"max_retries": 0}, ""),
    ],
)
def test_a_failure_that_is_not_retried_says_why(
    record: ExitRecord, spec: dict[str, int], why: str
) -> None:
    retried = spec.pop("retried", 0)
    job = a_job(spec=a_spec(**({"max_retries": 3} | spec)), retried=retried)  # type: ignore[arg-type]
    step = settle(job, an_attempt(a_replica(ended=record)), {})
    assert step is not None
    event, failure = step
    assert event is NOT
    assert failure is not None
    reason = failure.not_retried
    if not why:
        assert reason is None
        return
    assert reason is not None
    assert why in render(reason.code, reason.params, "en")
    assert render(reason.code, reason.params, "zh") != render(reason.code, reason.params, "en")


def test_a_failure_that_is_retried_does_not_say_that_it_is_not() -> None:
    job = a_job(spec=a_spec(max_retries=1))
    step = settle(job, an_attempt(a_replica(ended=ended(101))), {})
    assert step is not None
    assert step[0] is AGAIN
    assert step[1] is not None
    assert step[1].not_retried is None


def test_listed_codes_are_as_a_shell_tells_them() -> None:
    assert outcome(ended(7), retry_exit_codes=(7,)) is AGAIN
    assert outcome(ended(101), retry_exit_codes=(7,)) is NOT
    assert outcome(ended(by_signal=11), retry_exit_codes=(139,)) is AGAIN
    assert outcome(ended(101), retry_exit_codes=()) is NOT


def test_a_port_in_use_may_be_free_the_next_time() -> None:
    tail = b"OSError: [Errno 98] Address already in use\n"
    assert outcome(ended(1), tail) is AGAIN
    assert outcome(ended(1), tail, max_retries=0) is NOT


def test_a_taken_port_is_no_retry_and_five_in_a_row_are_the_end() -> None:
    job = a_job(state=JobState.SCHEDULE, spec=a_spec(trainers=2))
    for number in range(1, MOST_PORTS_TAKEN + 1):
        job = placed(job, number)
        event, failure = the_step(job, number)
        if number < MOST_PORTS_TAKEN:
            assert event is Event.ATTEMPT_LOST
            job = job.after(event, now=NOW, reason=failure.reason, failure=failure)
            assert (job.retried, job.state) == (0, JobState.SCHEDULE)
            assert failure.reason.params["times"] == number
    assert (event, failure.reason.code) == (Event.BROKE, "fail_ports_taken")
    assert "squatter" in str(failure.reason.params["message"])


def placed(job: Job, number: int) -> Job:
    return replace(job, pool="local", attempt=number)


def the_step(job: Job, number: int) -> tuple[Event, Failure]:
    """The same twice: what was told before is not counted once more."""
    stopped = ended(cause=ExitCause.STOPPED, by_signal=15)
    attempt = an_attempt(
        a_replica(ended=PORT_TAKEN), a_replica(rank=1, ended=stopped), number=number
    )
    first = settle(job, attempt, {"trainer-0": b""})
    assert first is not None
    assert first[1] is not None
    told = replace(job, failure=first[1])
    assert settle(told, attempt, {"trainer-0": b""}) == first
    return first[0], first[1]


def failed(code: str) -> Failure:
    return Failure(reason=Reason(code=code))


@pytest.mark.parametrize(
    ("code", "pauses"),
    [
        ("fail_exit", [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        ("fail_lost", [0, 1, 2, 4]),
        ("fail_unwatched", [0, 1, 2, 4]),
        ("fail_unwatched_left", [0, 1, 2, 4]),
        ("preempted", [0, 0, 0]),
        ("fail_port_taken", [0, 0, 0]),
    ],
)
def test_each_pause_is_twice_as_long_as_the_last(code: str, pauses: list[int]) -> None:
    got = [
        pause_before_retry(a_job(retried=retried), failed(code), SECOND)
        for retried in range(len(pauses))
    ]
    assert got == [timedelta(seconds=pause) for pause in pauses]


@given(st.integers(0, 100), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_no_pause_is_longer_than_the_longest(retried: int, first: timedelta) -> None:
    pause = pause_before_retry(a_job(retried=retried), failed("fail_exit"), first)
    assert timedelta(0) <= pause <= LONGEST_PAUSE
