"""A replica with its attempt and job, and whether a message of an agent about it is current.

A message with the fence of an earlier attempt changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.errors import NotFound, StaleFence
from paddlecloud.model.jobs.job import Attempt, Job, Replica, ReplicaState
from paddlecloud.server.deps import Deps


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A replica with the attempt and the job it belongs to."""

    replica: Replica
    attempt: Attempt
    job: Job


def for_upload(deps: Deps, node: str, replica_id: str, fence: int) -> Assigned:
    """The replica that may send files now, or StaleFence."""
    assigned = deps.db.read(lambda tx: find(tx, replica_id))
    if assigned is None or not is_current(assigned, fence, node):
        raise StaleFence("fence_stale", replica=replica_id[:200], fence=fence)
    return assigned


def live(deps: Deps, node: str, replica_id: str) -> Assigned:
    """A live replica of this agent, whose files it may read."""
    assigned = deps.db.read(lambda tx: find(tx, replica_id))
    if assigned is None or assigned.replica.node != node or assigned.replica.over:
        raise NotFound("replica_unknown", replica=replica_id[:200])
    return assigned


def is_current(assigned: Assigned, fence: int, node: str, *, ends: bool = False) -> bool:
    """Whether a message of this agent with this fence counts; one that `ends` a replica may repeat.

    An end whose response was lost is accepted again. Of a replica that was given up only its end
    counts, so an agent that comes back with a live one gets "stale".
    """
    replica, attempt = assigned.replica, assigned.attempt
    if attempt.fence != fence or replica.node != node:
        return False
    if replica.over and ends:
        return True
    return replica.state is not ReplicaState.LOST and assigned.job.attempt == attempt.number


def find(tx: Tx, replica_id: str) -> Assigned | None:
    """The replica with this id, if there is one."""
    return Lookup(tx).assigned(replica_id)


class Lookup:
    """Replicas by id within one transaction: each attempt is read once for all of its replicas.
    Valid as long as each replica is looked up once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._found: dict[str, Assigned] = {}

    def assigned(self, replica_id: str) -> Assigned | None:
        if replica_id not in self._found:
            job = jobs.of_replica(self._tx, replica_id)
            attempt = attempts.attempt_of(self._tx, replica_id)
            if attempt is None:
                return None
            self._keep(attempt, job())
        return self._found.get(replica_id)

    def load(self, wanted: Collection[tuple[str, int]]) -> None:
        """Read these attempts, by job and number, in one query."""
        found = attempts.get_attempts(self._tx, wanted)
        known = jobs.get_jobs(self._tx, dict.fromkeys(attempt.job_id for attempt in found))
        by_id = {job.id: job for job in known}
        for attempt in found:
            self._keep(attempt, by_id.get(attempt.job_id))

    def _keep(self, attempt: Attempt, job: Job | None) -> None:
        for replica in attempt.replicas if job is not None else ():
            assert job is not None
            self._found[replica.id] = Assigned(replica=replica, attempt=attempt, job=job)
