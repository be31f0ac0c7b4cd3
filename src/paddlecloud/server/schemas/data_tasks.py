"""JSON schemas of the tasks that the trainers of a job take in turns."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from paddlecloud.model.jobs.data_tasks import MAX_CONTENT, MAX_TASKS
from paddlecloud.server.schemas.base import Answer, Natural, Request

Reader = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+\Z")]
"""Identifies a reader within its worker; each reader chooses its own."""
Seconds = Annotated[float, Meta(ge=1, le=86400)]
Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Content = Annotated[str, Meta(max_length=MAX_CONTENT, pattern=r"^[^\x00]*\Z")]
"""A database keeps any text without zero bytes."""
Held = tuple[Natural, Natural]
"""Number and fence of a task."""


class TasksRequest(Request, frozen=True, kw_only=True):
    """A set of tasks. Without `tasks`: whether there is one with this digest already."""

    digest: Annotated[str, Meta(min_length=64, max_length=64, pattern=r"^[0-9a-f]+\Z")]
    passes: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    failure_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    tasks: Annotated[list[Content], Meta(max_length=MAX_TASKS)] | None = None


class LeaseRequest(Request, frozen=True, kw_only=True):
    reader: Reader
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    seconds: Seconds = 60.0
    held: list[Natural] = msgspec.field(default_factory=list)
    """Numbers of the tasks that the reader knows to hold: any other comes back to it first."""


class LeasedTask(Answer, frozen=True, kw_only=True):
    number: int
    content: str
    fence: int
    tries: int


class LeaseAnswer(Answer, frozen=True, kw_only=True):
    tasks: list[LeasedTask]
    current_pass: int
    over: bool
    """All passes are over: there will be no more tasks."""
    wait: float
    """Seconds after which to ask again, if there is none now."""
    given_up: list[tuple[int, int]]
    """Pass and number of tasks that were given up just now, for the log."""


class RenewRequest(Request, frozen=True, kw_only=True):
    reader: Reader
    seconds: Seconds = 60.0
    leases: Annotated[list[Held], Meta(max_length=10_000)]


class RenewAnswer(Answer, frozen=True, kw_only=True):
    lost: list[int]
    """Numbers of those that are no longer the reader's."""


class TaskDone(Request, frozen=True, kw_only=True):
    reader: Reader
    number: Number
    fence: Natural
    of_pass: Natural


class TaskDoneAnswer(Answer, frozen=True, kw_only=True):
    verdict: str
    """counted, repeated (it counted before) or late (it was no longer the reader's)."""
    current_pass: int
    over: bool


class TaskFailed(Request, frozen=True, kw_only=True):
    reader: Reader
    number: Number
    fence: Natural
    counts: bool = True
    """False: the task was not started, so this does not count as a failure."""


class TaskFailedAnswer(Answer, frozen=True, kw_only=True):
    state: str
    """todo (it is handed out again), given_up, or late."""
