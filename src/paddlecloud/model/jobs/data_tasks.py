"""Training data handed out in pieces: the values, and the few rules about one piece.

A set of tasks belongs to a job and is worked through pass by pass. A task is leased to a holder (a
reader in one replica) with a fence that grows with every lease, so that what a holder says about a
lease that is no longer its own is told apart. `db/tables/data_tasks.py` keeps all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_TASKS = 1_000_000
MAX_CONTENT = 4096
"""Letters of what a task is about."""


class TaskState(StrEnum):
    """Of the current pass."""

    OPEN = "todo"
    LEASED = "leased"
    DONE = "done"
    GIVEN_UP = "given_up"


class Verdict(StrEnum):
    """What became of the word of a holder about its lease."""

    COUNTED = "counted"
    """It was done, and this word made it so."""
    REPEATED = "repeated"
    """The same word counted before; only the answer was lost."""
    LATE = "late"
    """The lease was no longer its own: it counts for nothing."""


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    job_id: str
    name: str
    digest: str
    """Of the tasks, the passes and the tries: two that agree mean the same set."""
    passes: int
    failure_max: int
    current: int
    """Number of the pass that is worked on, from 0; as many as `passes` when all are over."""
    created_at: datetime

    @property
    def over(self) -> bool:
        return self.current >= self.passes


@dataclass(frozen=True, kw_only=True)
class Leased:
    """One task in somebody's hands."""

    number: int
    content: str
    tries: int
    """How often it was handed out in this pass, not counting what the platform took back."""
    fence: int
    holder: str
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How far a set is: of the current pass, and of all passes together."""

    name: str
    passes: int
    current: int
    total: int
    todo: int
    leased: int
    done: int
    given_up: int
    finished: int
    """How many tasks were counted as done in all passes."""
    given_up_ever: int


def holder_of(replica: str, reader: str) -> str:
    return f"{replica}/{reader}"


def replica_of(holder: str) -> str:
    return holder.rpartition("/")[0]


def is_held(task: Leased, live: Collection[str], now: datetime) -> bool:
    """Whether a lease still holds: its replica is not over, and its time is not either."""
    return replica_of(task.holder) in live and now < task.until


def state_after_failure(tries: int, failure_max: int) -> TaskState:
    """What a task becomes when a try at it failed."""
    return TaskState.GIVEN_UP if tries >= failure_max else TaskState.OPEN
