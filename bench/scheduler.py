"""How fast the planner decides with a long queue standing: 100,000 jobs, 10,000 machines.

The jobs are of 500 users, of four classes, single and in gangs, with and without cards, so that
there are many shapes. Nothing but the planner is measured: no database, no network.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from bench.row import Row
from paddlecloud.model.jobs.job import JobType, ReplicaGroup, Resources, Role
from paddlecloud.model.policy.pool import Pool
from paddlecloud.model.policy.priority import CLASSES
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.view import NodeView, Place, PoolView, Preempt, View, WaitingJob

NOW = datetime(2026, 11, 16, tzinfo=UTC)
GIB = 2**30
WAITING = 100_000
NODES = 10_000
USERS = 500
_DEMAND = tuple(accumulate((user + 1) ** -0.9 for user in range(USERS)))
"""The most eager user submits about one job in eleven, half of the users one in ten together."""


def scheduler() -> Iterator[Row]:
    """Decisions a second over the whole queue, and the time to react to one event."""
    chance = random.Random(1)
    view = View(now=NOW, pools=(a_pool(NODES),), waiting=tuple(_queue(chance, WAITING)))
    began = time.process_time()
    planner = Planner.of(view)
    decisions = planner.decide(NOW)
    took = time.process_time() - began
    rate = len(decisions) / took
    gc.collect()
    gc.freeze()  # as the server does with what stays, and seldom looks at the rest
    gc.set_threshold(20_000, 20, 20)
    running = [decision.job_id for decision in decisions if isinstance(decision, Place)]
    yield Row(
        what=f"plan {WAITING:,} jobs on {NODES:,} machines, {len(running):,} start",
        measured=f"{rate:,.0f} a second",
        goal="20,000 a second",
        reached=rate >= 20_000,
    )
    for what, times in _events(planner, running, chance).items():
        middle, worst = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
        yield Row(
            what=f"react to {what}, {WAITING - len(running):,} waiting (median, p99)",
            measured=f"{middle * 1000:.2f}, {worst * 1000:.2f} ms",
            goal="5 ms",
            reached=worst <= 0.005,
        )


def _events(planner: Planner, running: list[str], chance: random.Random) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"a job that ended": [], "a job that arrived": []}
    chance.shuffle(running)
    now = NOW
    for turn, job_id in enumerate(running[:1000]):
        now += timedelta(seconds=1)
        began = time.process_time()
        planner.ended(job_id)
        ended = planner.decide(now)
        times["a job that ended"].append(time.process_time() - began)
        began = time.process_time()
        planner.arrived(a_job(chance, WAITING + turn + 1, now))
        arrived = planner.decide(now)
        times["a job that arrived"].append(time.process_time() - began)
        for decision in ended + arrived:
            if isinstance(decision, Preempt):
                planner.ended(decision.job_id)
        planner.decide(now)
    return times


def a_pool(nodes: int, *, preemption: bool = True) -> PoolView:
    """Four machines in five have 32 CPUs, the fifth has 8 cards."""
    cpu = Resources(cpu=32.0, memory=128 * GIB, gpu=0)
    gpu = Resources(cpu=64.0, memory=512 * GIB, gpu=8)
    views = tuple(
        NodeView(id=f"n{n}", total=total, free=total)
        for n in range(nodes)
        for total in ((gpu if n % 5 == 0 else cpu),)
    )
    pool = Pool(name="big", backend="scripted", private=True, preemption=preemption)
    return PoolView(pool=pool, nodes=views)


def a_job(chance: random.Random, number: int, at: datetime) -> WaitingJob:
    """Few users submit most of the jobs, most are small; one in ten is a gang, one in ten needs
    cards."""
    (user,) = chance.choices(range(USERS), cum_weights=_DEMAND)
    owner = f"u{user:03d}"
    cards = chance.random() < 0.1
    cpu = float(chance.choice((1, 2, 4, 4, 8, 16, 32))) if not cards else 8.0
    ask = Resources(
        cpu=cpu,
        memory=int(cpu * chance.choice((1, 2, 4))) * GIB,
        gpu=chance.choice((1, 1, 2, 4, 8)) if cards else 0,
    )
    count = chance.choice((2, 4, 8, 16)) if chance.random() < 0.1 else 1
    (name,) = chance.choices(tuple(CLASSES), weights=(20, 70, 8, 2))
    return WaitingJob(
        id=f"job-{number}",
        owner=owner,
        number=number,
        waiting_since=at,
        groups=(ReplicaGroup(role=Role.TRAINER, count=count, resources=ask),),
        pools=("big",),
        priority=CLASSES[name],
        job_type=JobType.GPU if cards else JobType.CPU,
    )


def _queue(chance: random.Random, count: int) -> Iterator[WaitingJob]:
    for number in range(1, count + 1):
        yield a_job(chance, number, NOW - timedelta(seconds=chance.uniform(0, 3600)))
