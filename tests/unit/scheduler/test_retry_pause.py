"""A job that pauses before its next attempt: left out, told when, and looked at in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from paddlecloud.model.jobs.job import Reason
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.view import Hold, WaitingJob
from tests.unit.scheduler.builders import NOW, a_view, a_waiting, placed, plan

TOLD = Reason(code="queue_retry", params={"retry": 1, "most": 3, "at": "12:00:01"})


def pausing(number: int, seconds: float, *, cpu: float = 1, **changes: object) -> WaitingJob:
    end = NOW + timedelta(seconds=seconds)
    job = a_waiting(number, cpu=cpu, not_before=end, pause_reason=TOLD)
    return replace(job, **changes)  # type: ignore[arg-type]


def test_a_job_that_pauses_gets_no_place_and_is_told_when() -> None:
    decisions = plan(a_view(pausing(1, 2)))
    assert decisions == [Hold(job_id="job-1", reason=TOLD)]


def test_it_is_told_once() -> None:
    job = pausing(1, 2, state=JobState.QUEUE, held_reason=TOLD)
    assert plan(a_view(job)) == []
    planner = Planner.of(a_view(pausing(1, 2)))
    assert len(planner.decide(NOW)) == 1
    assert planner.decide(NOW) == []


def test_its_pause_is_over_at_that_moment() -> None:
    assert placed(plan(a_view(pausing(1, 0)))) == ["job-1"]


def test_nobody_waits_for_one_who_pauses() -> None:
    paused = pausing(1, 2, cpu=4, priority=100)
    assert placed(plan(a_view(paused, a_waiting(2, cpu=4)))) == ["job-2"]


def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    assert placed(plan(a_view(pausing(1, 3600)))) == ["job-1"]


def test_the_first_pause_that_ends_is_when_to_look_again() -> None:
    planner = Planner.of(a_view(a_waiting(1)))
    assert planner.wake_at() is None
    planner.arrived(pausing(2, 5))
    planner.arrived(pausing(3, 3))
    planner.decide(NOW)
    assert planner.wake_at() == NOW + timedelta(seconds=3)
    planner.decide(NOW + timedelta(seconds=3))
    assert planner.wake_at() == NOW + timedelta(seconds=5)
    planner.left("job-2")
    assert planner.wake_at() is None
