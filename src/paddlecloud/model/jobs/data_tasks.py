"""Data tasks: training data that is leased to readers task by task. Values and rules.

A task set belongs to a job and is processed pass by pass. A task is leased to a holder (a reader in
one replica) with a fence that grows with every lease, so that a report about an expired lease is
detected. `db/tables/data_tasks` stores them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MAX_TASKS = 1_000_000
MAX_CONTENT = 4096
"""Characters of the content of a task."""


class TaskState(StrEnum):
    """Of the current pass."""

    OPEN = "todo"
    LEASED = "leased"
    DONE = "done"
    GIVEN_UP = "given_up"


class Verdict(StrEnum):
    """The effect of a holder's report that a task is done."""

    COUNTED = "counted"
    """The task was counted as done."""
    REPEATED = "repeated"
    """It was counted before; only the response was lost."""
    LATE = "late"
    """The lease has expired: the report is ignored."""


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    job_id: str
    name: str
    digest: str
    """Hash of tasks, passes and tries; equal for equal sets."""
    passes: int
    failure_max: int
    current: int
    """Number of the current pass, from 0; equal to `passes` when all are done."""
    created_at: datetime

    @property
    def over(self) -> bool:
        return self.current >= self.passes


@dataclass(frozen=True, kw_only=True)
class Leased:
    """One leased task."""

    number: int
    content: str
    tries: int
    """How often it was leased in this pass, without leases that the platform took back."""
    fence: int
    holder: str
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Progress of a set, in the current pass and in all passes."""

    name: str
    passes: int
    current: int
    total: int
    todo: int
    leased: int
    done: int
    given_up: int
    finished: int
    """Tasks counted as done in all passes."""
    given_up_ever: int


def holder_of(replica: str, reader: str) -> str:
    return f"{replica}/{reader}"


def replica_of(holder: str) -> str:
    return holder.rpartition("/")[0]


def is_held(task: Leased, live: Collection[str], now: datetime) -> bool:
    """Whether a lease is valid: its replica has not ended and it has not expired."""
    return replica_of(task.holder) in live and now < task.until


def state_after_failure(tries: int, failure_max: int) -> TaskState:
    """The state of a task after a failed try."""
    return TaskState.GIVEN_UP if tries >= failure_max else TaskState.OPEN
