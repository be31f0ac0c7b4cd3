"""A server that dies at any line between placing an attempt and having started it leaves nothing
that the next one does not find: what is wanted runs once, and what is not wanted does not run.

On every backend, and with one of them on every database; who joins `MAKERS` is tried here too.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from paddlecloud.backends.base import AgentState, Backend, CanReap, Handle, attempt_name
from paddlecloud.backends.scripted import Scripted
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, attempts, jobs, machines
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.machines import Machine
from paddlecloud.db.tables.orders import Want, orders_since
from paddlecloud.model.errors import ConfigError, Unreachable
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    JobType,
    ReplicaState,
    Resources,
)
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.model.policy.pool import Pool
from paddlecloud.scheduler.planner import Planner
from paddlecloud.server.bootstrap import keep_pools
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.jobs.kill import kill
from paddlecloud.server.services.placement import apply, planner_input, release
from paddlecloud.server.settings import PoolSettings, Settings
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore
from tests.contract.test_backends import MAKERS
from tests.integration.server.world import eventually
from tests.unit.db.values import ENGINES, NOW, opened, waiting

POOL = "local"
ANN = Caller(ak="", user_id="ann", kind="user", role="user")
ENOUGH = 100
"""Lines; there are far fewer between the two ends."""


class Died(BaseException):
    """The process is no more."""


@dataclass
class Death:
    """Comes before the line that these functions would run next after so many."""

    codes: frozenset[CodeType]
    left: int
    came: bool = False

    def trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        if frame.f_code not in self.codes:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                self.came = True
                raise Died
        return self.trace


@dataclass
class Server:
    """Everything but HTTP; `again` is its next start."""

    deps: Deps
    make: Callable[[], Backend]

    def again(self) -> Server:
        fresh = replace(self.deps, backends={POOL: self.make()}, boot=secrets.token_hex(8))
        return Server(fresh, self.make)

    @property
    def backend(self) -> Backend:
        return self.deps.backends[POOL]

    def submit(self) -> str:
        return self.deps.db.write(waiting).id

    def plan(self) -> None:
        view, known = planner_input.read_view(self.deps, NOW)
        apply.apply(self.deps, Planner.of(view).decide(NOW), known, NOW)

    def plan_until(self, lines: int) -> bool:
        """Whether it died on the way."""
        begin = vars(type(self.backend))["start"]
        codes = (apply.apply.__code__, apply.start.__code__, begin.__code__)
        death, before = Death(frozenset(codes), lines), sys.gettrace()
        sys.settrace(death.trace)
        try:
            with suppress(Died):
                self.plan()
        finally:
            sys.settrace(before)
        return death.came

    def watch(self) -> None:
        Watch().tick(self.deps, NOW)

    def kill(self, job_id: str) -> None:
        kill(self.deps, ANN, job_id)

    def state(self, job_id: str) -> JobState:
        job = self.deps.db.read(lambda tx: jobs.get_job(tx, job_id))
        assert job is not None
        return job.state

    def attempt(self, job_id: str) -> Attempt | None:
        return self.deps.db.read(lambda tx: attempts.get_attempt(tx, job_id, 1))

    def obey(self, job_id: str) -> None:
        """Play its agent, where one is to be made to exist: end what is to end."""
        attempt = self.attempt(job_id)
        assert attempt is not None
        if self.backend.status(release.handle_of(self.backend, attempt)).state is AgentState.GONE:
            return
        node = attempt.replicas[0].node
        told = self.deps.db.read(lambda tx: orders_since(tx, node, 0))
        assert [order.want for order in told if order.job_id == job_id] == [Want.STOP]
        ended = ExitRecord(cause=ExitCause.STOPPED)
        over = replace(attempt.replicas[0], state=ReplicaState.EXITED, exit=ended)
        self.deps.db.write(lambda tx: attempts.update_replica(tx, over))

    def end(self, job_id: str) -> None:
        if self.state(job_id) is not JobState.KILLING:
            self.kill(job_id)
        if self.attempt(job_id) is not None:
            self.obey(job_id)
        self.watch()
        assert self.state(job_id) is JobState.KILLED


@contextmanager
def a_server(engine: str, kind: str, folder: Path) -> Iterator[Server]:
    settings = Settings(home=folder)
    types = frozenset({JobType.CPU})
    pool = Pool(name=POOL, backend=kind, private=True, remote=True, job_types=types)
    settings.server_dir.mkdir(parents=True, exist_ok=True)
    with opened(engine, folder) as db, MAKERS[kind](folder) as make:
        deps = Deps(
            settings=settings,
            db=db,
            store=DirectoryStore(settings.store_dir),
            logs=LogStore(settings.store_dir),
            pools={POOL: pool},
            backends={POOL: make()},
            server_key=b"k" * 32,
            boot=secrets.token_hex(8),
        )
        if kind == "machines":
            db.write(_joined_machine)
        try:
            yield Server(deps, make)
        finally:
            deps.logs.close()


def _joined_machine(tx: Tx) -> None:
    """A machine that joined and stays in contact."""
    machines.put(tx, Machine(name="m", pool=POOL, labels={}, joined_at=NOW))
    has = Resources(cpu=1000, memory=2**40)
    agents.upsert_agent(
        tx,
        Agent(
            id="m",
            pool=POOL,
            boot="b",
            version="1",
            host="127.0.0.1",
            capacity=has,
            enforces={},
            seen_at=datetime.now(UTC),
        ),
    )


PLACES = [(kind, "sqlite") for kind in MAKERS] + [("scripted", each) for each in ENGINES]


@pytest.fixture(params=sorted(set(PLACES)), ids="-".join)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    kind, engine = request.param
    with a_server(engine, kind, tmp_path) as one:
        yield one


@pytest.fixture(params=sorted(ENGINES))
def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with a_server(request.param, "scripted", tmp_path) as one:
        yield one


def existing(server: Server) -> list[str]:
    """What can be listed at a place where that can be done."""
    backend = server.backend
    return [each["name"] for each in backend.existing()] if isinstance(backend, CanReap) else []


def test_whoever_dies_at_any_line_started_it_once_in_the_end(server: Server) -> None:
    for lines in range(ENOUGH):
        job_id = server.submit()
        died = server.plan_until(lines)
        nobody_saw_it = server.attempt(job_id) is None
        server = server.again()
        server.watch()
        if nobody_saw_it:
            server.plan()
        attempt = server.attempt(job_id)
        assert attempt is not None
        assert attempt.handle == server.backend.handle(attempt)
        up = partial(server.backend.status, attempt.handle)
        eventually(lambda status=up: status().state is AgentState.UP)  # type: ignore[misc]
        if isinstance(server.backend, Scripted):
            assert server.backend.started == {f"{job_id}-1": 1}
        assert server.deps.db.read(lambda tx: len(attempts.live_attempts(tx))) == 1
        server.end(job_id)
        assert existing(server) == []
        if not died:
            break
    assert not died
    assert lines > 8, "it died at every line"


def test_a_job_that_is_killed_meanwhile_leaves_nothing(server: Server) -> None:
    for lines in range(ENOUGH):
        job_id = server.submit()
        died = server.plan_until(lines)
        server = server.again()
        server.kill(job_id)
        began = existing(server)
        server.watch()
        if isinstance(server.backend, Scripted) and not began:
            assert server.state(job_id) is JobState.KILLED, "nothing is made only to be ended"
        elif server.attempt(job_id) is not None:
            server.obey(job_id)
            server.watch()
        assert (server.state(job_id), existing(server)) == (JobState.KILLED, [])
        assert server.deps.db.read(attempts.unreleased) == []
        if not died:
            break
    assert not died


def test_a_start_that_arrives_after_its_stop_is_found(scripted: Server) -> None:
    """Somebody was slow: the attempt is over and let go of when its start gets through."""
    job_id = scripted.submit()
    scripted.plan()
    attempt = scripted.attempt(job_id)
    assert attempt is not None
    scripted.end(job_id)
    assert existing(scripted) == []
    scripted.backend.start(attempt, None)
    assert existing(scripted) == [f"{job_id}-1"]
    scripted.watch()
    assert existing(scripted) == []


def test_one_that_cannot_be_stopped_keeps_no_other_from_it(
    scripted: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = []
    for _ in range(2):
        job_id = scripted.submit()
        scripted.plan()
        attempt = scripted.attempt(job_id)
        assert attempt is not None
        late.append(attempt)
        scripted.end(job_id)
    for attempt in late:
        scripted.backend.start(attempt, None)
    stuck, stop = existing(scripted)[0], scripted.backend.stop

    def stop_others(handle: Handle, grace: timedelta) -> None:
        if handle["name"] == stuck:
            raise Unreachable("server_unreachable", url="x", reason="y")
        stop(handle, grace)

    monkeypatch.setattr(scripted.backend, "stop", stop_others)
    assert release.reap(scripted.deps) == 1
    assert existing(scripted) == [stuck]
    monkeypatch.undo()
    assert release.reap(scripted.deps) == 1


def test_what_runs_is_not_reaped(scripted: Server) -> None:
    job_id = scripted.submit()
    scripted.plan()
    for _ in range(3):
        assert release.reap(scripted.deps) == 0
        scripted.watch()
    assert existing(scripted) == [f"{job_id}-1"]
    scripted.end(job_id)


def test_an_attempt_of_before_is_found_by_what_it_is(scripted: Server) -> None:
    """An older server stored the handle after the start, and died in between."""
    job_id = scripted.submit()
    scripted.plan()
    scripted.deps.db.write(lambda tx: tx.execute("update attempts set handle = null"))
    scripted = scripted.again()
    scripted.watch()
    assert existing(scripted) == [f"{job_id}-1"]
    scripted.end(job_id)
    assert existing(scripted) == []


def test_a_place_that_does_not_answer_keeps_nobody_else_waiting(
    scripted: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the other jobs of its pool nor what else the watch has to do."""
    first, second = scripted.submit(), scripted.submit()
    scripted.plan()
    backend = scripted.backend

    def away(*_: object) -> Any:
        raise Unreachable("server_unreachable", url="x", reason="y")

    for name in ("status", "existing"):
        monkeypatch.setattr(backend, name, away)
    scripted.kill(first)
    record = ExitRecord(cause=ExitCause.EXIT, exit_code=0)

    def exited(tx: Tx) -> None:
        attempt = attempts.get_attempt(tx, second, 1)
        assert attempt is not None
        over = replace(attempt.replicas[0], state=ReplicaState.EXITED, exit=record)
        attempts.update_replica(tx, over)

    scripted.deps.db.write(exited)
    scripted.watch()
    assert scripted.state(second) is JobState.SUCCESS
    assert scripted.state(first) is JobState.KILLING
    monkeypatch.undo()
    scripted.end(first)
    assert existing(scripted) == []


def test_a_pool_in_which_jobs_run_may_not_leave_the_settings(scripted: Server) -> None:
    db, here = scripted.deps.db, scripted.deps.settings
    elsewhere = replace(here, pools=(PoolSettings(name="other"),))
    keep_pools(elsewhere, db)
    job_ids = [scripted.submit() for _ in range(2)]
    scripted.plan()
    keep_pools(here, db)
    with pytest.raises(ConfigError) as caught:
        keep_pools(elsewhere, db)
    assert caught.value.params == {"pool": POOL, "jobs": ", ".join(job_ids)}
    for job_id in job_ids:
        scripted.end(job_id)
    keep_pools(elsewhere, db)


def test_what_cannot_be_stopped_without_its_pool_is_named(
    scripted: Server, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = scripted.submit()
    scripted.plan()
    attempt = scripted.attempt(job_id)
    assert attempt is not None
    scripted.deps.db.write(lambda tx: attempts.end_attempt(tx, job_id, 1, NOW, Event.BROKE))
    settings = replace(scripted.deps.settings, pools=(PoolSettings(name="other"),))
    gone = replace(scripted.deps, settings=settings, pools={}, backends={})
    assert release.release_ended(gone) == 1
    assert attempt_name(job_id, 1) in caplog.text
