"""When processes are asked to end and when they are forced to, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.agent.supervisor.shutdown import LEFTOVER_GRACE, Action, Shutdown


def a_shutdown(*, wall_time: float | None = None, grace: float = 40.0) -> Shutdown:
    return Shutdown(now=0.0, wall_time=wall_time, grace=grace)


def test_without_a_limit_nothing_happens_until_something_is_said() -> None:
    shutdown = a_shutdown()
    assert shutdown.next_action(1e9) is None
    assert shutdown.seconds_left(1e9) is None


def test_wall_time_terminates_then_kills_after_the_grace() -> None:
    shutdown = a_shutdown(wall_time=10, grace=5)
    assert shutdown.seconds_left(4.0) == 6.0
    assert shutdown.next_action(9.9) is None
    assert shutdown.next_action(10.0) is Action.TERMINATE
    assert shutdown.cause == "wall_time"
    assert shutdown.next_action(14.9) is None
    assert shutdown.seconds_left(14.0) == 1.0
    assert shutdown.next_action(15.0) is Action.KILL


def test_only_one_terminate_is_ever_sent() -> None:
    shutdown = a_shutdown()
    shutdown.stop(cause="stopped", grace=10, now=0.0)
    acts = [shutdown.next_action(moment / 10) for moment in range(99)]
    assert acts.count(Action.TERMINATE) == 1
    assert acts.count(Action.KILL) == 0


def test_a_grace_of_nothing_kills_at_once() -> None:
    shutdown = a_shutdown()
    shutdown.stop(cause="stopped", grace=0, now=3.0)
    assert shutdown.next_action(3.0) is Action.KILL


def test_a_second_stop_shortens_but_never_lengthens_the_grace() -> None:
    shutdown = a_shutdown()
    shutdown.stop(cause="stopped", grace=40, now=0.0)
    shutdown.stop(cause="wall_time", grace=2, now=1.0)
    assert shutdown.seconds_left(1.0) == 2.0
    shutdown.stop(cause="stopped", grace=100, now=1.5)
    assert shutdown.seconds_left(1.5) == 1.5
    assert shutdown.cause == "stopped"


def test_leftovers_of_a_finished_main_process_get_a_short_grace() -> None:
    shutdown = a_shutdown()
    shutdown.main_ended(7.0)
    assert shutdown.next_action(7.0) is Action.TERMINATE
    assert shutdown.seconds_left(7.0) == LEFTOVER_GRACE
    assert shutdown.next_action(7.0 + LEFTOVER_GRACE) is Action.KILL
    assert shutdown.cause == "exit"


def test_a_main_process_that_ends_during_a_stop_leaves_the_others_their_grace() -> None:
    shutdown = a_shutdown()
    shutdown.stop(cause="stopped", grace=40, now=0.0)
    assert shutdown.next_action(0.0) is Action.TERMINATE
    shutdown.main_ended(0.1)
    assert shutdown.next_action(39.9) is None
    assert shutdown.next_action(40.0) is Action.KILL
    assert shutdown.cause == "stopped"


def test_a_stop_after_the_main_process_ended_does_not_change_the_cause() -> None:
    shutdown = a_shutdown()
    shutdown.main_ended(1.0)
    shutdown.stop(cause="stopped", grace=0, now=1.5)
    assert shutdown.next_action(1.5) is Action.KILL
    assert shutdown.cause == "exit"


def test_kills_are_repeated_with_growing_pauses() -> None:
    shutdown = a_shutdown()
    shutdown.stop(cause="stopped", grace=0, now=0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        assert shutdown.next_action(now) is Action.KILL
        pause = shutdown.seconds_left(now)
        assert pause is not None
        pauses.append(round(pause, 6))
        now += pause
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.02)
    assert pauses[-1] == pytest.approx(1.0)


moments = st.floats(min_value=0, max_value=100, allow_nan=False)


@given(
    wall_time=st.none() | moments,
    grace=moments,
    stops=st.lists(st.tuples(moments, moments), max_size=4),
)
def test_it_never_kills_before_some_grace_is_over_and_always_acts_when_woken(
    wall_time: float | None, grace: float, stops: list[tuple[float, float]]
) -> None:
    shutdown = a_shutdown(wall_time=wall_time, grace=grace)
    ends = [] if wall_time is None else [wall_time + grace]
    now = 0.0
    for moment, wish in sorted(stops):
        now = moment
        if wall_time is not None and now >= wall_time:
            break
        shutdown.stop(cause="stopped", grace=wish, now=now)
        ends.append(now + wish)
    for _ in range(4):
        pause = shutdown.seconds_left(now)
        if pause is None:
            assert not ends
            return
        now += pause
        if shutdown.next_action(now) is Action.KILL:
            assert now >= min(ends) - 1e-6
            return
    pytest.fail("woken four times without an end")
