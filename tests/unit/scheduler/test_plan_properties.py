"""What holds for every view, and for a queue over time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.jobs.job import JobType, ReplicaGroup, Resources, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.view import (
    GiveUp,
    Hold,
    NodeView,
    Place,
    PoolView,
    Rules,
    View,
    WaitingJob,
)
from tests.unit.scheduler.builders import NOW, a_node, a_pool, a_view, a_waiting, placed, plan

_cpus = st.integers(1, 800).map(lambda hundredths: hundredths / 100)
_asks = st.builds(
    Resources, cpu=_cpus, memory=st.sampled_from([0, 1, 5, 9]), gpu=st.sampled_from([0, 0, 1, 2])
)
_groups = st.lists(
    st.builds(
        ReplicaGroup, role=st.sampled_from(list(Role)), count=st.integers(1, 3), resources=_asks
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda group: group.role,
).map(tuple)

RULES = Rules(schedule_timeout=timedelta(seconds=450), reserve_after=timedelta(seconds=300))
PATIENT = replace(RULES, schedule_timeout=timedelta(days=1))


@st.composite
def _nodes(draw: st.DrawFn, name: str) -> NodeView:
    total = Resources(cpu=draw(_cpus), memory=draw(st.integers(0, 10)), gpu=draw(st.integers(0, 2)))
    used = Resources(cpu=draw(_cpus), memory=draw(st.integers(0, 10)), gpu=draw(st.integers(0, 1)))
    free = draw(st.sampled_from([total, total - used]))
    return NodeView(id=name, total=total, free=free)


@st.composite
def _pools(draw: st.DrawFn, name: str) -> PoolView:
    count = draw(st.integers(0, 2))
    kinds = draw(st.sampled_from([{JobType.CPU}, {JobType.GPU}, set(JobType)]))
    return a_pool(*(draw(_nodes(f"{name}-{n}")) for n in range(count)), name=name, job_types=kinds)


@st.composite
def _views(draw: st.DrawFn) -> View:
    waiting = [
        a_waiting(
            number,
            groups=draw(_groups),
            owner=draw(st.sampled_from("abc")),
            priority=draw(st.integers(-1, 1)),
            waited=draw(st.integers(0, 500)),
            job_type=draw(st.sampled_from([None, *JobType])),
            pools=draw(st.permutations(["p1", "p2", "gone"]).map(tuple)),
            state=draw(st.sampled_from([JobState.SCHEDULE, JobState.QUEUE])),
        )
        for number in range(draw(st.integers(0, 5)))
    ]
    return a_view(
        *draw(st.permutations(waiting)),
        pools=(draw(_pools("p1")), draw(_pools("p2"))),
        usage=draw(st.dictionaries(st.sampled_from("abc"), st.floats(0, 50))),
        rules=RULES,
    )


@given(_views())
def test_no_machine_is_ever_given_more_than_it_has_free(view: View) -> None:
    free = {node.id: node.free for pool in view.pools for node in pool.nodes}
    asks = {(job.id, g.role): g.resources for job in view.waiting for g in job.groups}
    given_: dict[str, Resources] = {}
    for decision in plan(view):
        if isinstance(decision, Place):
            for seat in decision.slots:
                before = given_.get(seat.node, Resources(cpu=0))
                given_[seat.node] = before + asks[decision.job_id, seat.role]
    for node, taken in given_.items():
        assert taken.cpu <= free[node].cpu + 1e-6
        assert not taken.memory or taken.memory <= free[node].memory
        assert not taken.gpu or taken.gpu <= free[node].gpu


@given(_views())
def test_a_gang_is_placed_whole_in_one_pool_that_takes_it(view: View) -> None:
    jobs = {job.id: job for job in view.waiting}
    pools = {pool.pool.name: pool for pool in view.pools}
    for decision in plan(view):
        if not isinstance(decision, Place):
            continue
        job, pool = jobs[decision.job_id], pools[decision.pool]
        want = sorted((g.role, rank) for g in job.groups for rank in range(g.count))
        assert sorted((seat.role, seat.rank) for seat in decision.slots) == want
        assert {seat.node for seat in decision.slots} <= {node.id for node in pool.nodes}
        assert decision.pool in job.pools
        assert job.job_type is None or job.job_type in pool.pool.job_types


@given(_views())
def test_a_job_is_decided_once_and_waits_with_a_reason(view: View) -> None:
    decisions = plan(view)
    assert max(Counter(d.job_id for d in decisions).values(), default=1) == 1
    silent = {job.id for job in view.waiting} - {d.job_id for d in decisions}
    assert not silent, "nobody had a reason before, so everybody is decided"


@given(_views(), st.randoms())
def test_the_same_view_gives_the_same_plan_however_it_is_listed(
    view: View, chance: random.Random
) -> None:
    assert plan(view) == plan(view)
    mixed = list(view.waiting)
    chance.shuffle(mixed)
    again = plan(replace(view, waiting=tuple(mixed)))
    assert {d for d in again if isinstance(d, Place)} == {
        d for d in plan(view) if isinstance(d, Place)
    }


@given(_views())
def test_a_job_gives_up_if_and_only_if_it_waited_too_long(view: View) -> None:
    gone = {d.job_id for d in plan(view) if isinstance(d, GiveUp)}
    assert gone == {
        job.id for job in view.waiting if view.now - job.waiting_since > view.rules.schedule_timeout
    }


@given(_views())
def test_after_its_holds_are_stored_a_plan_without_placements_is_silent(view: View) -> None:
    decisions = plan(view)
    stored = {d.job_id: d.reason for d in decisions if isinstance(d, Hold)}
    held = tuple(
        replace(job, held_reason=stored[job.id], **{"state": JobState.QUEUE})  # type: ignore[arg-type]
        for job in view.waiting
        if job.id in stored
    )
    if len(held) == len(decisions):
        assert plan(replace(view, waiting=held)) == []


@given(_views())
def test_a_job_alone_is_placed_whenever_it_fits_an_empty_pool(view: View) -> None:
    for job in view.waiting:
        empty = tuple(
            replace(pool, nodes=tuple(replace(node, free=node.total) for node in pool.nodes))
            for pool in view.pools
        )
        alone = replace(view, waiting=(job,), pools=empty, rules=PATIENT)
        (decision,) = plan(alone)
        if isinstance(decision, Hold):
            assert decision.reason.code in ("queue_too_large", "queue_no_agent", "queue_no_pool")


@given(_views())
def test_of_two_equal_jobs_the_one_of_higher_priority_is_not_left_behind(view: View) -> None:
    started = set(placed(plan(view)))
    for job in view.waiting:
        for other in view.waiting:
            alike = (job.groups, job.pools, job.job_type, job.owner) == (
                other.groups, other.pools, other.job_type, other.owner,
            )  # fmt: skip
            fresh = view.now - job.waiting_since <= view.rules.schedule_timeout
            if alike and fresh and job.priority > other.priority and other.id in started:
                assert job.id in started


@dataclass
class Cluster:
    """One pool over time: places what `plan` says and ends each job after its running time."""

    cpus: float
    reserve_after: float
    machines: int = 1
    clock: datetime = NOW
    waiting: list[WaitingJob] = field(default_factory=list)
    running: list[tuple[datetime, str, str, float]] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    lengths: dict[str, float] = field(default_factory=dict)

    def submit(self, number: int, *, cpu: float, length: float, owner: str = "anna") -> str:
        job = replace(a_waiting(number, cpu=cpu, owner=owner), waiting_since=self.clock)
        self.lengths[job.id] = length
        self.waiting.append(job)
        return job.id

    def tick(self, seconds: float = 1) -> None:
        self.clock += timedelta(seconds=seconds)
        self.running = [run for run in self.running if run[0] > self.clock]
        usage: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for _, owner, node, cpu in self.running:
            usage[owner] += cpu  # type: ignore[assignment]
            used[node] += cpu  # type: ignore[assignment]
        nodes = [
            a_node(f"n{n}", cpu=self.cpus, used=Resources(cpu=used[f"n{n}"]))
            for n in range(self.machines)
        ]
        view = a_view(
            *self.waiting,
            pools=(a_pool(*nodes),),
            now=self.clock,
            usage=usage,
            rules=Rules(reserve_after=timedelta(seconds=self.reserve_after)),
        )
        for decision in plan(view):
            if isinstance(decision, Place):
                self._start(decision)

    def _start(self, decision: Place) -> None:
        job = next(job for job in self.waiting if job.id == decision.job_id)
        self.waiting.remove(job)
        until = self.clock + timedelta(seconds=self.lengths[job.id])
        for seat, ask in zip(decision.slots, [job.groups[0].resources], strict=True):
            self.running.append((until, job.owner, seat.node, ask.cpu))
        self.started[job.id] = (self.clock - job.waiting_since).total_seconds()


@pytest.mark.parametrize("machines", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_big_job_starts_in_time_among_an_endless_stream_of_small_ones(
    machines: int, seed: int
) -> None:
    chance = random.Random(seed)
    longest, reserve_after = 20.0, 30.0
    cluster = Cluster(cpus=4, reserve_after=reserve_after, machines=machines)
    numbers = iter(range(1, 10_000))
    for _ in range(4 * machines):
        cluster.submit(next(numbers), cpu=1, length=chance.uniform(1, longest))
    cluster.tick()
    assert not cluster.waiting, "every machine is full and nobody is older than the big job"
    big = cluster.submit(next(numbers), cpu=4, length=5)
    while big not in cluster.started and cluster.clock < NOW + timedelta(seconds=200):
        for _ in range(2 * machines):
            length = chance.uniform(1, longest)
            cluster.submit(next(numbers), cpu=chance.choice([0.5, 1, 2]), length=length)
        cluster.tick()
    assert cluster.started[big] <= reserve_after + longest + 1
    assert len(cluster.started) > 4 * machines + 1, "small ones passed it before"


def test_without_the_reservation_it_would_starve() -> None:
    cluster = Cluster(cpus=4, reserve_after=10_000)
    numbers = iter(range(1, 10_000))
    big = cluster.submit(next(numbers), cpu=4, length=5)
    cluster.submit(next(numbers), cpu=1, length=3)
    cluster.running.append((NOW + timedelta(seconds=3), "anna", "n0", 1.0))
    for _ in range(200):
        for _ in range(2):
            cluster.submit(next(numbers), cpu=1, length=3)
        cluster.tick()
    assert big not in cluster.started


def test_two_users_share_what_a_flood_of_one_of_them_would_take() -> None:
    cluster = Cluster(cpus=4, reserve_after=300)
    for number in range(400):
        cluster.submit(number, cpu=1, length=10, owner="anna")
    for _ in range(20):
        cluster.tick()
    for number in range(400, 440):
        cluster.submit(number, cpu=1, length=10, owner="bo")
    for _ in range(60):
        cluster.tick()
    shares = Counter({"anna": 0, "bo": 0})
    for _ in range(30):
        cluster.tick()
        shares.update(owner for _, owner, _, _ in cluster.running)
    assert abs(shares["anna"] - shares["bo"]) <= 0.1 * shares.total()


def test_every_job_of_a_mixed_queue_gets_its_turn() -> None:
    chance = random.Random(1)
    cluster = Cluster(cpus=4, reserve_after=20, machines=2)
    for number in range(120):
        size = chance.choice([0.5, 1, 2, 4])
        cluster.submit(number, cpu=size, length=chance.uniform(1, 8), owner=chance.choice("abc"))
    for _ in range(900):
        cluster.tick()
    assert len(cluster.started) == 120
