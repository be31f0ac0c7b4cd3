"""What one event costs the schedule loop of a server: a real database, a long queue, one end.

The server's own loop is called by hand with a scripted pool, so what is measured is all that it
does about one job that ended: reading, planning, and writing the next one's place.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.row import Row
from paddlecloud.backends.scripted import Script, Scripted
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables import users as tables_users
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.jobs.job import (
    ExitCause,
    ExitRecord,
    Job,
    JobSpec,
    Reason,
    ReplicaGroup,
    ReplicaState,
    Resources,
    Role,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Pool
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.schedule import Schedule
from paddlecloud.server.services.jobs.settle import settle
from paddlecloud.server.settings import Settings
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore

WAITING = 20_000
ENDS = 200
CPUS = 4
AT_ONCE = 1000


def ticks() -> Iterator[Row]:
    """CPU time of the loop's thread, and what the clock says; of a private and of a team's size."""
    for users, machines in ((1, 1), (200, 1000)):
        with tempfile.TemporaryDirectory() as home:
            yield _react(Path(home), users, machines)


def _react(home: Path, users: int, machines: int) -> Row:
    deps, schedule = _server(home, machines), Schedule()
    try:
        _accept(deps, users, WAITING + CPUS * machines)
        while deps.db.read(lambda tx: jobs.newcomers(tx, 1)):
            schedule.tick(deps, deps.clock())
        gc.collect()
        gc.freeze()  # as the server does with what stays
        spent = list(_ends(deps, schedule))
    finally:
        gc.unfreeze()
        deps.db.close()
        deps.logs.close()
    cpu, took = (statistics.median(each) * 1000 for each in zip(*spent, strict=True))
    return Row(
        what=f"an end, {WAITING:,} wait, {users} users, {machines:,} machines (CPU)",
        measured=f"{cpu:.1f} ms ({took:.1f})",
        goal="5 ms",
        reached=cpu <= 5,
    )


def _server(home: Path, machines: int) -> Deps:
    settings = Settings(home=home)
    (home / "server").mkdir()
    deps = Deps(
        settings=settings,
        db=open_sqlite(home / "server" / "paddlecloud.db", now=datetime.now(UTC)),
        store=DirectoryStore(settings.store_dir),
        logs=LogStore(settings.store_dir),
        pools={"local": Pool(name="local", backend="scripted", private=True)},
        backends={"local": Scripted(Script(nodes=machines, cpu=CPUS))},
        server_key=b"k" * 32,
        boot="bench",
    )
    deps.db.subscribe(deps.hub.notify)
    return deps


def _accept(deps: Deps, users: int, count: int) -> None:
    now = deps.clock()
    names = [f"user-{number}" for number in range(users)]

    def store(tx: Tx, first: int) -> None:
        for number in range(first, min(first + AT_ONCE, count)):
            job = _job(number, names[number % users], now)
            jobs.insert_accepted(tx, job, now, Reason(code=jobs.NOT_PLANNED_YET))

    def create(tx: Tx) -> None:
        for name in names:
            tables_users.create_user(tx, User(id=name, role=UserRole.USER), now)

    deps.db.write(create)
    for first in range(0, count, AT_ONCE):
        deps.db.write(partial(store, first=first))


def _job(number: int, owner: str, now: datetime) -> Job:
    ask = Resources(cpu=1.0, memory=0, gpu=0)
    groups = (ReplicaGroup(role=Role.TRAINER, count=1, resources=ask),)
    return Job(
        id=f"job-{number:032x}",
        number=0,
        owner=owner,
        spec=JobSpec(start_cmd="true", groups=groups),
        state=JobState.SUBMIT,
        version=1,
        created_at=now,
        waiting_since=now,
    )


def _ends(deps: Deps, schedule: Schedule) -> Iterator[tuple[float, float]]:
    running: deque[str] = deque()
    for _ in range(ENDS):
        if not running:
            running += [each.job_id for each in deps.db.read(attempts.live_attempts)]
        deps.db.write(partial(_end, deps=deps, job_id=running.popleft()))
        cpu, began = time.thread_time(), time.perf_counter()
        schedule.planner.plan_all(deps, deps.clock())
        yield time.thread_time() - cpu, time.perf_counter() - began


def _end(tx: Tx, deps: Deps, job_id: str) -> None:
    """Its replicas exit with 0, and what follows from that."""
    job, now = jobs.get_job(tx, job_id), deps.clock()
    attempt = attempts.get_attempt(tx, job_id, 1)
    assert job is not None and attempt is not None
    done = ExitRecord(cause=ExitCause.EXIT, exit_code=0, started_at=now, finished_at=now)
    for replica in attempt.replicas:
        over = replace(replica, state=ReplicaState.EXITED, exit=done, started_at=now)
        attempts.update_replica(tx, over)
    settle(tx, deps, job, now=now)
