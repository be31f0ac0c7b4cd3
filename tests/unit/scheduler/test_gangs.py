"""Gangs start whole or not at all, and never block each other for good: 200 random rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from paddlecloud.model.jobs.gang import claims
from paddlecloud.model.jobs.job import ReplicaGroup, Resources, Role
from paddlecloud.model.policy.pool import Node
from paddlecloud.scheduler.view import Decision, NodeView, Place, WaitingJob
from tests.unit.scheduler.builders import GIB, NOW, a_pool, a_view, a_waiting, plan

MOST_STEPS = 400


class World:
    """Machines on which gangs run for a while; the rule decides who starts, chance who ends."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.machines = [
            Node(id=f"n{n}", total=Resources(cpu=chance.choice([1, 2, 4]), memory=8 * GIB, gpu=2))
            for n in range(chance.randint(1, 3))
        ]
        self.waiting = [job for job in self._asked(chance.randint(2, 8)) if job is not None]
        self.running: dict[str, list[tuple[str, Resources]]] = {}
        self.step = 0

    def _asked(self, count: int) -> Iterator[WaitingJob | None]:
        for number in range(1, count + 1):
            trainers = Resources(
                cpu=self.chance.choice([0.5, 1]),
                memory=self.chance.choice([0, GIB]),
                gpu=self.chance.choice([0, 0, 1]),
            )
            groups = [self._group(Role.TRAINER, self.chance.randint(1, 6), trainers)]
            if self.chance.random() < 0.5:
                state = Resources(cpu=0.5)
                groups.append(self._group(Role.PSERVER, self.chance.randint(1, 4), state))
            claimed = claims(groups, self.machines, oversubscribe=True)
            owner = self.chance.choice(["anna", "bo"])
            yield None if claimed is None else a_waiting(number, groups=claimed, owner=owner)

    def _group(self, role: Role, count: int, asks: Resources) -> ReplicaGroup:
        return ReplicaGroup(role=role, count=count, resources=asks)

    def free(self) -> tuple[NodeView, ...]:
        left = {node.id: node.total for node in self.machines}
        for slots in self.running.values():
            for node, held in slots:
                left[node] = left[node] - held
        for state in left.values():
            assert state.cpu >= -1e-6, "a CPU is claimed twice"
            assert min(state.memory, state.gpu) >= 0, "memory or a card is given twice"
        return tuple(NodeView(id=n.id, total=n.total, free=left[n.id]) for n in self.machines)

    def turn(self) -> None:
        """Plan, start what was decided, and let somebody end."""
        self.step += 1
        now = NOW + timedelta(seconds=self.step)
        view = a_view(*self.waiting, pools=(a_pool(*self.free()),), now=now)
        self._start(plan(view))
        if self.running and (not self.waiting or self.chance.random() < 0.6):
            self.running.pop(self.chance.choice(sorted(self.running)))

    def _start(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if not isinstance(decision, Place):
                continue
            job = next(job for job in self.waiting if job.id == decision.job_id)
            wanted = sum(group.count for group in job.groups)
            assert len(decision.slots) == wanted, "a gang starts whole or not at all"
            self.waiting.remove(job)
            self.running[job.id] = [(seat.node, seat.asks) for seat in decision.slots]


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_gangs_that_together_exceed_the_pool_all_run_in_the_end(first: int) -> None:
    for seed in range(first, first + 25):
        world = World(random.Random(seed))
        while world.waiting or world.running:
            before = len(world.waiting)
            idle = not world.running
            world.turn()
            assert not (idle and before == len(world.waiting)), f"round {seed}: nobody starts"
            assert world.step < MOST_STEPS, f"round {seed} does not end"
        world.free()


def test_two_gangs_that_share_all_cpus_run_one_after_the_other() -> None:
    machine = Node(id="n1", total=Resources(cpu=2, memory=8 * GIB))
    asked = [ReplicaGroup(role=Role.TRAINER, count=8, resources=Resources(cpu=1))]
    groups = claims(asked, [machine], oversubscribe=True)
    assert groups is not None
    state = NodeView(id="n1", total=machine.total, free=machine.total)
    view = a_view(a_waiting(1, groups=groups), a_waiting(2, groups=groups), pools=(a_pool(state),))
    assert [d.job_id for d in plan(view) if isinstance(d, Place)] == ["job-1"]
