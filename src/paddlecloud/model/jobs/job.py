"""The central values: what a person asked for, and what became of it.

All of them are frozen: a job is changed by making the next one (`Job.after`, `with_changes`) and
saved by the db package. Times are aware UTC, sizes are bytes, durations are `timedelta`; text
forms exist only at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.states import FINAL, Event, JobState, next_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    class Changes(TypedDict, total=False):
        """What may change of a job with an event, beside what the event itself changes."""

        pool: str | None
        attempt: int
        failure: Failure | None
        not_before: datetime | None


PREEMPTED = "preempted"
"""Code of the reason of an attempt that made room for a job of a higher class."""
PORT_TAKEN = "fail_port_taken"
"""Code of the reason of an attempt that never ran because a port of it was in use."""
RESTART_CODES = (101, 102)
"""Exit codes by which PaddlePaddle's elastic training says: start me again."""
UNCOUNTED = frozenset({PREEMPTED, PORT_TAKEN})
"""Reasons for which an attempt is lost that count as no retry."""


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
    """What is known of one replica; a replica only moves down this list."""

    ORDERED = "ordered"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class ExitCause(StrEnum):
    """Who ended the process: itself, somebody's kill, a job of a higher class, its wall time, or
    it never began: for a reason of its own, or because another program has its port; or the
    platform, because nothing of it did anything for too long. OUTPUTS_LOST: itself, and well, but
    its owner's bucket, or the server's store, did not take what it left. UNWATCHED: nobody can
    tell, because the process that watched over it is gone."""

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
    """A sentence kept as code and values; `texts.render` speaks it in the reader's language."""

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

    def fits_in(self, room: Resources) -> bool:
        """True if `room` has at least this much of everything (a hair of rounding forgiven)."""
        return self.cpu <= room.cpu + 1e-9 and self.memory <= room.memory and self.gpu <= room.gpu


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
    """None: not said; the server settles it (gpu where it has GPUs, else cpu)."""
    distribute_mode: DistributeMode | None = None
    wall_time: timedelta | None = None
    bos_url: str = ""
    snapshot: str | None = None
    """Id of the submitted files, by content."""
    directory: str = ""
    """Name of the submitted directory, shown in bos_url."""
    env: Mapping[str, str] = field(default_factory=dict)
    inherited_env: Mapping[str, str] = field(default_factory=dict)
    """PATH and the like of the submitter; honoured by a pool that belongs to its person."""
    description: str = ""
    max_retries: int = 0
    priority: int = 0
    cpu_limited: bool = False
    """True when --cpu was given: the number is then a limit too, not only a claim."""
    pservers: int | None = None
    """How many parameter servers were asked for; None: as many as trainers, in PSERVER mode."""
    pserver_cpu: float | None = None
    """CPUs of each of them; None: as many as a trainer has."""
    pserver_memory: int | None = None
    requirements: str = ""
    """What pip is to install for it, as the text of a requirements file; empty: nothing."""
    retry_exit_codes: tuple[int, ...] = RESTART_CODES
    """Exit codes after which it is tried again, as a shell tells them (128 + n for signal n)."""
    retry_any_exit: bool = False
    """True: after any failure of its program that may pass, whatever its exit code."""
    hang_timeout: timedelta | None = None
    """It is stopped when no replica did anything for this long; None: never."""
    git: Mapping[str, str] = field(default_factory=dict)
    """Of the repository that its files came from: commit, branch, dirty (0 or 1) and cut (1: the
    difference was longer than what is kept). The difference itself is in the store."""
    elastic: Elastic | None = None
    """Its trainers come and go between these numbers; None: they are as many as they are."""

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
        """What each replica of this role asks for; its claim may be smaller (`gangs.claims`)."""
        return next(group.resources for group in self.groups if group.role is role)


@dataclass(frozen=True, kw_only=True)
class ExitRecord:
    """How one replica ended, as the monitor beside it saw it."""

    cause: ExitCause
    exit_code: int | None = None
    signal: int | None = None
    oom: bool = False
    memory_limit: int | None = None
    """Bytes: the limit for which it was killed. None: it was not, or the machine had none left."""
    message: str = ""
    """Why it could not start, in the system's words; or which disk was full when it failed."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    asked_at: datetime | None = None
    """When its machine began to end it, where it did not end by itself."""
    ran: float | None = None
    """Seconds that it ran, by a clock that nobody can set; None where it is not known."""
    max_rss: int | None = None
    """Bytes that its largest process held."""
    peak_memory: int | None = None
    """The most bytes that all of its processes were seen to hold at once."""
    cpu_seconds: float | None = None
    enforced: Mapping[str, bool] = field(default_factory=dict)
    """Which limits the machine could really enforce: cpu, memory, pids."""
    hint: str = ""
    """What its machine saw before it began that may be why it failed (`no_pserver`)."""
    said: Reason | None = None
    """What `message` says, where that is a sentence of ours: put into words for its reader."""
    all_ended: bool = False
    """Of one that is UNWATCHED: no process of it can be running. False: one may."""

    @property
    def ok(self) -> bool:
        return self.cause is ExitCause.EXIT and self.exit_code == 0


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process group of one attempt: where it should run and what is known of it."""

    id: str
    role: Role
    rank: int
    node: str
    resources: Resources
    host: str = "127.0.0.1"
    port: int = 0
    cards: tuple[int, ...] = ()
    """The cards of its machine that are its own, by their number."""
    state: ReplicaState = ReplicaState.ORDERED
    pid: int | None = None
    log_bytes: int = 0
    exit: ExitRecord | None = None
    started_at: datetime | None = None
    """When its command began, by the clock of its machine."""

    @property
    def worker(self) -> str:
        """The name users know: trainer-0, pserver-1."""
        return f"{self.role.lower()}-{self.rank}"

    @property
    def over(self) -> bool:
        return self.state in (ReplicaState.EXITED, ReplicaState.LOST)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at running the whole gang; its membership never changes, a new try is a new one.

    Of an elastic job it only grows: who left, or was replaced, stays in it (`elastic`).
    """

    job_id: str
    number: int
    fence: int
    """Messages about an attempt carry its fence; one with an older fence is refused."""
    pool: str
    replicas: tuple[Replica, ...]
    created_at: datetime
    handle: Mapping[str, str] | None = None
    """The backend's own note, enough to find again what it started."""
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
    """Why a job ended other than well: said in words, with the worker and its last lines."""

    reason: Reason
    advice: Reason | None = None
    worker: str = ""
    exit_code: int | None = None
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A spec with an identity and a life."""

    id: str
    number: int
    """Order of arrival on this server."""
    owner: str
    spec: JobSpec
    state: JobState
    version: int
    """Grows with every save; a write that names an older one is refused."""
    created_at: datetime
    waiting_since: datetime
    """Since when it waits for a place (a lost attempt starts the wait anew)."""
    reason: Reason | None = None
    """Why it waits; never empty while it does."""
    failure: Failure | None = None
    """Why it ended badly, or is about to: written before the clean-up begins."""
    attempt: int = 0
    """Number of the current attempt; 0 before the first."""
    retried: int = 0
    """How many attempts were lost so far; one that its pool refused, that had to make room for a
    job of a higher class, or whose ports were in use, counts for nothing."""
    pool: str | None = None
    """Where the current attempt was placed; None while it waits for a place."""
    started_at: datetime | None = None
    """When its first attempt began to run."""
    running_since: datetime | None = None
    """When the current attempt began to run; None while nothing runs."""
    ran: timedelta = timedelta(0)
    """How long the attempts before the current one ran: only running time counts."""
    finished_at: datetime | None = None
    kill_asked: bool = False
    quota_since: datetime | None = None
    """Since when it waits for its owner's quota; that time does not count as waiting."""
    time_limit: timedelta | None = None
    """How long it may run where it was placed, by its owner's plan."""
    not_before: datetime | None = None
    """It failed in a way that may pass: it gets no place before this time."""

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
        """What that leaves to the current attempt; None where there is no limit."""
        limit = self.may_run
        return None if limit is None else limit - self.ran

    @property
    def deadline(self) -> datetime | None:
        """When the wall time of what runs now is over; None while nothing runs."""
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

        `at` is when it happened, where that is known to be before `now`.
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
    """One change of state, as query_job --json and the console tell it."""

    at: datetime
    event: Event
    before: JobState
    after: JobState
    reason: Reason | None = None
