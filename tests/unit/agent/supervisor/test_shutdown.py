"""When processes are asked to end and when they are forced to, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.agent.supervisor.shutdown import LEFTOVER_GRACE, Act, Course


def a_course(*, max_seconds: float | None = None, grace: float = 40.0) -> Course:
    return Course(now=0.0, max_seconds=max_seconds, grace=grace)


def test_without_a_limit_nothing_happens_until_something_is_said() -> None:
    course = a_course()
    assert course.act(1e9) is None
    assert course.wake_after(1e9) is None


def test_wall_time_terminates_then_kills_after_the_grace() -> None:
    course = a_course(max_seconds=10, grace=5)
    assert course.wake_after(4.0) == 6.0
    assert course.act(9.9) is None
    assert course.act(10.0) is Act.TERMINATE
    assert course.cause == "wall_time"
    assert course.act(14.9) is None
    assert course.wake_after(14.0) == 1.0
    assert course.act(15.0) is Act.KILL


def test_only_one_terminate_is_ever_sent() -> None:
    course = a_course()
    course.stop(cause="stopped", grace=10, now=0.0)
    acts = [course.act(moment / 10) for moment in range(99)]
    assert acts.count(Act.TERMINATE) == 1
    assert acts.count(Act.KILL) == 0


def test_a_grace_of_nothing_kills_at_once() -> None:
    course = a_course()
    course.stop(cause="stopped", grace=0, now=3.0)
    assert course.act(3.0) is Act.KILL


def test_a_second_stop_shortens_but_never_lengthens_the_grace() -> None:
    course = a_course()
    course.stop(cause="stopped", grace=40, now=0.0)
    course.stop(cause="wall_time", grace=2, now=1.0)
    assert course.wake_after(1.0) == 2.0
    course.stop(cause="stopped", grace=100, now=1.5)
    assert course.wake_after(1.5) == 1.5
    assert course.cause == "stopped"


def test_leftovers_of_a_finished_main_process_get_a_short_grace() -> None:
    course = a_course()
    course.main_ended(7.0)
    assert course.act(7.0) is Act.TERMINATE
    assert course.wake_after(7.0) == LEFTOVER_GRACE
    assert course.act(7.0 + LEFTOVER_GRACE) is Act.KILL
    assert course.cause == "exit"


def test_a_main_process_that_ends_during_a_stop_leaves_the_others_their_grace() -> None:
    course = a_course()
    course.stop(cause="stopped", grace=40, now=0.0)
    assert course.act(0.0) is Act.TERMINATE
    course.main_ended(0.1)
    assert course.act(39.9) is None
    assert course.act(40.0) is Act.KILL
    assert course.cause == "stopped"


def test_a_stop_after_the_main_process_ended_does_not_change_the_cause() -> None:
    course = a_course()
    course.main_ended(1.0)
    course.stop(cause="stopped", grace=0, now=1.5)
    assert course.act(1.5) is Act.KILL
    assert course.cause == "exit"


def test_kills_are_repeated_with_growing_pauses() -> None:
    course = a_course()
    course.stop(cause="stopped", grace=0, now=0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        assert course.act(now) is Act.KILL
        pause = course.wake_after(now)
        assert pause is not None
        pauses.append(round(pause, 6))
        now += pause
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.02)
    assert pauses[-1] == pytest.approx(1.0)


moments = st.floats(min_value=0, max_value=100, allow_nan=False)


@given(
    max_seconds=st.none() | moments,
    grace=moments,
    stops=st.lists(st.tuples(moments, moments), max_size=4),
)
def test_it_never_kills_before_some_grace_is_over_and_always_acts_when_woken(
    max_seconds: float | None, grace: float, stops: list[tuple[float, float]]
) -> None:
    course = a_course(max_seconds=max_seconds, grace=grace)
    ends = [] if max_seconds is None else [max_seconds + grace]
    now = 0.0
    for moment, wish in sorted(stops):
        now = moment
        if max_seconds is not None and now >= max_seconds:
            break
        course.stop(cause="stopped", grace=wish, now=now)
        ends.append(now + wish)
    for _ in range(4):
        pause = course.wake_after(now)
        if pause is None:
            assert not ends
            return
        now += pause
        if course.act(now) is Act.KILL:
            assert now >= min(ends) - 1e-6
            return
    pytest.fail("woken four times without an end")
