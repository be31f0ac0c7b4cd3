"""The table of states read as a graph."""

from __future__ import annotations

import pytest

from paddlecloud.model.errors import IllegalTransition
from paddlecloud.model.jobs.states import FINAL, TRANSITIONS, WAITING, Event, JobState, next_state

LIVE = frozenset(JobState) - FINAL


def test_the_words_are_those_of_the_documents() -> None:
    assert [state.value for state in JobState] == [
        "submit",
        "schedule",
        "queue",
        "running",
        "failed",
        "success",
        "timeout",
        "schedule timeout",
        "killing",
        "killed",
    ]


@pytest.mark.parametrize("state", sorted(FINAL))
def test_there_is_no_way_out_of_a_final_state(state: JobState) -> None:
    assert not [event for before, event in TRANSITIONS if before is state]


@pytest.mark.parametrize("state", sorted(LIVE - {JobState.KILLING}))
def test_every_live_job_can_be_killed(state: JobState) -> None:
    assert TRANSITIONS[state, Event.KILL_ASKED] is JobState.KILLING


def test_a_job_that_is_being_killed_can_only_end_killed() -> None:
    ways = {event: after for (before, event), after in TRANSITIONS.items() if before == "killing"}
    assert ways == {Event.STOPPED: JobState.KILLED}


def test_every_state_can_be_reached_and_every_live_one_can_be_left() -> None:
    reached = {JobState.SUBMIT}
    while more := {a for (b, _), a in TRANSITIONS.items() if b in reached} - reached:
        reached |= more
    assert reached == set(JobState)
    assert {before for before, _ in TRANSITIONS} == LIVE


def test_every_event_is_used() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_what_waits_is_not_over() -> None:
    assert not WAITING & FINAL


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("event", list(Event))
def test_where_the_table_is_empty_the_event_is_refused(state: JobState, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition) as caught:
        next_state(state, event)
    assert caught.value.params == {"state": state, "event": event}
