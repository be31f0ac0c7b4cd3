"""The central values: JobSpec, Job, Attempt, Replica, ExitRecord, Resources.

All are frozen: a change creates a new value (`Job.after`, `with_changes`), which `db` saves. Times
are aware UTC, sizes are bytes, durations are `timedelta`; text forms exist only in `cli` and HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from paddlecloud.model.jobs.states import FINAL, Event, JobState, next_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    class Changes(TypedDict, total=False):
        """Fields that a caller may change with an event, besides those that the event changes."""

        pool: str | None
        attempt: int
        failure: Failure | None
        not_before: datetime | None


PREEMPTED = "preempted"
"""Code of the reason of an attempt that was preempted by a job of a higher class."""
PORT_TAKEN = "fail_port_taken"
"""Code of the reason of an attempt that never ran because one of its ports was in use."""
RESTART_CODES = (101, 102)
"""Exit codes by which PaddlePaddle's elastic training asks for a restart."""
UNCOUNTED = frozenset({PREEMPTED, PORT_TAKEN})
"""Reasons of lost attempts that do not count as retries."""


class JobType(StrEnum):
    CPU = "cpu"
    GPU = "gpu"


class Role(StrEnum):
    TRAINER = "TRAINER"
    PSERVER = "PSERVER"


class DistributeMode(StrEnum):
    """How the replicas of a gang find each other (DISTRIBUTE_JOB_TYPE)."""

    PSERVER = "PSERVER"
    NCCL2 = "NCCL2"


class ReplicaState(StrEnum):
    """State of a replica; it only moves down this list."""

    ORDERED = "ordered"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class ExitCause(StrEnum):
    """Why a replica ended. EXIT: by itself. STOPPED: by a kill. PREEMPTED: by a job of a higher
    class. START_FAILED, PORT_TAKEN: it never ran. HUNG: no activity for too long. OUTPUTS_LOST: it
    succeeded, but its outputs could not be stored. UNWATCHED: unknown, because its supervisor was
    killed."""

    EXIT = "exit"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    WALL_TIME = "wall_time"
    START_FAILED = "start_failed"
    PORT_TAKEN = "port_taken"
    HUNG = "hung"
    OUTPUTS_LOST = "outputs_lost"
    UNWATCHED = "unwatched"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A message as code and values; `messages.render` formats it in the reader's language."""

    code: str
    params: Mapping[str, str | int | float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one replica asks for, or what a node has."""

    cpu: float = 1.0
    memory: int = 0
    gpu: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            cpu=self.cpu + other.cpu, memory=self.memory + other.memory, gpu=self.gpu + other.gpu
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            cpu=self.cpu - other.cpu, memory=self.memory - other.memory, gpu=self.gpu - other.gpu
        )

    def fits_in(self, free: Resources) -> bool:
        """True if `free` has at least this much of everything, with tolerance for rounding."""
        return self.cpu <= free.cpu + 1e-9 and self.memory <= free.memory and self.gpu <= free.gpu


NOTHING = Resources(cpu=0.0)


@dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """`count` alike processes of one role."""

    role: Role
    count: int
    resources: Resources


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """How few and how many trainers a job may have while it runs."""

    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What the user asked for. Every syntax, the console and the SDK produce this one value."""

    start_cmd: str
    groups: tuple[ReplicaGroup, ...]
    job_name: str = "tmp_job"
    cluster: str = "default"
    public_bcc: bool = True
    public_bos: bool = True
    job_type: JobType | None = None
    """None: not given; the server decides (gpu if it has GPUs, else cpu)."""
    distribute_mode: DistributeMode | None = None
    wall_time: timedelta | None = None
    bos_url: str = ""
    snapshot: str | None = None
    """Id of the snapshot of the submitted files."""
    directory: str = ""
    """Name of the submitted directory, shown in bos_url."""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of its owner's secrets, each with the variable that holds it too, or an empty text. The
    values are read when a replica starts."""
    inherited_env: Mapping[str, str] = field(default_factory=dict)
    """PATH and similar variables of the submitter; used by a pool that belongs to the submitter."""
    description: str = ""
    max_retries: int = 0
    priority: int = 0
    cpu_limited: bool = False
    """True if --cpu was given: the number is then also a limit, not only a claim."""
    pservers: int | None = None
    """How many parameter servers were asked for; None: as many as trainers, in PSERVER mode."""
    pserver_cpu: float | None = None
    """CPUs of each of them; None: as many as a trainer has."""
    pserver_memory: int | None = None
    requirements: str = ""
    """Text of a requirements file for pip; empty: nothing to install."""
    retry_exit_codes: tuple[int, ...] = RESTART_CODES
    """Exit codes after which it is retried, as in a shell (128 + n for signal n)."""
    retry_any_exit: bool = False
    """True: it is retried after any failure that may be temporary, whatever the exit code."""
    hang_timeout: timedelta | None = None
    """It is stopped when no replica was active for this long; None: never."""
    git: Mapping[str, str] = field(default_factory=dict)
    """Of the repository of its files: commit, branch, dirty (0 or 1) and cut (1: the diff was
    truncated). The diff itself is in the store."""
    require: tuple[tuple[str, str], ...] = ()
    """Labels that its machines must have."""
    elastic: Elastic | None = None
    """Bounds for the number of trainers while it runs; None: it is fixed."""

    @property
    def instance_count(self) -> int:
        return sum(group.count for group in self.groups if group.role is Role.TRAINER)

    @property
    def replica_count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def is_gang(self) -> bool:
        return self.replica_count > 1 or self.elastic is not None

    def asked_for(self, role: Role) -> Resources:
        """The requested resources of each replica of this role; its claim may be smaller
        (`gang`)."""
        return next(group.resources for group in self.groups if group.role is role)


@dataclass(frozen=True, kw_only=True)
class ExitRecord:
    """How one replica ended, as its supervisor recorded it."""

    cause: ExitCause
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    memory_limit: int | None = None
    """The memory limit that it exceeded, in bytes. None: it did not, or the machine ran out."""
    message: str = ""
    """The system's error why it could not start; or which disk was full when it failed."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    asked_at: datetime | None = None
    """When its supervisor started to stop it; None if it ended by itself."""
    ran: float | None = None
    """Seconds that it ran, by the monotonic clock; None if unknown."""
    max_rss: int | None = None
    """Peak memory of its largest process, in bytes."""
    peak_memory: int | None = None
    """Highest sampled memory of all its processes together, in bytes."""
    cpu_seconds: float | None = None
    enforced: Mapping[str, bool] = field(default_factory=dict)
    """Which limits the machine enforced: cpu, memory, pids."""
    hint: str = ""
    """Finding of the preflight checks that may be why it failed (`no_pserver`)."""
    said: Reason | None = None
    """`message` as code and values, if it is one of our messages."""
    all_ended: bool = False
    """Of one that is UNWATCHED: True if none of its processes can be running."""

    @property
    def ok(self) -> bool:
        return self.cause is ExitCause.EXIT and self.exit_code == 0


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process group of an attempt: where it runs and its state."""

    id: str
    role: Role
    rank: int
    node: str
    resources: Resources
    host: str = "127.0.0.1"
    port: int = 0
    cards: tuple[int, ...] = ()
    """Numbers of the GPUs of its machine that it may use."""
    state: ReplicaState = ReplicaState.ORDERED
    pid: int | None = None
    log_bytes: int = 0
    exit: ExitRecord | None = None
    started_at: datetime | None = None
    """When its command started, by the clock of its machine."""

    @property
    def worker(self) -> str:
        """The name users know: trainer-0, pserver-1."""
        return f"{self.role.lower()}-{self.rank}"

    @property
    def over(self) -> bool:
        return self.state in (ReplicaState.EXITED, ReplicaState.LOST)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to run the whole gang. Its replicas never change; a retry is a new attempt.

    An attempt of an elastic job only grows: stopped and replaced trainers stay in it (`elastic`).
    """

    job_id: str
    number: int
    fence: int
    """Reports about an attempt carry its fence; one with an older fence is rejected."""
    pool: str
    replicas: tuple[Replica, ...]
    created_at: datetime
    handle: Mapping[str, str] | None = None
    """Values by which the backend finds what it started."""
    ended_at: datetime | None = None
    outcome: str = ""

    @property
    def trainers(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role is Role.TRAINER]

    @property
    def over(self) -> bool:
        return all(replica.over for replica in self.replicas)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job failed: reason, advice, the worker and its last log lines."""

    reason: Reason
    advice: Reason | None = None
    worker: str = ""
    exit_code: int | None = None
    last_lines: tuple[str, ...] = ()
    not_retried: Reason | None = None
    """Why a job that may be retried was not."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A submitted spec with its owner and state."""

    id: str
    number: int
    """Order of arrival on this server."""
    owner: str
    spec: JobSpec
    state: JobState
    version: int
    """Grows with every save; a write based on an older one is rejected."""
    created_at: datetime
    waiting_since: datetime
    """Since when it waits to be placed (reset after a lost attempt)."""
    reason: Reason | None = None
    """Why it waits; never None while it does."""
    failure: Failure | None = None
    """Why it failed, or is about to: stored before the clean-up starts."""
    attempt: int = 0
    """Number of the current attempt; 0 before the first."""
    retried: int = 0
    """How many attempts were lost, without those that the pool refused, that were preempted, or
    whose ports were in use."""
    pool: str | None = None
    """Pool of the current attempt; None while it waits to be placed."""
    started_at: datetime | None = None
    """When its first attempt started to run."""
    running_since: datetime | None = None
    """When the current attempt started to run; None while nothing runs."""
    ran: timedelta = timedelta(0)
    """Total running time of earlier attempts."""
    finished_at: datetime | None = None
    kill_asked: bool = False
    quota_since: datetime | None = None
    """Since when it waits for its owner's quota; that time does not count as waiting."""
    time_limit: timedelta | None = None
    """How long it may run where it was placed, by its owner's plan."""
    not_before: datetime | None = None
    """Not to be placed before this time, after a failure that may be temporary."""

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def may_run(self) -> timedelta | None:
        """How long it may run in all, by its wall time and its owner's plan."""
        known = [each for each in (self.spec.wall_time, self.time_limit) if each is not None]
        return min(known, default=None)

    @property
    def time_left(self) -> timedelta | None:
        """The rest of that for the current attempt; None without a limit."""
        limit = self.may_run
        return None if limit is None else limit - self.ran

    @property
    def deadline(self) -> datetime | None:
        """When the time of the current attempt is over; None without a limit or while nothing
        runs."""
        left = self.time_left
        return None if left is None or self.running_since is None else self.running_since + left

    def after(
        self,
        event: Event,
        *,
        now: datetime,
        at: datetime | None = None,
        reason: Reason | None = None,
        **changes: Unpack[Changes],
    ) -> Job:
        """This job after `event`: the only writer of `state`.

        `at`: when it happened, if known to be before `now`.
        """
        state = next_state(self.state, event)
        at = at or now
        stamps: dict[str, object] = {"state": state, "reason": reason}
        if event is Event.STARTED:
            stamps |= {"started_at": self.started_at or at, "running_since": at}
        if event is Event.ATTEMPT_LOST:
            ran = at - self.running_since if self.running_since else timedelta(0)
            stamps |= {"pool": None, "waiting_since": now, "running_since": None}
            stamps["time_limit"] = None
            counts = reason is None or reason.code not in UNCOUNTED
            stamps |= {"retried": self.retried + counts, "ran": self.ran + ran}
        if event is Event.KILL_ASKED:
            stamps["kill_asked"] = True
        if state in FINAL:
            stamps["finished_at"] = at
        return with_changes(self, **{**stamps, **changes})


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """One change of state, as query_job --json and the console show it."""

    at: datetime
    event: Event
    before: JobState
    after: JobState
    reason: Reason | None = None


T = TypeVar("T")


def with_changes(value: T, **changes: object) -> T:
    """A copy of `value` with these fields changed; a name that is no field raises TypeError."""
    fields = value.__dict__
    if not changes.keys() <= fields.keys():
        unknown = ", ".join(sorted(changes.keys() - fields.keys()))
        raise TypeError(f"{type(value).__name__} has no field {unknown}")
    copy = object.__new__(type(value))
    copy.__dict__.update(fields)
    copy.__dict__.update(changes)
    return copy
