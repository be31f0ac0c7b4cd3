"""Every backend keeps the promises of `backends/base.py`, found by walking the package.

A new backend joins by its file; only how to make one for a test has to be added to `MAKERS`.
"""

from __future__ import annotations

import json
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paddlecloud.backends
from paddlecloud.backends.base import (
    NAME,
    AgentState,
    Backend,
    CanReap,
    JoinedByAgents,
    ServerContext,
    attempt_name,
    create,
)
from paddlecloud.backends.local import Local
from paddlecloud.backends.machines import Machines
from paddlecloud.backends.scripted import Script, Scripted
from paddlecloud.model.errors import ConfigError, Refused, Retry
from paddlecloud.model.policy.pool import ElasticLimits, elastic_nodes
from paddlecloud.testing import a_job, an_attempt
from tests.integration.server.process import end_agents
from tests.integration.server.world import eventually

KINDS = [found.name for found in pkgutil.iter_modules(paddlecloud.backends.__path__)]
AT_ONCE = 8.0
"""Seconds; no promise of "never waits" may take a network's patience."""


@contextmanager
def scripted(_tmp: Path) -> Iterator[Callable[[], Backend]]:
    one = create("scripted", Script(cpu=2), ServerContext())
    yield lambda: one


@contextmanager
def local(tmp: Path) -> Iterator[Callable[[], Backend]]:
    """With a real agent, whose server never comes."""
    config = tmp / "agent" / "agent.json"
    config.parent.mkdir()
    endpoint = str(tmp / "server.json")
    keys = {"agent_id": "local", "ak": "a" * 32, "sk": "s" * 64, "endpoint_file": endpoint}
    config.write_text(json.dumps(keys))
    made: list[Local] = []

    def make() -> Backend:
        backend = create("local", None, ServerContext(node="local", agent_config=config))
        assert isinstance(backend, Local)
        made.append(backend)
        return backend

    try:
        yield make
    finally:
        children = [backend._child for backend in made if backend._child is not None]
        for child in children:
            child.kill()
            child.wait(60)
        end_agents(config)


@contextmanager
def elastic(_tmp: Path) -> Iterator[Callable[[], Backend]]:
    """A place that makes machines on demand, whose agents join."""
    one = create("scripted", Script(cpu=2, nodes=3, elastic=True, join=True), ServerContext())
    yield lambda: one


@contextmanager
def machines(_tmp: Path) -> Iterator[Callable[[], Backend]]:
    yield lambda: create("machines", None, ServerContext())


MAKERS = {"scripted": scripted, "local": local, "machines": machines}


@pytest.fixture(params=[*(kind for kind in KINDS if kind != "base"), "elastic"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    """Makes the backend; made twice it is the same place, as after a restart of the server."""
    assert request.param in {*MAKERS, "elastic"}, (
        f"say in MAKERS how to make {request.param} for a test"
    )
    with {**MAKERS, "elastic": elastic}[request.param](tmp_path) as maker:
        yield maker


@pytest.fixture
def backend(make: Callable[[], Backend]) -> Backend:
    return make()


def test_the_package_was_walked() -> None:
    assert {"base", "local", "scripted"} <= set(KINDS)


def test_capacity_names_what_is_there_and_never_waits(backend: Backend) -> None:
    began = time.monotonic()
    found = backend.capacity("")
    assert time.monotonic() - began < AT_ONCE
    nodes = elastic_nodes("pool", found) if isinstance(found, ElasticLimits) else found
    assert nodes or isinstance(backend, JoinedByAgents)
    assert len({node.id for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.total.cpu > 0
        assert node.total.memory > 0
        assert node.total.gpu >= 0
        assert node.host


def test_a_handle_is_known_before_anything_is_started(make: Callable[[], Backend]) -> None:
    attempt = an_attempt()
    handle = make().handle(attempt)
    assert handle[NAME] == f"{attempt.job_id}-1"
    assert make().status(handle).state is not AgentState.UP
    backend = make()
    backend.start(attempt, None)
    assert make().handle(attempt) == handle
    eventually(lambda: backend.status(handle).state is AgentState.UP)


def test_no_two_attempts_have_one_handle(backend: Backend) -> None:
    job = a_job()
    several = [an_attempt(job), an_attempt(job, number=2), an_attempt(a_job())]
    assert len({json.dumps(dict(backend.handle(each))) for each in several}) == 3


@given(
    job_id=st.one_of(
        st.uuids().map(lambda id_: f"job-{id_.hex}"), st.from_regex(r"\Aj[a-z-]{0,90}z\Z")
    ),
    number=st.integers(1, 10**6),
)
def test_names_are_labels_of_dns(job_id: str, number: int) -> None:
    name = attempt_name(job_id, number)
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name), name
    assert attempt_name(job_id, number + 1) != name


def test_a_plug_in_of_before_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "their_cloud-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-cloud\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[paddlecloud.backends]\nold = their_cloud:Old\nwhole = their_cloud:Whole\n"
    )
    (tmp_path / "their_cloud.py").write_text(
        "from paddlecloud.backends.scripted import Scripted as Whole\n"
        "class Old:\n"
        "    def __init__(self, settings): pass\n"
        "    def capacity(self): return ()\n"
        "    start = status = capacity\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(create("whole", None, ServerContext()), Scripted)
    with pytest.raises(ConfigError, match="old lacks the method settings, needs_cred"):
        create("old", None, ServerContext())


def test_a_handle_is_small_and_can_be_stored(backend: Backend) -> None:
    handle = backend.handle(an_attempt())
    assert json.loads(json.dumps(dict(handle))) == handle
    assert all(isinstance(value, str) for value in handle.values())
    assert len(json.dumps(dict(handle))) < 4096


def test_start_returns_at_once_and_what_it_started_comes_up(backend: Backend) -> None:
    began, attempt = time.monotonic(), an_attempt()
    backend.start(attempt, None)
    handle = backend.handle(attempt)
    assert time.monotonic() - began < AT_ONCE
    assert backend.status(handle).state in (AgentState.STARTING, AgentState.UP)
    eventually(lambda: backend.status(handle).state is AgentState.UP)


def test_starting_twice_is_starting_once(make: Callable[[], Backend]) -> None:
    first, attempt = make(), an_attempt()
    handle = first.handle(attempt)
    first.start(attempt, None)
    eventually(lambda: first.status(handle).state is AgentState.UP)
    first.start(attempt, None)
    again = make()
    again.start(attempt, None)
    assert again.status(handle).state is AgentState.UP


def test_an_unknown_handle_is_gone(backend: Backend) -> None:
    for handle in ({}, {"node": "elsewhere"}, {NAME: "job-1-1"}, {"machine": "i-1"}):
        began = time.monotonic()
        assert backend.status(handle).state is AgentState.GONE
        assert time.monotonic() - began < AT_ONCE


def test_stopping_what_is_gone_is_done(backend: Backend) -> None:
    for unknown in ({}, {"node": "elsewhere"}, {NAME: "job-1-1"}):
        backend.stop(unknown, timedelta(seconds=1))
    attempt = an_attempt()
    backend.start(attempt, None)
    for _ in range(2):
        backend.stop(backend.handle(attempt), timedelta(seconds=1))


def test_what_was_started_and_not_stopped_is_listed(make: Callable[[], Backend]) -> None:
    """By those who can: the names are enough to stop it."""
    backend, (first, second) = make(), (an_attempt(), an_attempt())
    for attempt in (first, second):
        backend.start(attempt, None)
    again = make()
    if isinstance(again, CanReap):
        names = {handle[NAME] for handle in again.existing()}
        assert names == {again.handle(attempt)[NAME] for attempt in (first, second)}
        again.stop({NAME: again.handle(first)[NAME]}, timedelta(0))
        assert [handle[NAME] for handle in again.existing()] == [again.handle(second)[NAME]]
    else:
        kinds = Local | Machines
        assert isinstance(again, kinds), "only one whose agents are nobody's alone may do without"


@pytest.mark.parametrize("kind", ["nowhere", "../local", "", "os.path"])
def test_a_backend_that_does_not_exist_is_told(kind: str) -> None:
    with pytest.raises(ConfigError, match="unknown backend"):
        create(kind, None, ServerContext())


def test_eight_threads_start_one_agent(tmp_path: Path) -> None:
    with local(tmp_path) as make:
        backends = [make() for _ in range(8)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda backend: backend.start(an_attempt(), None), backends))
        handle = backends[0].handle(an_attempt())
        eventually(lambda: backends[0].status(handle).state is AgentState.UP)
        children = [b._child for b in backends if isinstance(b, Local) and b._child is not None]
        eventually(lambda: sum(child.poll() is None for child in children) == 1)
        assert {child.poll() for child in children} <= {None, 0}


def test_a_dead_agent_is_started_again(tmp_path: Path) -> None:
    with local(tmp_path) as make:
        backend, attempt = make(), an_attempt()
        backend.start(attempt, None)
        handle = backend.handle(attempt)
        eventually(lambda: backend.status(handle).state is AgentState.UP)
        end_agents(tmp_path / "agent" / "agent.json")
        assert isinstance(backend, Local)
        assert backend._child is not None
        backend._child.wait(60)
        assert backend.status(handle).state is AgentState.STARTING
        backend.start(attempt, None)
        eventually(lambda: backend.status(handle).state is AgentState.UP)


def test_the_scripted_one_does_what_it_is_told() -> None:
    backend = Scripted(Script(start="refuse", nodes=2, gpu=3))
    nodes = backend.capacity("")
    assert isinstance(nodes, tuple)
    assert [(node.id, node.total.gpu) for node in nodes] == [
        ("scripted-0", 3),
        ("scripted-1", 3),
    ]
    with pytest.raises(Refused, match="refused"):
        backend.start(an_attempt(), None)
    backend.script.start = "later"
    with pytest.raises(Retry, match="cannot start"):
        backend.start(an_attempt(), None)
    backend.script.start = "ok"
    attempt = an_attempt()
    backend.start(attempt, None)
    backend.script.agents = "gone"
    assert backend.status(backend.handle(attempt)).state is AgentState.GONE
