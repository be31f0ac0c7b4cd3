"""What the scheduler may look at, and what it may decide. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from paddlecloud.model.job import JobType, Reason, ReplicaGroup, Resources, Role
from paddlecloud.model.pool import Pool
from paddlecloud.model.states import JobState


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One machine that can be given work now; one that is gone or draining is not listed."""

    id: str
    total: Resources
    free: Resources
    host: str = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class PoolView:
    pool: Pool
    nodes: tuple[NodeView, ...]


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job without a place: in `schedule` or `queue`, and no pool chosen."""

    id: str
    owner: str
    number: int
    """Order of arrival; smaller is older. A lost attempt keeps it, so the job keeps its turn."""
    waiting_since: datetime
    groups: tuple[ReplicaGroup, ...]
    pools: tuple[str, ...]
    """Names of the pools it may run in, in the order in which they are asked."""
    priority: int = 0
    state: JobState = JobState.SCHEDULE
    job_type: JobType | None = None
    held_reason: Reason | None = None
    """Why it waits, as it is stored now."""


@dataclass(frozen=True, kw_only=True)
class View:
    now: datetime
    pools: tuple[PoolView, ...]
    waiting: tuple[WaitingJob, ...]
    usage: Mapping[str, float] = field(default_factory=dict)
    """What each owner has in use now, in CPU-equivalents (`weight`)."""
    schedule_timeout: timedelta = timedelta(hours=24)
    reserve_after: timedelta = timedelta(minutes=5)
    """Long enough for small jobs to fill gaps, short enough that a big one is not forgotten."""


class Seat(NamedTuple):
    """Where one replica goes."""

    role: Role
    rank: int
    node: str
    host: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Start the job: every replica has its seat."""

    job_id: str
    pool: str
    nodes: tuple[Seat, ...]


@dataclass(frozen=True, kw_only=True)
class Hold:
    """The job waits, and this is why. Decided only when that is news."""

    job_id: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """The job waited longer than allowed."""

    job_id: str
    reason: Reason


Decision = Place | Hold | GiveUp

_CPUS_PER_GPU = 8
_BYTES_PER_CPU = 4 * 2**30


def weight(resources: Resources) -> float:
    """Resources as one number for the fair share: a GPU is worth 8 CPUs, and memory counts where
    it is more than the usual 4 GiB a CPU."""
    return max(resources.cpu, resources.memory / _BYTES_PER_CPU) + resources.gpu * _CPUS_PER_GPU
