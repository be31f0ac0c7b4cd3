"""No race lets a third job run: several servers plan at once on one database, plans hold exactly.

The loops' lease is left out on purpose: even servers that all believe they hold it must not place
a job too many. What holds a place is counted inside every write, where nothing can hide.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from paddlecloud.backends.base import Credentials
from paddlecloud.backends.scripted import Script, Scripted
from paddlecloud.db.engine.base import Database, Listener, Tx
from paddlecloud.db.engine.postgres import open_postgres
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import attempts, jobs, snapshots, users
from paddlecloud.db.tables.users import User
from paddlecloud.model.errors import TooMany
from paddlecloud.model.files.snapshot import snapshot_of
from paddlecloud.model.jobs.job import Attempt, JobType, Resources, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.pool import Pool
from paddlecloud.model.policy.quota import FREE
from paddlecloud.scheduler.view import Place, Slot
from paddlecloud.server.bootstrap import forward_notification
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.schedule import Schedule
from paddlecloud.server.schemas.agent import ExitNote, Report, ReportItem
from paddlecloud.server.schemas.jobs import SubmitRequest
from paddlecloud.server.services.agents import reports
from paddlecloud.server.services.jobs import submit as submit_service
from paddlecloud.server.services.placement import apply
from paddlecloud.server.settings import Settings
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore

T = TypeVar("T")
Open = Callable[[], Database]
SERVERS = 4
JOBS = 12
OWNERS = ("ann", "bob")
LIMIT = 2
NO_FILES = snapshot_of([])


class Counted:
    """A database that counts, at the end of every write, the places of each owner."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.most = 0

    def write(self, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return self._db.write(lambda tx: self._looked(tx, work), durable=durable)

    def submit(self, work: Callable[[Tx], T], *, durable: bool = True) -> Future[T]:
        return self._db.submit(lambda tx: self._looked(tx, work), durable=durable)

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        return self._db.subscribe(listener)

    def _looked(self, tx: Tx, work: Callable[[Tx], T]) -> T:
        result = work(tx)
        rows = tx.all(
            "select count(*) from jobs where finished_at is null and pool is not null"
            " group by owner"
        )
        self.most = max([self.most, *(int(row[0]) for row in rows)])
        return result


@contextmanager
def servers(open_one: Open, folder: Path, waiting_jobs: int = 1000) -> Iterator[list[Deps]]:
    """Several servers, each with its own way to the one database."""
    plan = replace(FREE, running_jobs=LIMIT, minutes_a_day=None, waiting_jobs=waiting_jobs)
    settings = Settings(home=folder, team=True, plans={"free": plan}, default_plan="free")
    settings.server_dir.mkdir(parents=True, exist_ok=True)
    backend = Scripted(Script(node="node", cpu=64))
    pool = Pool(name="p", backend="scripted", private=False, job_types=frozenset({JobType.CPU}))
    with ExitStack() as stack:
        opened = []
        for _ in range(SERVERS):
            db = open_one()
            stack.callback(db.close)
            deps = Deps(
                settings=settings,
                db=Counted(db),  # type: ignore[arg-type]  # the rest it passes on
                store=DirectoryStore(settings.store_dir),
                logs=LogStore(settings.store_dir),
                pools={"p": pool},
                backends={"p": backend},
                server_key=b"k" * 32,
                boot=secrets.token_hex(8),
            )
            db.subscribe(partial(forward_notification, deps))
            stack.callback(deps.logs.close)
            opened.append(deps)
        yield opened


def a_request() -> SubmitRequest:
    return msgspec.convert(
        {
            "spec": {"start_cmd": "true", "job_type": "cpu", "snapshot": NO_FILES.id},
            "idempotency_key": secrets.token_hex(16),
        },
        SubmitRequest,
    )


def submit(deps: Deps, owner: str) -> bool:
    request = a_request()
    spec, _ = submit_service.admit(deps, owner, request)
    try:
        deps.db.write(lambda tx: submit_service.accept(tx, deps, owner, request, spec))
    except TooMany:
        return False
    return True


def finish(deps: Deps, attempt: Attempt) -> None:
    """Its only replica runs and ends."""
    (replica,) = attempt.replicas
    ended = ExitNote(cause="exit", log_size=0, exit_code=0, started_at=time.time(), ran=0.01)
    item = ReportItem(replica=replica.id, fence=attempt.fence, exited=ended)
    notes = Report(agent=replica.node, boot="boot", seq=1, items=[item])
    stored = reports.store_logs(deps, replica.node, notes, memoryview(b""))
    deps.db.write(lambda tx: reports.apply(tx, deps, stored), durable=stored.durable)


@pytest.fixture(params=["sqlite", "postgres"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the one database of the test once more."""
    now = datetime.now(UTC)
    if request.param == "sqlite":
        return partial(open_sqlite, tmp_path / "paddlecloud.db", now=now)
    return partial(open_postgres, request.getfixturevalue("postgres_url"), now=now)


def test_never_a_job_too_many_holds_a_place(open_one: Open, tmp_path: Path) -> None:
    with servers(open_one, tmp_path) as each:
        for owner in OWNERS:
            each[0].db.write(partial(_make_user, owner))
        for number in range(JOBS):
            assert submit(each[number % SERVERS], OWNERS[number % len(OWNERS)])
        done = threading.Event()
        with ThreadPoolExecutor(SERVERS * 2) as threads:
            work = [threads.submit(_plan_until, done, deps) for deps in each]
            work += [threads.submit(_finish_until, done, deps) for deps in each]
            _until(lambda: _ended(each[0]) == JOBS, done)
            for one in work:
                one.result()
        most = max(deps.db.most for deps in each)  # type: ignore[attr-defined]
        assert most == LIMIT
        (count,) = each[0].db.read(lambda tx: tx.all("select count(*) from usage"))[0]
        assert count == JOBS


def test_of_many_places_given_out_at_once_exactly_so_many_are_taken(
    open_one: Open, tmp_path: Path
) -> None:
    """Each of 50 planners has seen an empty pool and wants to start another job of one owner."""
    with servers(open_one, tmp_path) as each:
        each[0].db.write(partial(_make_user, "ann"))
        for _ in range(50):
            assert submit(each[0], "ann")
        waiting = each[0].db.read(partial(jobs.waiting_jobs, per_owner=50))
        together = threading.Barrier(50)

        def place(number: int) -> int:
            deps, job = each[number % SERVERS], waiting[number]
            slot = Slot(Role.TRAINER, 0, "node-0", "127.0.0.1", asks=Resources(cpu=1))
            decision = Place(job_id=job.id, pool="p", slots=(slot,))
            together.wait(30)
            return apply.apply(deps, [decision], {job.id: job}, datetime.now(UTC))

        with ThreadPoolExecutor(50) as threads:
            taken = sum(threads.map(place, range(50)))
        assert taken == LIMIT
        assert max(deps.db.most for deps in each) == LIMIT  # type: ignore[attr-defined]


def test_of_many_submits_at_once_exactly_so_many_may_wait(open_one: Open, tmp_path: Path) -> None:
    with servers(open_one, tmp_path, waiting_jobs=10) as each:
        each[0].db.write(partial(_make_user, "ann"))
        with ThreadPoolExecutor(50) as threads:
            calls = [partial(submit, each[number % SERVERS], "ann") for number in range(50)]
            taken = sum(threads.map(lambda call: call(), calls))
        assert taken == 10
        assert each[0].db.read(lambda tx: jobs.count_waiting(tx, "ann")) == 10


def test_no_user_has_too_many_waiting_jobs_while_others_return_to_the_queue(
    open_one: Open, tmp_path: Path
) -> None:
    """Two users submit to every server at once, while jobs that had a slot wait again."""
    with servers(open_one, tmp_path, waiting_jobs=20) as each:
        for owner in OWNERS:
            each[0].db.write(partial(_make_user, owner))
        for _ in range(LIMIT):
            assert submit(each[0], "ann")
        Schedule().tick(each[0], datetime.now(UTC))
        held = each[0].db.read(attempts.live_attempts)
        assert len(held) == LIMIT
        with ThreadPoolExecutor(16) as threads:
            lost = threads.submit(apply.start, _refusing(each[1]), held)
            calls = [partial(submit, each[n % SERVERS], OWNERS[n // 7 % 2]) for n in range(120)]
            list(threads.map(lambda call: call(), calls))
            assert lost.result() == 0
        for owner in OWNERS:
            count = partial(jobs.count_waiting, owner=owner)
            waits = each[0].db.read(count)
            again = LIMIT if owner == "ann" else 0
            assert 20 <= waits <= 20 + again, "only a job that waits again may be one too many"
            assert not submit(each[2], owner)


def _refusing(deps: Deps) -> Deps:
    """The same server, when its pool will not have a job after all."""

    class Refusing(Scripted):
        def start(self, attempt: Attempt, credentials: Credentials | None) -> None:
            raise OSError("no room")

    return replace(deps, backends={"p": Refusing(Script(node="node", cpu=64))})


def _make_user(name: str, tx: Tx) -> None:
    now = datetime.now(UTC)
    users.create_user(tx, User(id=name), now)
    snapshots.put_snapshot(tx, name, NO_FILES, now)


def _plan_until(done: threading.Event, deps: Deps) -> None:
    schedule = Schedule()
    while not done.is_set():
        schedule.tick(deps, datetime.now(UTC))


def _finish_until(done: threading.Event, deps: Deps) -> None:
    while not done.is_set():
        for attempt in deps.db.read(attempts.live_attempts):
            finish(deps, attempt)
        done.wait(0.005)


def _ended(deps: Deps) -> int:
    return deps.db.read(jobs.count_by_state).get(JobState.SUCCESS, 0)


def _until(condition: Callable[[], bool], done: threading.Event) -> None:
    deadline = time.monotonic() + 60
    try:
        while not condition():
            assert time.monotonic() < deadline, "the jobs did not end"
            time.sleep(0.02)
    finally:
        done.set()
