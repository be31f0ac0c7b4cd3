"""Elastic jobs: which trainers are replaced, how a job grows, and which trainers it can release.

An elastic attempt keeps every replica that it ever had, and ranks are never reused: trainer-5
replaces trainer-2. The rules for all jobs (`diagnosis.outcome`, `diagnosis.first_failure`) get a
`judged` attempt instead, without the trainers that were replaced or stopped, in which a trainer
that will be replaced still runs.

Which failures were handled is stored in the failure of the running job (`REPLACED`). Any other
stored failure means that the job is ending; then no trainer is replaced any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.model.jobs.gang import fits
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    Job,
    JobSpec,
    Replica,
    ReplicaGroup,
    ReplicaState,
    Resources,
    Role,
    with_changes,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Node

REPLACED = "elastic_replaced"
"""Code of the failure of a running job after a trainer was replaced."""
MOST_IN_A_ROW = 3
"""Trainers replaced in a row without a finished task in between; after that the job fails."""
_OWN = frozenset({ExitCause.EXIT, ExitCause.START_FAILED, ExitCause.PORT_TAKEN})
_FOR_ALL = frozenset({ExitCause.WALL_TIME, ExitCause.HUNG, ExitCause.PREEMPTED})


def least_groups(spec: JobSpec) -> tuple[ReplicaGroup, ...]:
    """The replica groups that have to fit before the job starts."""
    if spec.elastic is None:
        return spec.groups
    least = spec.elastic.least
    return tuple(
        with_changes(group, count=least) if group.role is Role.TRAINER else group
        for group in spec.groups
    )


def judged(job: Job, attempt: Attempt | None) -> Attempt | None:
    """The attempt for the rules of all jobs; see the module docstring."""
    if attempt is None or job.spec.elastic is None:
        return attempt
    if job.state is JobState.SCHEDULE:
        kept = [r for r in attempt.replicas if not _was_sent_away(r)]
        return with_changes(attempt, replicas=tuple(kept or attempt.replicas))
    if job.state is not JobState.RUNNING:
        return attempt
    if is_ending(job, attempt):
        culprit = "" if job.failure is None else job.failure.worker
        kept = [r for r in attempt.replicas if not has_failed(r) or r.worker == culprit]
        return with_changes(attempt, replicas=tuple(kept or attempt.replicas))
    waiting = {replica.id for replica in unanswered(job, attempt)}
    kept = [
        with_changes(replica, state=ReplicaState.RUNNING, exit=None)
        if replica.id in waiting
        else replica
        for replica in attempt.replicas
        if replica.id in waiting or not (has_failed(replica) or _was_sent_away(replica))
    ]
    return with_changes(attempt, replicas=tuple(kept or attempt.replicas))


def is_ending(job: Job, attempt: Attempt) -> bool:
    """Whether the job is ending, for any reason."""
    if job.kill_asked or (job.failure is not None and job.failure.reason.code != REPLACED):
        return True
    ends = (r.exit is not None and r.exit.cause in _FOR_ALL for r in attempt.replicas)
    pservers = [r for r in attempt.replicas if r.role is Role.PSERVER and r.over]
    return any(ends) or any(
        r.exit is None or not (r.exit.ok or r.exit.cause is ExitCause.STOPPED) for r in pservers
    )


def unanswered(job: Job, attempt: Attempt) -> list[Replica]:
    """Trainers that failed and were not replaced yet, the first to fail first."""
    known = from_ranges(str(_replacements(job).get("answered") or ""))
    failed = [r for r in attempt.replicas if has_failed(r) and r.rank not in known]

    def order(replica: Replica) -> tuple[float, int]:
        ended = None if replica.exit is None else replica.exit.finished_at
        return (0.0 if ended is None else ended.timestamp()), replica.rank

    return sorted(failed, key=order)


def settled_ranks(attempt: Attempt, waiting: Collection[Replica]) -> str:
    """The ranks to store when all failures except the `waiting` are handled: every ended trainer,
    which makes few ranges."""
    open_ = {replica.rank for replica in waiting}
    return to_ranges(r.rank for r in attempt.trainers if r.over and r.rank not in open_)


class Streak:
    """Failures in a row without a finished task in between."""

    def __init__(self, job: Job, finished: datetime | None) -> None:
        """`finished`: time of the last finished task."""
        stored = _replacements(job)
        self.times = int(stored.get("times") or 0)
        self.last = float(stored.get("last") or 0.0)
        self._finished = 0.0 if finished is None else finished.timestamp()

    def add(self, failed: Replica, now: datetime) -> bool:
        """Count one more; False if there are too many.

        Counted by the times at which they ended: several may be reported at once.
        """
        if not is_own_fault(failed):
            return True
        ended = now if failed.exit is None else failed.exit.finished_at or now
        self.times = 1 if self._finished > self.last else self.times + 1
        self.last = ended.timestamp()
        return self.times <= MOST_IN_A_ROW


def has_failed(replica: Replica) -> bool:
    """Whether a trainer ended in a way that it is replaced."""
    if replica.role is not Role.TRAINER or not replica.over:
        return False
    if replica.state is ReplicaState.LOST or replica.exit is None:
        return True
    return not replica.exit.ok and replica.exit.cause in _OWN


def is_own_fault(replica: Replica) -> bool:
    """False if it ended because of its machine, or because its port was in use."""
    return (
        replica.state is not ReplicaState.LOST
        and replica.exit is not None
        and replica.exit.cause is not ExitCause.PORT_TAKEN
    )


def next_rank(attempt: Attempt) -> int:
    return 1 + max(replica.rank for replica in attempt.trainers)


def trainers_left(attempt: Attempt, leaving: Collection[str]) -> list[Replica]:
    """Trainers that run, or will, and are not being stopped."""
    return [r for r in attempt.trainers if not r.over and r.id not in leaving]


def some_ended_well(attempt: Attempt) -> bool:
    return any(r.exit is not None and r.exit.ok for r in attempt.trainers)


def may_grow_by(job: Job, attempt: Attempt, leaving: Collection[str]) -> int:
    """How many trainers may be added if there is capacity: up to instance_count before it runs, up
    to max_instance while it runs; none after a trainer has finished."""
    if job.spec.elastic is None or is_ending(job, attempt) or some_ended_well(attempt):
        return 0
    if job.state not in (JobState.SCHEDULE, JobState.RUNNING) or unanswered(job, attempt):
        return 0
    most = job.spec.elastic.most if job.state is JobState.RUNNING else job.spec.instance_count
    return max(0, most - len(trainers_left(attempt, leaving)))


def may_leave(job: Job, attempt: Attempt, leaving: Collection[str]) -> list[Replica]:
    """The trainers above min_instance, newest first: the order in which they are released."""
    if job.spec.elastic is None or job.state is not JobState.RUNNING or is_ending(job, attempt):
        return []
    left = trainers_left(attempt, leaving)
    surplus = len(left) - job.spec.elastic.least
    return sorted(left, key=lambda replica: -replica.rank)[: max(0, surplus)]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a waiting job needs, and the machines that it may use."""

    groups: tuple[ReplicaGroup, ...]
    machines: tuple[Node, ...]


def who_leaves(
    wish: Wish, free: Mapping[str, Resources], candidates: Sequence[Replica]
) -> list[Replica]:
    """The fewest candidates, in their order, whose resources suffice for the wish; none if all of
    them do not suffice, or if `free` (by machine, with resources about to be freed) does.
    """
    left = {node.id: free.get(node.id, node.total) for node in wish.machines}
    gone: list[Replica] = []
    for replica in (None, *candidates):
        if replica is not None:
            if replica.node not in left:
                continue
            left[replica.node] += replica.resources
            gone.append(replica)
        machines = [with_changes(node, total=left[node.id]) for node in wish.machines]
        if fits(wish.groups, machines):
            return _needed(wish, left, gone)
    return []


def _needed(wish: Wish, left: dict[str, Resources], gone: list[Replica]) -> list[Replica]:
    """Without the replicas whose resources are not needed: they are on other machines."""
    kept = list(gone)
    for replica in gone:
        less = dict(left)
        less[replica.node] -= replica.resources
        if fits(wish.groups, [with_changes(node, total=less[node.id]) for node in wish.machines]):
            left = less
            kept.remove(replica)
    return kept


def to_ranges(numbers: Iterable[int]) -> str:
    """Sorted ranges of numbers: `0-4,7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)


def from_ranges(text: str) -> set[int]:
    found: set[int] = set()
    for run in text.split(",") if text else ():
        low, _, high = run.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def _replacements(job: Job) -> Mapping[str, str | int | float | None]:
    """The values of the failure REPLACED, if the job has it."""
    reason = None if job.failure is None else job.failure.reason
    return reason.params if reason is not None and reason.code == REPLACED else {}


def _was_sent_away(replica: Replica) -> bool:
    sent = replica.exit is not None and replica.exit.cause is ExitCause.STOPPED
    return replica.role is Role.TRAINER and sent
