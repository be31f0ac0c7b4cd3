"""A day of a large cluster in a few minutes: the real planner, simulated jobs and machines.

python -m bench.simulate                        1,000,000 jobs of 500 users on 10,000 machines
python -m bench.simulate --jobs=20000 --nodes=200

Jobs arrive in waves (more by day than the machines can take, less by night), run for a while and
end; the planner is asked every two seconds of simulated time, told what happened, and obeyed.
A job that is stopped for another one comes back and has lost what it did since its last checkpoint.
Printed: utilisation, waiting times by class and by user, decisions a second, preemptions.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush

from bench.scheduler import NOW, USERS, a_job, a_pool
from paddlecloud.model.policy.priority import CLASSES, class_name
from paddlecloud.scheduler.planner import Planner
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import Decision, Place, Preempt, Rules, WaitingJob

STEP = 2.0
GRACE = 20.0
CHECKPOINT = 600.0
HALF_LIFE = 86400.0
MEAN_LENGTH = 1200.0
LOAD = 0.97
"""What is asked for on average, as a share of what there is: the waves go above it."""


@dataclass
class Life:
    """What the simulation knows of one job and the planner does not."""

    job: WaitingJob
    length: float
    cost: float
    cpu: float
    gpu: int
    submitted: float
    waited: float = -1.0
    began: float = 0.0
    tries: int = 0
    stopping: bool = False


@dataclass
class Report:
    decisions: int = 0
    placed: int = 0
    preempted: int = 0
    lost_work: float = 0.0
    planning: float = 0.0
    slowest: float = 0.0
    longest_queue: int = 0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    measured: float = 0.0
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_user: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Simulation:
    def __init__(self, jobs: int, nodes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.left, self.number = jobs, 0
        pool = a_pool(nodes)
        self.cpus = sum(node.total.cpu for node in pool.nodes)
        self.gpus = sum(node.total.gpu for node in pool.nodes)
        self.planner = Planner(Rules(schedule_timeout=timedelta(days=30)))
        self.planner.set_pool(pool)
        self.lives: dict[str, Life] = {}
        self.ends: list[tuple[float, int, str]] = []
        self.now, self.arrival = 0.0, 0.0
        self.in_use: Counter[str] = Counter()
        self.lately: dict[str, float] = {}
        self.busy_cpu, self.busy_gpu = 0.0, 0
        self.waiting = 0
        self.rate = LOAD * self.cpus / (self._mean_cpu() * MEAN_LENGTH)
        self.report = Report()

    def run(self) -> Report:
        began, arrived_all = time.monotonic(), math.inf
        while self.lives or self.left:
            self.now += STEP
            changed = self._end_due() | self._arrive()
            if not self.left:
                arrived_all = min(arrived_all, self.now)
            self._count(loaded=3600 < self.now < arrived_all)
            if self.now % 60 < STEP:
                self._share()
            if changed or self.now % 5 < STEP:
                self._plan()
            if self.now % 3600 < STEP:
                self._progress(time.monotonic() - began)
        return self.report

    def _mean_cpu(self) -> float:
        sample = random.Random(0)
        jobs = [a_job(sample, number, NOW) for number in range(5000)]
        return statistics.mean(_total(job)[0] for job in jobs)

    def _arrive(self) -> bool:
        before = self.left
        while self.left and self.arrival <= self.now:
            wave = 1 + 0.35 * math.sin(2 * math.pi * self.arrival / 43200)
            self.arrival += self.chance.expovariate(self.rate * wave)
            self._submit()
        return self.left < before

    def _submit(self) -> None:
        self.left -= 1
        self.number += 1
        job = a_job(self.chance, self.number, NOW + timedelta(seconds=self.now))
        length = self.chance.lognormvariate(math.log(MEAN_LENGTH) - 0.5, 1.0)
        cpu, gpu, cost = _total(job)
        life = Life(
            job=job,
            length=min(max(10.0, length), 4 * 3600.0),
            cost=cost,
            cpu=cpu,
            gpu=gpu,
            submitted=self.now,
        )
        self.lives[job.id] = life
        self.waiting += 1
        self.planner.arrived(job)

    def _end_due(self) -> bool:
        ended = False
        while self.ends and self.ends[0][0] <= self.now:
            _, tries, job_id = heappop(self.ends)
            life = self.lives.get(job_id)
            if life is not None and life.tries == tries:
                self._end(life)
                ended = True
        return ended

    def _end(self, life: Life) -> None:
        job = life.job
        self.planner.ended(job.id)
        self.in_use[job.owner] -= life.cost  # type: ignore[assignment]
        self._set_usage(job.owner)
        self.busy_cpu -= life.cpu
        self.busy_gpu -= life.gpu
        ran = self.now - life.began
        if not life.stopping or ran >= life.length:
            del self.lives[job.id]
            return
        lost = min(ran, self.chance.uniform(0, CHECKPOINT))
        self.report.lost_work += lost * life.cpu
        life.length = max(1.0, life.length - ran + lost)
        life.stopping = False
        life.tries += 1
        life.job = replace(job, waiting_since=NOW + timedelta(seconds=self.now))
        self.waiting += 1
        self.planner.arrived(life.job)

    def _plan(self) -> None:
        began = time.process_time()
        decisions = self.planner.decide(NOW + timedelta(seconds=self.now))
        took = time.process_time() - began
        self.report.planning += took
        self.report.slowest = max(self.report.slowest, took)
        self.report.decisions += len(decisions)
        self.report.longest_queue = max(self.report.longest_queue, self.waiting)
        self._obey(decisions)

    def _obey(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            life = self.lives[decision.job_id]
            if isinstance(decision, Place):
                self._begin(life)
            elif isinstance(decision, Preempt) and not life.stopping:
                self.report.preempted += 1
                life.stopping = True
                heappush(self.ends, (self.now + GRACE, life.tries, life.job.id))

    def _begin(self, life: Life) -> None:
        job = life.job
        life.began = self.now
        self.waiting -= 1
        self.report.placed += 1
        if life.waited < 0:
            life.waited = self.now - life.submitted
            self.report.waits[class_name(job.priority)].append(life.waited)
            self.report.by_user[job.owner].append(life.waited)
        self.in_use[job.owner] += life.cost  # type: ignore[assignment]
        self.busy_cpu += life.cpu
        self.busy_gpu += life.gpu
        heappush(self.ends, (self.now + life.length, life.tries, job.id))

    def _share(self) -> None:
        fades = 0.5 ** (60 / HALF_LIFE)
        for owner in self.lately.keys() | self.in_use.keys():
            before = self.lately.get(owner, 0.0)
            self.lately[owner] = before * fades + self.in_use[owner] * (1 - fades)
            self._set_usage(owner)

    def _set_usage(self, owner: str) -> None:
        self.planner.set_usage(owner, self.in_use[owner] + self.lately.get(owner, 0.0))

    def _count(self, *, loaded: bool) -> None:
        if loaded:
            self.report.measured += STEP
            self.report.cpu_seconds += self.busy_cpu * STEP
            self.report.gpu_seconds += self.busy_gpu * STEP

    def _progress(self, wall: float) -> None:
        hours = self.now / 3600
        print(
            f"hour {hours:5.1f}: {self.waiting:7,} wait, {self.report.placed:9,} placed,"
            f" {self.busy_cpu / self.cpus:5.1%} of the CPUs, {wall:6.0f} s",
            file=sys.stderr,
            flush=True,
        )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(words)
    gc.set_threshold(20_000, 20, 20)  # as the server does
    began = time.monotonic()
    simulation = Simulation(args.jobs, args.nodes, args.seed)
    report = simulation.run()
    wall = time.monotonic() - began
    print(f"{args.jobs:,} jobs of {USERS} users on {args.nodes:,} machines, seed {args.seed}")
    _print_totals(simulation, report, wall)
    _print_waits(report)
    return 0


def _print_totals(simulation: Simulation, report: Report, wall: float) -> None:
    cpu = report.cpu_seconds / (simulation.cpus * max(1.0, report.measured))
    gpu = report.gpu_seconds / (max(1, simulation.gpus) * max(1.0, report.measured))
    lost = report.lost_work / max(1.0, report.cpu_seconds)
    print(f"simulated: {simulation.now / 3600:.1f} hours in {wall:.0f} s")
    print(f"utilisation while jobs arrive: CPU {cpu:.1%}, GPU {gpu:.1%}")
    print(f"decisions: {report.decisions:,}, of them {report.placed:,} places")
    rate = report.decisions / max(0.001, report.planning)
    print(f"planner: {report.planning:.0f} s of CPU, {rate:,.0f} decisions a second,")
    print(
        f"  slowest answer {report.slowest * 1000:.0f} ms; queue at most {report.longest_queue:,}"
    )
    print(f"preemptions: {report.preempted:,}; work lost by them {lost:.2%}")


def _print_waits(report: Report) -> None:
    print(f"{'waiting time, seconds':24} {'jobs':>9} {'p50':>8} {'p95':>8} {'max':>8}")
    for name in reversed(CLASSES):
        _print_wait(name, report.waits[name])
    users = sorted(report.by_user.values(), key=len)
    tenth = max(1, len(users) // 10)
    for first in range(0, len(users), tenth):
        group = users[first : first + tenth]
        jobs = [wait for user in group for wait in user]
        _print_wait(f"users {first + 1} to {first + len(group)}", jobs)


def _print_wait(name: str, waits: list[float]) -> None:
    ordered = sorted(waits) or [0.0]
    p50, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    print(f"{name:24} {len(waits):9,} {p50:8,.0f} {p95:8,.0f} {ordered[-1]:8,.0f}")


def _total(job: WaitingJob) -> tuple[float, int, float]:
    """CPUs, cards and weight of all replicas."""
    asks = [(group.count, group.resources) for group in job.groups]
    return (
        sum(count * ask.cpu for count, ask in asks),
        sum(count * ask.gpu for count, ask in asks),
        sum(count * weight(ask) for count, ask in asks),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
