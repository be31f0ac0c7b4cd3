"""Input and decisions of the scheduler, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from paddlecloud.model.jobs.job import JobType, Reason, ReplicaGroup, Resources, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Pool

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A machine that can run jobs now."""

    id: str
    total: Resources
    free: Resources
    host: str = "127.0.0.1"
    exclusive: bool = False
    """True: only a job that has it to itself may use it."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def has_labels(self, required: Labels) -> bool:
        return all(self.labels.get(name) == value for name, value in required)


@dataclass(frozen=True, kw_only=True)
class PoolView:
    pool: Pool
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job that waits to be placed: in `schedule` or `queue`, without a pool."""

    id: str
    owner: str
    number: int
    """Order of arrival; smaller is older. A job keeps it after a lost attempt."""
    waiting_since: datetime
    groups: tuple[ReplicaGroup, ...]
    pools: tuple[str, ...]
    """Names of the pools it may run in, in the order in which they are tried."""
    require: Labels = ()
    """Labels that each machine must have."""
    priority: int = 0
    state: JobState = JobState.SCHEDULE
    job_type: JobType | None = None
    held_reason: Reason | None = None
    """The stored reason why it waits."""
    paused: bool = False
    """It waits for its owner's quota; such time does not count for `schedule_timeout`."""
    not_before: datetime | None = None
    """It pauses before its next attempt and is not placed before this time."""
    pause_reason: Reason | None = None
    """Why it waits until then."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """A job that was placed: what it uses, and since when."""

    id: str
    owner: str
    priority: int
    pool: str
    slots: tuple[tuple[str, Resources], ...]
    """Machine and resources of each replica that has not ended."""
    since: datetime
    """When its attempt was placed."""
    stopping: bool = False
    """It is being stopped, so its capacity comes free soon and it cannot be a victim."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What the plan of one owner still leaves on public pools; None: no limit.

    `jobs`, `cpu`, `memory` and `gpu` are what may be added to what runs now; the other fields are
    for the message.
    """

    jobs: int | None = None
    cpu: float | None = None
    memory: int | None = None
    gpu: int | None = None
    minutes_used: float = 0.0
    minutes_limit: int | None = None
    renews: str = ""
    """When the minutes of the day start again, as text."""
    limits: Mapping[str, int | float | None] = field(default_factory=dict)
    """The plan's own numbers by name (`jobs`, `cpu`, `memory`, `gpu`)."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The times that the scheduling rule depends on."""

    schedule_timeout: timedelta = timedelta(hours=24)
    reserve_after: timedelta = timedelta(minutes=10)
    """Long enough for small jobs to fill gaps, short enough that a large one does not starve."""
    preempt_after: timedelta = timedelta(seconds=30)
    min_run: timedelta = timedelta(minutes=2)
    age_after: timedelta = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class View:
    now: datetime
    pools: tuple[PoolView, ...]
    waiting: tuple[WaitingJob, ...]
    usage: Mapping[str, float] = field(default_factory=dict)
    """What each owner uses now and used on average recently, in CPU-equivalents (`weight`)."""
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    """What the quota leaves to each owner; owners who are not listed have no limits."""
    rules: Rules = Rules()
    running: tuple[RunningJob, ...] = ()
    """Jobs that were placed."""


class Slot(NamedTuple):
    """Where one replica goes."""

    role: Role
    rank: int
    node: str
    host: str
    asks: Resources
    """The resources that it claims there."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Start the job, each replica in its slot."""

    job_id: str
    pool: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, kw_only=True)
class Hold:
    """The job goes on waiting for this reason; decided only when the reason is new."""

    job_id: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The job waited longer than allowed."""

    job_id: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """Stop this running job for a waiting one of a higher priority class."""

    job_id: str
    for_job: str
    reason: Reason


Decision = Place | Hold | GiveUp | Preempt

SMALLEST_CPU = 0.01
"""The least that a replica asks for, so a machine with less is full."""


def spent(left: Allowance, cpu: float, memory: int, gpu: int) -> Allowance:
    """What is left after one more job with these resources."""
    return replace(
        left,
        jobs=None if left.jobs is None else left.jobs - 1,
        cpu=None if left.cpu is None else left.cpu - cpu,
        memory=None if left.memory is None else left.memory - memory,
        gpu=None if left.gpu is None else left.gpu - gpu,
    )
