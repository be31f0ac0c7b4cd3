"""The planner over time: what it remembers changes nothing but the time it takes.

Random worlds live for many rounds. After each, a planner made anew from the facts must come to the
same answers, and what was promised must hold: capacity, quotas, whole gangs, an end of waiting.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from paddlecloud.model.jobs.job import ReplicaGroup, Resources, Role
from paddlecloud.model.policy.pool import Pool
from paddlecloud.model.policy.priority import CLASSES, rank
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import (
    Allowance,
    Decision,
    GiveUp,
    Hold,
    NodeView,
    Place,
    PoolView,
    Preempt,
    Rules,
    RunningJob,
    View,
    WaitingJob,
)
from tests.unit.scheduler.builders import (
    NOW,
    a_node,
    a_pool,
    a_view,
    a_waiting,
    placed,
    plan,
    reasons,
)

TOTAL = Resources(cpu=8, memory=0, gpu=0)
RULES = Rules(
    schedule_timeout=timedelta(days=3),
    reserve_after=timedelta(seconds=60),
    preempt_after=timedelta(seconds=5),
    min_run=timedelta(seconds=20),
    age_after=timedelta(seconds=300),
)


@dataclass
class World:
    """Machines of 8 CPUs, jobs that come, run and end, and the planner that is asked."""

    nodes: int = 4
    preemption: bool = True
    quotas: dict[str, int] = field(default_factory=dict)
    grace: float = 3
    clock: float = 0
    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    running: dict[str, RunningJob] = field(default_factory=dict)
    asks: dict[str, WaitingJob] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    lengths: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    served: Counter[str] = field(default_factory=Counter)
    preempted: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.planner = Planner(RULES)
        self.planner.set_pool(self._pool_view())
        for owner in self.quotas:
            self._allow(owner)

    def submit(self, number: int, *, length: float = 10, count: int = 1, cpu: float = 1,
               owner: str = "anna", priority: int = 0) -> str:  # fmt: skip
        group = ReplicaGroup(role=Role.TRAINER, count=count, resources=Resources(cpu=cpu))
        job = WaitingJob(
            id=f"job-{number}",
            owner=owner,
            number=number,
            waiting_since=self.now,
            groups=(group,),
            pools=("big",),
            priority=priority,
        )
        self.asks[job.id], self.lengths[job.id] = job, length
        self._wait(job)
        return job.id

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock)

    def end_due(self, seconds: float) -> None:
        self.clock += seconds
        for job_id in [job_id for job_id, at in self.ends.items() if at <= self.clock]:
            self._end(job_id)

    def tick(self, seconds: float = 1) -> list[Decision]:
        self.end_due(seconds)
        for run in self.running.values():
            self.served[run.owner] += sum(weight(ask) for _, ask in run.slots)  # type: ignore[assignment]
        decisions = self.planner.decide(self.now)
        for decision in decisions:
            self._obey(decision)
        self._check()
        return decisions

    def view(self) -> View:
        """The facts, as a server would read them."""
        used: Counter[str] = Counter()
        for run in self.running.values():
            used[run.owner] += sum(weight(ask) for _, ask in run.slots)  # type: ignore[assignment]
        return View(
            now=self.now,
            pools=(self._pool_view(),),
            waiting=tuple(self.waiting.values()),
            usage=used,
            allowances={owner: self._allowance(owner) for owner in self.quotas},
            running=tuple(self.running.values()),
            rules=RULES,
        )

    def _pool_view(self) -> PoolView:
        held: dict[str, Resources] = {}
        for run in self.running.values():
            for node, ask in run.slots:
                held[node] = held.get(node, Resources(cpu=0)) + ask
        nodes = tuple(
            NodeView(id=f"n{n}", total=TOTAL, free=TOTAL - held.get(f"n{n}", Resources(cpu=0)))
            for n in range(self.nodes)
        )
        private = not self.quotas
        pool = Pool(name="big", backend="x", private=private, preemption=self.preemption)
        return PoolView(pool=pool, nodes=nodes)

    def _wait(self, job: WaitingJob) -> None:
        self.waiting[job.id] = job
        self.planner.arrived(job)

    def _end(self, job_id: str) -> None:
        del self.ends[job_id]
        run = self.running.pop(job_id)
        self.planner.ended(job_id)
        if run.owner in self.quotas:
            self._allow(run.owner)
        if run.stopping:
            self._wait(replace(self.asks[job_id], waiting_since=self.now))

    def _obey(self, decision: Decision) -> None:
        match decision:
            case Place():
                job = self.waiting.pop(decision.job_id)
                ask = job.groups[0].resources
                self.running[job.id] = RunningJob(
                    id=job.id,
                    owner=job.owner,
                    priority=job.priority,
                    pool="big",
                    slots=tuple((seat.node, ask) for seat in decision.slots),
                    since=self.now,
                )
                self.started.setdefault(job.id, self.clock)
                self.ends[job.id] = self.clock + self.lengths[job.id]
            case Preempt():
                run = self.running[decision.job_id]
                assert rank(run.priority) < rank(self.asks[decision.for_job].priority)
                assert self.now - run.since >= RULES.min_run
                assert not run.stopping, "nobody is chosen twice"
                self.preempted[run.id] += 1
                self.running[run.id] = replace(run, stopping=True)
                left = max(1.0, self.ends[run.id] - self.clock)
                self.lengths[run.id] = left
                self.ends[run.id] = self.clock + min(self.grace, left)
                if left <= self.grace:
                    self.running[run.id] = run
                    self.planner._runs[run.id].stopping = True
            case Hold():
                held = self.waiting[decision.job_id]
                self.waiting[held.id] = replace(held, held_reason=decision.reason)
            case GiveUp():
                del self.waiting[decision.job_id]

    def _check(self) -> None:
        for node in self._pool_view().nodes:
            assert node.free.cpu >= -1e-6, "a machine was given more than it has"
        counts = Counter(run.owner for run in self.running.values())
        for owner, limit in self.quotas.items():
            assert counts[owner] <= limit

    def _allowance(self, owner: str) -> Allowance:
        busy = sum(run.owner == owner for run in self.running.values())
        return Allowance(jobs=self.quotas[owner] - busy, limits={"jobs": self.quotas[owner]})

    def _allow(self, owner: str) -> None:
        self.planner.set_allowance(owner, self._allowance(owner))


def a_random_world(
    seed: int, rounds: int = 60, *, preemption: bool = True
) -> tuple[World, random.Random, int]:
    chance = random.Random(seed)
    quotas = {"cy": 2} if seed % 2 else {}
    world = World(nodes=chance.choice([1, 3, 6]), preemption=preemption, quotas=quotas)
    number = 0
    for _ in range(rounds):
        for _ in range(chance.choice([0, 1, 1, 3])):
            number += 1
            world.submit(
                number,
                length=chance.uniform(1, 40),
                count=chance.choice([1, 1, 1, 2, 3]) if world.nodes > 1 else 1,
                cpu=chance.choice([0.5, 1, 2, 4, 8]),
                owner=chance.choice(["anna", "bo", "cy"]),
                priority=chance.choice(list(CLASSES.values())),
            )
        world.tick()
    return world, chance, number


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_job_starts_when_the_load_is_finite(seed: int, preemption: bool) -> None:
    world, _, number = a_random_world(seed, preemption=preemption)
    for _ in range(4000):
        if not world.waiting and not world.running:
            break
        world.tick()
    assert len(world.started) == number


@pytest.mark.parametrize("seed", range(12))
def test_a_planner_that_remembers_answers_like_one_made_anew(seed: int) -> None:
    """Without preemption, in which a promise once made is remembered too."""
    world, chance, number = a_random_world(seed, rounds=20, preemption=False)
    for _ in range(60):
        number += 1
        world.submit(
            number,
            cpu=chance.choice([1, 2, 8]),
            count=chance.choice([1, 2]) if world.nodes > 1 else 1,
            owner=chance.choice(["anna", "bo", "cy"]),
            priority=chance.choice(list(CLASSES.values())),
            length=chance.uniform(1, 20),
        )
        world.end_due(1)
        anew = plan(world.view())
        remembered = world.tick(0)
        assert [d for d in remembered if isinstance(d, Place)] == [
            d for d in anew if isinstance(d, Place)
        ]


@pytest.mark.parametrize("seed", range(20))
def test_preemption_comes_to_an_end(seed: int) -> None:
    """200 rounds of two gangs of each class that do not fit together, on one set of machines."""
    chance = random.Random(seed)
    world = World(nodes=4)
    for number in range(12):
        world.submit(
            number,
            count=chance.choice([2, 3, 4]),
            cpu=8,
            length=chance.uniform(20, 60),
            owner=f"u{number}",
            priority=chance.choice(list(CLASSES.values())),
        )
        world.tick(chance.choice([1, 5, 30]))
    for _ in range(200):
        world.tick(5)
    assert not world.waiting and not world.running
    assert len(world.started) == 12
    assert max(world.preempted.values(), default=0) <= 12


def test_a_low_job_starts_by_waiting_among_an_endless_stream_of_urgent_ones() -> None:
    """By then it counts as urgent itself, and came first."""
    world = World(nodes=1, preemption=False)
    low = world.submit(1, cpu=8, length=5, priority=CLASSES["low"])
    number = 1
    world.running.clear()
    while low not in world.started and world.clock < 3000:
        for _ in range(3):
            number += 1
            world.submit(number, cpu=4, length=2, owner=f"u{number % 7}", priority=200)
        world.tick()
    limit = 3 * RULES.age_after.total_seconds() + RULES.reserve_after.total_seconds() + 60
    assert world.started[low] <= limit
    assert world.started[low] >= 0


def test_without_ageing_it_would_starve() -> None:
    world = World(nodes=1, preemption=False)
    world.planner = Planner(replace(RULES, age_after=timedelta(days=9)))
    world.planner.set_pool(world._pool_view())
    number = 1
    world.submit(number, cpu=8, length=2, priority=200)
    world.tick()
    low = world.submit(0, cpu=8, length=5, priority=CLASSES["low"])
    for _ in range(1500):
        for _ in range(3):
            number += 1
            world.submit(number, cpu=4, length=2, owner=f"u{number % 7}", priority=200)
        world.tick()
    assert low not in world.started


def test_users_with_equal_demand_get_equal_shares() -> None:
    world = World(nodes=4, preemption=False)
    chance = random.Random(3)
    number = 0
    for _ in range(400):
        for owner in ("anna", "bo", "cy", "di"):
            cpu = {"anna": 1, "bo": 2, "cy": 4, "di": 1}[owner]
            while sum(job.owner == owner for job in world.waiting.values()) < 20:
                number += 1
                world.submit(number, cpu=cpu, length=chance.uniform(2, 8), owner=owner)
        world.tick()
    fair = sum(world.served.values()) / 4
    for owner, got in world.served.items():
        assert got == pytest.approx(fair, rel=0.15), owner


def test_a_big_gang_starts_among_a_stream_of_small_jobs() -> None:
    world = World(nodes=4, preemption=False)
    chance = random.Random(5)
    number = 1
    gang = ""
    for second in range(400):
        for _ in range(6):
            number += 1
            world.submit(number, cpu=chance.choice([1, 2]), length=chance.uniform(5, 20))
        if second == 30:
            gang = world.submit(0, cpu=8, count=4, length=5)
        world.tick()
        if gang in world.started:
            break
    assert world.started[gang] <= 30 + RULES.reserve_after.total_seconds() + 20 + 2


def test_room_that_was_kept_is_free_again_when_its_job_is_gone() -> None:
    world = World(nodes=1, preemption=False)
    world.submit(1, cpu=4, length=1000)
    world.tick()
    big = world.submit(2, cpu=8)
    for _ in range(70):
        world.tick()
    world.submit(3, cpu=4)
    assert placed(world.tick()) == []
    world.planner.left(big)
    del world.waiting[big]
    assert placed(world.tick()) == ["job-3"]


def test_another_machine_is_used_at_once() -> None:
    world = World(nodes=1)
    world.submit(1, cpu=8, length=1000)
    world.submit(2, cpu=8, length=1000)
    world.tick()
    assert len(world.waiting) == 1
    world.nodes = 2
    world.planner.set_pool(world._pool_view())
    for run in world.running.values():
        world.planner.runs(run)
    assert placed(world.tick()) == ["job-2"]
    world.submit(3, cpu=8)
    assert placed(world.tick(1000)) == ["job-3"], "what was running then has ended"


def test_decayed_usage_counts_like_use() -> None:
    jobs = [a_waiting(1, owner="heavy"), a_waiting(2, owner="light")]
    view = a_view(*jobs, pools=(a_pool(a_node(cpu=1)),), usage={"heavy": 3.0})
    assert placed(plan(view)) == ["job-2"]


def test_over_quota_waits_with_the_numbers_and_blocks_nobody() -> None:
    pool = replace(a_pool(a_node()), pool=replace(a_pool().pool, private=False))
    allowances = {
        "anna": Allowance(jobs=0, limits={"jobs": 2}),
        "cy": Allowance(minutes_used=100.04, minutes_limit=100, renews="2026-01-03 00:00"),
        "di": Allowance(cpu=1.5),
    }
    jobs = [
        a_waiting(1, cpu=8, waited=999),
        a_waiting(2, owner="bo"),
        a_waiting(3, owner="cy"),
        a_waiting(4, owner="di", cpu=1),
        a_waiting(5, owner="di", cpu=1),
    ]
    decisions = plan(a_view(*jobs, pools=(pool,), allowances=allowances))
    assert placed(decisions) == ["job-2", "job-4"]
    assert reasons(decisions) == {
        "job-1": "queue_quota_running",
        "job-3": "queue_quota_minutes",
        "job-5": "queue_quota_resources",
    }


def test_a_private_pool_asks_no_quota() -> None:
    view = a_view(a_waiting(), allowances={"anna": Allowance(jobs=0)})
    assert placed(plan(view)) == ["job-1"]


def test_a_job_that_waits_for_its_quota_does_not_give_up() -> None:
    waited = a_waiting(1, waited=90_000, cpu=99, paused=True)
    assert reasons(plan(a_view(waited))) == {"job-1": "queue_too_large"}
