"""A pool: a named place over one backend, with capacity and policy.

`cluster=default` is an ordered list of pools. Values only: whether a job can ever run in a pool is
decided in `admission`, whether it can run now by the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paddlecloud.model.jobs.job import JobType, Resources


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of a pool and all that it has."""

    id: str
    total: Resources
    host: str = "127.0.0.1"
    exclusive: bool = False
    """True: it runs one job at a time, because it is made for that job."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What jobs may require of it, such as gpu=a100."""

    def has_labels(self, required: Iterable[tuple[str, str]]) -> bool:
        return all(self.labels.get(name) == value for name, value in required)


@dataclass(frozen=True, kw_only=True)
class ElasticLimits:
    """How much a place may have that makes machines on demand."""

    nodes: int
    """Machines at the same time."""
    node: Resources
    """The largest machine."""
    total: Resources | None = None
    """All machines together; None: no limit but the number."""


def elastic_nodes(pool: str, limits: ElasticLimits) -> tuple[Node, ...]:
    """The machines that these limits allow, as nodes that do not exist yet.

    Each stands for one machine at a time, made for the job that is placed there. Machines count
    with their full size, so that all of them together are never beyond the total.
    """
    found: list[Node] = []
    left = limits.total
    for index in range(limits.nodes):
        size = limits.node
        if left is not None:
            size = Resources(
                cpu=min(size.cpu, left.cpu),
                memory=min(size.memory, left.memory),
                gpu=min(size.gpu, left.gpu),
            )
            left -= size
        if size.cpu <= 0 or size.memory <= 0:
            break
        found.append(Node(id=f"{pool}-{index}", total=size, exclusive=True))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Pool:
    name: str
    backend: str
    """File name in backends/, or an installed entry point."""
    private: bool
    """True: it belongs to its person (own machine or own keys), so the limits of public pools
    (one instance, no wall_time, free quota) do not apply."""
    of_team: bool = False
    """True: private, but its machines belong to a team, so quota plans hold on it all the same."""
    remote: bool = True
    """True: what it starts may outlive a loss of power here, so a place is on disk before it is
    asked."""
    job_types: frozenset[JobType] = frozenset({JobType.CPU, JobType.GPU})
    users: frozenset[str] = frozenset()
    """Users who may use it; empty: all users."""
    gangs: bool = True
    """True: its machines can run jobs of several replicas."""
    oversubscribes: bool = False
    """True: a gang that asks for more CPUs than there are shares them, instead of being refused."""
    preemption: bool = False
    """True: a waiting job of a higher class may take the place of a running one of a lower."""

    @property
    def public(self) -> bool:
        return not self.private

    @property
    def metered(self) -> bool:
        """Whether quota plans hold on it."""
        return self.public or self.of_team

    def serves(self, owner: str) -> bool:
        return not self.users or owner in self.users
