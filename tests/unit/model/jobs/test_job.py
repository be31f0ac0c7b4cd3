"""Job, its replicas and their resources."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import IllegalTransition
from paddlecloud.model.jobs.job import ExitCause, Reason, ReplicaState, Resources
from paddlecloud.model.jobs.states import FINAL, TRANSITIONS, Event, JobState
from tests.unit.model.builders import NOW, a_job, a_replica, a_spec, an_attempt, ended

LATER = NOW + timedelta(minutes=1)
WHY = Reason(code="queue_no_agent", params={"pool": "local"})


@pytest.mark.parametrize(("before", "event"), sorted(TRANSITIONS))
def test_after_an_event_the_job_has_the_state_of_the_table(before: JobState, event: Event) -> None:
    job = a_job(state=before)
    after = job.after(event, now=LATER, reason=WHY)
    assert after.state is TRANSITIONS[before, event]
    assert after.reason == WHY
    assert (after.finished_at == LATER) is (after.state in FINAL)
    assert job.state is before, "the old value stays as it was"


def test_an_event_that_cannot_happen_is_refused() -> None:
    with pytest.raises(IllegalTransition):
        a_job(state=JobState.SUCCESS).after(Event.STARTED, now=LATER)


def test_the_first_start_is_the_one_that_counts() -> None:
    job = a_job(state=JobState.SCHEDULE).after(Event.STARTED, now=NOW)
    again = job.after(Event.ATTEMPT_LOST, now=LATER).after(Event.STARTED, now=LATER)
    assert again.started_at == NOW


def test_a_lost_attempt_starts_the_wait_anew() -> None:
    job = a_job(state=JobState.RUNNING).after(Event.ATTEMPT_LOST, now=LATER)
    assert (job.pool, job.waiting_since) == (None, LATER)


def test_a_kill_is_remembered_and_other_fields_can_be_given() -> None:
    job = a_job().after(Event.KILL_ASKED, now=LATER, attempt=7)
    assert (job.kill_asked, job.attempt) == (True, 7)


def test_a_reason_goes_when_nobody_gives_one() -> None:
    job = a_job(state=JobState.QUEUE, reason=WHY).after(Event.CAPACITY_FOUND, now=LATER)
    assert job.reason is None


def test_counting_replicas() -> None:
    spec = a_spec(trainers=3, pservers=2)
    assert (spec.instance_count, spec.replica_count, spec.is_gang) == (3, 5, True)
    assert not a_spec().is_gang


def test_an_attempt_is_over_when_every_replica_is() -> None:
    done, lost = a_replica(ended=ended(0)), a_replica(rank=1, state=ReplicaState.LOST)
    assert an_attempt(done, lost).over
    assert not an_attempt(done, a_replica(rank=1)).over
    assert not an_attempt(done, a_replica(rank=1, state=ReplicaState.ORDERED)).over


def test_only_an_exit_with_zero_is_good() -> None:
    assert ended(0).ok
    assert not ended(1).ok
    assert not ended(by_signal=9).ok
    assert not ended(0, cause=ExitCause.STOPPED).ok


_sizes = st.builds(
    Resources,
    cpu=st.integers(0, 10_000).map(lambda n: n / 100),
    memory=st.integers(0, 2**40),
    gpu=st.integers(0, 8),
)


@given(_sizes, _sizes)
def test_resources_add_up_and_fit(one: Resources, other: Resources) -> None:
    both = one + other
    assert one.fits_in(both)
    assert other.fits_in(both)
    left = both - one
    assert (left.memory, left.gpu) == (other.memory, other.gpu)
    assert left.cpu == pytest.approx(other.cpu)
    assert other.fits_in(left)


def test_each_kind_of_resource_can_be_the_one_that_lacks() -> None:
    room = Resources(cpu=2, memory=100, gpu=1)
    assert Resources(cpu=0.1 * 3, memory=0).fits_in(Resources(cpu=0.3))
    for ask in (Resources(cpu=2.01), Resources(memory=101), Resources(gpu=2)):
        assert not ask.fits_in(room)
