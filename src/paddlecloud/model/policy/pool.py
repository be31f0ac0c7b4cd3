"""A pool: a named place over one backend, with capacity and policy.

`cluster=default` is an ordered list of pools. Values only: whether a job can ever run in a pool is
decided in `admission`, whether it can run now by the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from paddlecloud.model.jobs.job import JobType, Resources


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of a pool and all that it has."""

    id: str
    total: Resources
    host: str = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Pool:
    name: str
    backend: str
    """File name in backends/, or an installed entry point."""
    private: bool
    """True: it belongs to its person (own machine or own keys), so the limits of public pools
    (one instance, no wall_time, free quota) do not apply."""
    remote: bool = True
    """True: what it starts may outlive a loss of power here, so a place is on disk before it is
    asked."""
    job_types: frozenset[JobType] = frozenset({JobType.CPU, JobType.GPU})
    users: frozenset[str] = frozenset()
    """Who may use it; empty: everybody."""
    gangs: bool = True
    """True: its machines can run jobs of several replicas."""
    oversubscribes: bool = False
    """True: a gang that asks for more CPUs than there are shares them, instead of being refused."""
    preemption: bool = False
    """True: a waiting job of a higher class may take the place of a running one of a lower."""

    @property
    def public(self) -> bool:
        return not self.private

    def serves(self, owner: str) -> bool:
        return not self.users or owner in self.users
