"""Who is to blame: the first failure in time, whoever is reported first; peers only follow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paddlecloud.model.diagnosis.first_failure import NEAR, exit_code, first_failure
from paddlecloud.model.diagnosis.outcome import settle, trouble
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Failure,
    Replica,
    ReplicaState,
)
from tests.unit.model.builders import NOW, a_job, a_replica, a_spec, an_attempt, ended

ABORT = 6
LOST = None


def gang(*records: ExitRecord | None) -> Attempt:
    """Trainers that ended so; None: lost."""
    return an_attempt(
        *(
            a_replica(rank=rank, state=ReplicaState.LOST)
            if record is None
            else a_replica(rank=rank, ended=record)
            for rank, record in enumerate(records)
        )
    )


def cause(why: ExitCause, after: float, asked: float | None = None) -> ExitRecord:
    at = None if asked is None else NOW + timedelta(seconds=asked)
    return ended(by_signal=15, cause=why, after=after, asked_at=at)


@pytest.mark.parametrize(
    ("records", "culprit"),
    [
        pytest.param([ended(3, after=5), ended(1, after=4)], 1, id="the first in time"),
        pytest.param(
            [ended(by_signal=ABORT, after=5.3), ended(3, after=5)], 1, id="an abort follows"
        ),
        pytest.param(
            [ended(by_signal=ABORT, after=5), ended(3, after=5.3)], 1, id="clocks differ a little"
        ),
        pytest.param([ended(250, after=5), ended(3, after=5.3)], 1, id="a launcher tells an abort"),
        pytest.param([ended(134, after=5), ended(3, after=6)], 1, id="a shell tells an abort"),
        pytest.param(
            [ended(by_signal=ABORT, after=5), ended(3, after=15)], 1, id="just near enough"
        ),
        pytest.param(
            [ended(by_signal=ABORT, after=5), ended(3, after=16)], 0, id="an abort long before"
        ),
        pytest.param(
            [ended(by_signal=ABORT, after=6), ended(by_signal=ABORT, after=5)], 1, id="only aborts"
        ),
        pytest.param([ended(by_signal=ABORT), LOST], 1, id="a lost peer may have been first"),
        pytest.param([ended(1), LOST], 0, id="a failure with a time before one without"),
        pytest.param(
            [cause(ExitCause.STOPPED, 4), ended(3, after=5)], 1, id="who was stopped is no cause"
        ),
        pytest.param(
            [ended(1, after=7), cause(ExitCause.WALL_TIME, 9, asked=6)],
            1,
            id="a peer breaks while another uses its grace",
        ),
        pytest.param(
            [ended(1, after=5), cause(ExitCause.WALL_TIME, 9, asked=6)],
            0,
            id="it broke before the wall time was over",
        ),
        pytest.param(
            [ended(by_signal=ABORT, after=6.1), cause(ExitCause.PREEMPTED, 9, asked=6)],
            1,
            id="a peer aborts when another makes room",
        ),
        pytest.param(
            [cause(ExitCause.HUNG, 9, asked=6), ended(1, after=7)], 0, id="a hang was ended"
        ),
        pytest.param(
            [ended(by_signal=9, oom=True, after=5), ended(by_signal=ABORT, after=4.9)],
            0,
            id="memory death",
        ),
    ],
)
def test_the_first_failure_is_the_cause(records: list[ExitRecord | None], culprit: int) -> None:
    found = first_failure(gang(*records))
    assert found is not None
    assert found.rank == culprit


def test_an_abort_alone_is_blamed() -> None:
    found = first_failure(gang(ended(0), ended(by_signal=ABORT)))
    assert found is not None
    assert (found.rank, exit_code(found)) == (1, 134)


def test_nobody_is_blamed_for_pservers_once_all_trainers_are_done() -> None:
    assert first_failure(gang(ended(0), ended(0))) is None


_times = st.floats(0, 40, allow_nan=False).map(lambda seconds: round(seconds, 1))
_ends = st.one_of(
    st.builds(ended, st.sampled_from([0, 1, 3, 101, 127, 134, 250]), after=_times),
    st.builds(ended, by_signal=st.sampled_from([6, 9, 11, 15]), after=_times),
    st.builds(cause, st.sampled_from(list(ExitCause)), after=_times),
)
_members = st.lists(st.none() | _ends, min_size=2, max_size=5)
# Who hung is written down before anybody is stopped for it, and stays so whoever ends first.
_unforetold = st.none() | _ends.filter(lambda record: record.cause is not ExitCause.HUNG)


def told_in_turn(replicas: list[Replica]) -> Failure | None:
    """What is kept when the replicas are reported one by one, each with its own log only; of one
    that is lost the server brings the logs of all."""
    running = [replace(replica, state=ReplicaState.RUNNING, exit=None) for replica in replicas]
    known = {replica.worker: replica for replica in running}
    job = a_job(spec=a_spec(trainers=len(replicas)))
    for replica in replicas:
        known[replica.worker] = replica
        attempt = an_attempt(*known.values())
        brought = replicas if replica.exit is None else [replica]
        tails = {one.worker: f"words of {one.worker}\n".encode() for one in brought}
        step = settle(job, attempt, tails)
        told = step[1] if step is not None else trouble(job, attempt, tails)
        job = replace(job, failure=told or job.failure)
    return job.failure


@example([ended(1, after=16.0), ended(by_signal=ABORT, after=5.0), None], Random(1))
@given(st.lists(_unforetold, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_blame_never_depends_on_the_order_of_reports(
    records: list[ExitRecord | None], chance: object
) -> None:
    replicas = list(gang(*records).replicas)
    first = told_in_turn(replicas)
    chance.shuffle(replicas)  # type: ignore[attr-defined]
    second = told_in_turn(replicas)
    culprit = first_failure(an_attempt(*replicas))
    for told in (first, second):
        if culprit is None:
            continue
        assert told is not None
        assert told.worker == culprit.worker
        assert told.last_lines == (f"words of {culprit.worker}",)
    if culprit is not None:
        assert first == second


@given(_members)
def test_an_abort_is_blamed_only_where_nothing_else_is_near(
    records: list[ExitRecord | None],
) -> None:
    attempt = gang(*records)
    culprit = first_failure(attempt)
    if culprit is None or culprit.exit is None or culprit.exit.signal != ABORT:
        return
    at = culprit.exit.finished_at
    assert at is not None
    for other in attempt.replicas:
        real = other.exit is not None and not other.exit.ok and other.exit.signal not in (6, 15)
        if real and other.exit is not None and other.exit.exit_code not in (134, 250):
            then = other.exit.finished_at
            assert then is not None
            assert abs(then - at) > NEAR or culprit.exit.cause is not ExitCause.EXIT
