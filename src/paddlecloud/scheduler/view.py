"""What the scheduler may look at, and what it may decide. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from paddlecloud.model.jobs.job import NOTHING, JobType, Reason, ReplicaGroup, Resources, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Pool


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
    paused: bool = False
    """It waits for its owner's quota: such time does not count for `schedule_timeout`."""
    not_before: datetime | None = None
    """It failed in a way that may pass, and gets no place before this time."""
    pause_reason: Reason | None = None
    """What it is told until then."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """A job that has a place in a pool that allows preemption: what it holds, and since when."""

    id: str
    owner: str
    priority: int
    pool: str
    seats: tuple[tuple[str, Resources], ...]
    """The machine and the resources of each replica that is not over."""
    since: datetime
    """When its attempt was placed."""
    stopping: bool = False
    """It was told to stop, so its room comes free soon and it is no choice any more."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What the plan of one owner still leaves on public pools; None: no limit.

    `jobs`, `cpu`, `memory` and `gpu` are what may be added to what runs now; what they are limits
    of is told by the others, for the sentence.
    """

    jobs: int | None = None
    cpu: float | None = None
    memory: int | None = None
    gpu: int | None = None
    minutes_used: float = 0.0
    minutes_limit: int | None = None
    renews: str = ""
    """When the minutes of the day begin anew, as it is told to a person."""
    limits: Mapping[str, int | float | None] = field(default_factory=dict)
    """The plan's own numbers by name (`jobs`, `cpu`, `memory`, `gpu`), for the sentence."""


@dataclass(frozen=True, kw_only=True)
class View:
    now: datetime
    pools: tuple[PoolView, ...]
    waiting: tuple[WaitingJob, ...]
    usage: Mapping[str, float] = field(default_factory=dict)
    """What each owner has in use now and had on average lately, in CPU-equivalents (`weight`)."""
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    """What the quota of an owner still leaves; an owner who is not named has no limits."""
    schedule_timeout: timedelta = timedelta(hours=24)
    reserve_after: timedelta = timedelta(minutes=5)
    """Long enough for small jobs to fill gaps, short enough that a big one is not forgotten."""
    running: tuple[RunningJob, ...] = ()
    """What runs in pools that allow preemption; others need not be listed."""
    preempt_after: timedelta = timedelta(seconds=30)
    min_run: timedelta = timedelta(minutes=2)
    age_after: timedelta = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The times that the rule speaks of."""

    schedule_timeout: timedelta = timedelta(hours=24)
    reserve_after: timedelta = timedelta(minutes=10)
    preempt_after: timedelta = timedelta(seconds=30)
    min_run: timedelta = timedelta(minutes=2)
    age_after: timedelta = timedelta(hours=6)


class Seat(NamedTuple):
    """Where one replica goes."""

    role: Role
    rank: int
    node: str
    host: str
    asks: Resources
    """What it claims there."""


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


@dataclass(frozen=True, kw_only=True)
class Preempt:
    """Stop this running job: its room is needed by a waiting one of a higher class."""

    job_id: str
    for_job: str
    reason: Reason


Decision = Place | Hold | GiveUp | Preempt

SMALLEST_CPU = 0.01
"""No replica asks for less, so a machine without this much is full. (A gang may claim less, but
then it claims a whole pool.)"""
_HAIR = 1e-9
_CPUS_PER_GPU = 8
_BYTES_PER_CPU = 4 * 2**30


def has_room(pools: Iterable[PoolView]) -> bool:
    """Whether any machine of these pools has a CPU left that somebody could claim."""
    return any(node.free.cpu >= SMALLEST_CPU - _HAIR for pool in pools for node in pool.nodes)


def after(pools: Iterable[PoolView], decisions: Iterable[Decision]) -> list[PoolView]:
    """The pools when these decisions are carried out."""
    taken: dict[str, Resources] = {}
    for decision in decisions:
        for seat in decision.nodes if isinstance(decision, Place) else ():
            taken[seat.node] = taken.get(seat.node, NOTHING) + seat.asks
    return [
        replace(pool, nodes=tuple(_without(node, taken.get(node.id)) for node in pool.nodes))
        for pool in pools
    ]


def _without(node: NodeView, taken: Resources | None) -> NodeView:
    return node if taken is None else replace(node, free=node.free - taken)


def spent(left: Allowance, cpu: float, memory: int, gpu: int) -> Allowance:
    """What is left of it with one more job that has so much."""
    return replace(
        left,
        jobs=None if left.jobs is None else left.jobs - 1,
        cpu=None if left.cpu is None else left.cpu - cpu,
        memory=None if left.memory is None else left.memory - memory,
        gpu=None if left.gpu is None else left.gpu - gpu,
    )


def weight(resources: Resources) -> float:
    """Resources as one number for the fair share: a GPU is worth 8 CPUs, and memory counts where
    it is more than the usual 4 GiB a CPU."""
    return max(resources.cpu, resources.memory / _BYTES_PER_CPU) + resources.gpu * _CPUS_PER_GPU
