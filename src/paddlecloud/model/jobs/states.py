"""The state machine of a job: ten states, the events, and the table of transitions.

Values of `JobState` are what users see in query_job; never rename one. `Job.after` is the only
caller of `next_state`, and a house-rule test keeps every other module from setting a state.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from paddlecloud.model.errors import IllegalTransition


class JobState(StrEnum):
    SUBMIT = "submit"
    SCHEDULE = "schedule"
    QUEUE = "queue"
    RUNNING = "running"
    FAILED = "failed"
    SUCCESS = "success"
    TIMEOUT = "timeout"
    SCHEDULE_TIMEOUT = "schedule timeout"
    KILLING = "killing"
    KILLED = "killed"


class Event(StrEnum):
    """An event of a job; its history is a list of them."""

    ACCEPTED = "accepted"
    NO_CAPACITY = "no room"
    CAPACITY_FOUND = "room found"
    POOL_REFUSED = "pool refused"
    STARTED = "started"
    ATTEMPT_LOST = "attempt lost"
    SUCCEEDED = "succeeded"
    BROKE = "broke"
    WALL_TIME_OVER = "wall time over"
    WAITED_TOO_LONG = "waited too long"
    KILL_ASKED = "kill asked"
    STOPPED = "stopped"


FINAL = frozenset(
    {
        JobState.FAILED,
        JobState.SUCCESS,
        JobState.TIMEOUT,
        JobState.SCHEDULE_TIMEOUT,
        JobState.KILLED,
    }
)
WAITING = frozenset({JobState.SCHEDULE, JobState.QUEUE})

_S, _E = JobState, Event
TRANSITIONS = MappingProxyType(
    {
        (_S.SUBMIT, _E.ACCEPTED): _S.SCHEDULE,
        (_S.SUBMIT, _E.BROKE): _S.FAILED,
        (_S.SUBMIT, _E.KILL_ASKED): _S.KILLING,
        (_S.SCHEDULE, _E.NO_CAPACITY): _S.QUEUE,
        (_S.SCHEDULE, _E.POOL_REFUSED): _S.SCHEDULE,
        (_S.SCHEDULE, _E.STARTED): _S.RUNNING,
        (_S.SCHEDULE, _E.ATTEMPT_LOST): _S.SCHEDULE,
        (_S.SCHEDULE, _E.BROKE): _S.FAILED,
        (_S.SCHEDULE, _E.WAITED_TOO_LONG): _S.SCHEDULE_TIMEOUT,
        (_S.SCHEDULE, _E.KILL_ASKED): _S.KILLING,
        (_S.QUEUE, _E.CAPACITY_FOUND): _S.SCHEDULE,
        (_S.QUEUE, _E.BROKE): _S.FAILED,
        (_S.QUEUE, _E.WAITED_TOO_LONG): _S.SCHEDULE_TIMEOUT,
        (_S.QUEUE, _E.KILL_ASKED): _S.KILLING,
        (_S.RUNNING, _E.ATTEMPT_LOST): _S.SCHEDULE,
        (_S.RUNNING, _E.SUCCEEDED): _S.SUCCESS,
        (_S.RUNNING, _E.BROKE): _S.FAILED,
        (_S.RUNNING, _E.WALL_TIME_OVER): _S.TIMEOUT,
        (_S.RUNNING, _E.KILL_ASKED): _S.KILLING,
        (_S.KILLING, _E.STOPPED): _S.KILLED,
    }
)


def next_state(state: JobState, event: Event) -> JobState:
    """The state after `event`, or IllegalTransition where the table is empty."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition("illegal_transition", state=state, event=event) from None
