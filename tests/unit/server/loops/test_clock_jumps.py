"""Running times and silences come out the same whatever is done to the clock meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.server.loops._clock_jumps import FRESH, LONGEST_STEP, Silences, Stopwatches

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
RUN = ("job-1", 1)
LOST_AFTER = 90.0
STEP = st.tuples(
    st.floats(0.1, LONGEST_STEP),
    st.one_of(st.just(0.0), st.floats(-2e5, 2e5), st.sampled_from([3600.0, -3600.0])),
)
STEPS = st.lists(STEP, min_size=1, max_size=80)
"""Seconds that pass until the next look, and how far the clock is moved meanwhile."""


def looks(steps: list[tuple[float, float]]) -> Iterator[tuple[float, float, datetime]]:
    """At each: the seconds that passed, how many did in all, and what the clock says."""
    real = moved = 0.0
    for passed, jump in steps:
        real += passed
        moved += jump
        yield passed, real, NOON + timedelta(seconds=real + moved)


@given(STEPS, st.floats(0, 1e4))
def test_what_runs_at_the_first_look_is_counted_to_the_second(
    steps: list[tuple[float, float]], before: float
) -> None:
    watches = Stopwatches()
    since = {RUN: NOON - timedelta(seconds=before)}
    assert watches.advance(since, NOON, timedelta(0))[RUN] == timedelta(seconds=before)
    for passed, real, now in looks(steps):
        ran = watches.advance(since, now, timedelta(seconds=passed))[RUN]
        assert abs(ran.total_seconds() - before - real) < 0.01


@given(STEPS, st.data())
def test_what_begins_later_is_counted_but_for_a_step(
    steps: list[tuple[float, float]], data: st.DataObject
) -> None:
    """It begins at any moment between two looks, before or after the clock was moved."""
    watches = Stopwatches()
    watches.advance({}, NOON, timedelta(0))
    index = data.draw(st.integers(0, len(steps) - 1))
    before_jump = data.draw(st.booleans())
    began = since = None
    for number, (passed, real, now) in enumerate(looks(steps)):
        if number == index:
            into = data.draw(st.floats(0, passed))
            began = real - passed + into
            since = now - timedelta(seconds=passed - into)
            if before_jump:
                since -= timedelta(seconds=steps[index][1])
        running = {} if since is None else {RUN: since}
        found = watches.advance(running, now, timedelta(seconds=passed))
        if began is not None:
            truth = real - began
            counted = found[RUN].total_seconds()
            assert abs(counted - truth) < steps[index][0] + 0.01


@given(STEPS, st.booleans())
def test_who_is_heard_of_is_not_silent_whatever_the_clocks_say(
    steps: list[tuple[float, float]], elsewhere: bool
) -> None:
    """Also by a server whose own clock is wrong by a day."""
    silences, last = Silences(), 0.0
    wrong = timedelta(days=1) if elsewhere else timedelta(0)
    heard = {"n": NOON + wrong}
    silences.advance(["n"], heard, NOON, 0.0)
    for passed, real, now in looks(steps):
        if real - last > 30.0:
            heard, last = {"n": now + wrong}, real
        silent = silences.advance(["n"], heard, now, passed)
        assert silent.get("n", 0.0) < LOST_AFTER


@given(STEPS, st.floats(-1e5, 1e5))
def test_who_falls_silent_is_noticed_in_time_whatever_the_clock_does(
    steps: list[tuple[float, float]], noted: float
) -> None:
    silences, watched = Silences(), 0.0
    heard = {"n": NOON + timedelta(seconds=noted)}
    silences.advance(["n"], heard, NOON, 0.0)
    fresh = FRESH.total_seconds()
    for passed, real, now in looks(steps):
        watched = real
        silent = silences.advance(["n"], heard, now, passed).get("n", 0.0)
        assert watched - fresh - 0.01 < silent <= watched + 0.01 or silent == 0.0
        assert silent > 0.0 or watched <= fresh + 0.01


def test_who_was_never_heard_of_is_silent_at_once() -> None:
    silences = Silences()
    assert silences.advance(["n"], {}, NOON, 2.0) == {"n": 2.0}
    assert silences.advance(["n"], {}, NOON, 60.0) == {"n": 2.0 + LONGEST_STEP}, "nobody watched"
    assert silences.advance(["n"], {"n": NOON}, NOON, 2.0) == {}
    assert silences.advance([], {"n": NOON}, NOON, 2.0) == {}
