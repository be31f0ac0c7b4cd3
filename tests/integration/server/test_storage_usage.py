"""What jobs have stored is counted beside all else: the watch loop waits for no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud.backends.base import NAME
from paddlecloud.db.tables import usage
from paddlecloud.model.errors import Retry
from paddlecloud.server.bootstrap import open_deps
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.files import job_files, storage_usage
from paddlecloud.server.services.placement import release
from paddlecloud.server.settings import Settings
from paddlecloud.stores import create
from paddlecloud.stores.base import Stat
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.s3.store import S3Store
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.silent_proxy import Valve
from tests.integration.server.world import World

MODEL = b"m" * 2000
Open = Callable[[], World]


def a_team(settings: Settings) -> Settings:
    return replace(settings, team=True)


@pytest.fixture
def far(
    make_world: MakeWorld,
    valve: Valve,
    s3_settings: dict[str, str],
) -> Iterator[Open]:
    """Starts a server whose store is a bucket behind the valve; a second time, the next one."""
    behind = create("s3", {**s3_settings, "endpoint": f"http://127.0.0.1:{valve.port}"})
    assert isinstance(behind, S3Store)

    def opened(place: Path) -> LayeredStore:
        return LayeredStore(DirectoryStore(place), behind)

    yield lambda: make_world(change=a_team, store=opened)
    behind.close()


def used(world: World) -> int:
    """Bytes of outputs and logs, as far as they were counted."""
    of = world.deps.db.read
    return of(lambda tx: usage.stored_bytes(tx, "someone") - usage.files_bytes(tx, "someone"))


def orphan(world: World) -> None:
    """Something that runs in the pool and of which no row tells."""
    world.backends["local"].started["nobody-1"] = 1


@pytest.mark.slow
def test_no_tick_of_the_watch_asks_a_silent_store(
    far: Open, valve: Valve, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = far()
    ended, order = world.placed()
    world.agent.start(order)
    assert world.agent.upload(order, "model", MODEL).status == 200
    world.agent.run(order, b"log\n")
    world.release()
    assert used(world) == 0
    again, order = world.placed(max_retries=1)
    valve.silent = True
    world.agent.start(order)
    world.agent.log(order, 0, b"boom\n")
    world.agent.exit(order, 101, log_size=5)
    job_files.set_logs_aside(world.deps, world.job(again))
    Watch().tick(world.deps, world.clock())
    assert world.agent.order(again, "forget")["replica"] == order["replica"]
    assert valve.asked == 0
    assert isinstance(world.deps.store, LayeredStore)
    with monkeypatch.context() as silent:
        silent.setattr(world.deps.store.behind.client, "_timeouts", (10.0, 0.3))
        storage_usage.count(world.deps, world.clock())
    assert valve.asked > 0
    assert used(world) == 0
    valve.recover()
    world.close()

    world = far()
    storage_usage.count(world.deps, world.clock())
    assert used(world) == len(MODEL) + len(b"log\nboom\n")
    assert world.deps.db.read(usage.to_count) == []
    assert world.job(ended).final


class Broken(DirectoryStore):
    """A store in which some files cannot be listed, and whose disk keeps nothing for sure."""

    unlisted = "nothing"
    fault: Exception = Retry("store_failed", place="here", detail="")
    flushes = True

    def list(self, prefix: str = "") -> Iterator[Stat]:
        if self.unlisted in prefix:
            raise self.fault
        return super().list(prefix)

    def flush(self) -> None:
        if not self.flushes:
            raise OSError("the disk")


def broken(world: World) -> Broken:
    assert isinstance(world.deps.store, Broken)
    return world.deps.store


@pytest.mark.parametrize("fault", [Broken.fault, ValueError("an odd time")])
def test_one_job_that_cannot_be_counted_keeps_no_other_from_it(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(Broken, "fault", fault)
    world = make_world(change=a_team, store=Broken)
    for number in range(3):
        job_id, order = world.placed()
        world.agent.run(order, b"log\n")
        if number == 0:
            broken(world).unlisted = job_id
    assert world.release() == 3
    storage_usage.count(world.deps, world.clock())
    assert used(world) == 2 * len(b"log\n")
    broken(world).unlisted = "nothing"
    storage_usage.count(world.deps, world.clock())
    assert used(world) == 3 * len(b"log\n")


def test_an_attempt_that_ends_meanwhile_is_counted_for(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(change=a_team, store=Broken)
    job_id, order = world.placed(max_retries=1)
    world.agent.start(order)
    world.agent.exit(order, 101)
    world.release()
    listed = broken(world).list

    def ends(prefix: str = "") -> Iterator[Stat]:
        found = list(listed(prefix))
        monkeypatch.undo()
        world.clock.move(seconds=60)
        world.plan()
        world.agent.run(world.agent.order(job_id), b"log\n")
        world.release()
        return iter(found)

    monkeypatch.setattr(broken(world), "list", ends)
    storage_usage.count(world.deps, world.clock())
    assert used(world) == 0
    storage_usage.count(world.deps, world.clock())
    assert used(world) == len(b"log\n")


def test_machines_that_nobody_knows_of_are_stopped_while_nothing_can_be_let_go(
    make_world: MakeWorld,
) -> None:
    world = make_world(change=a_team, store=Broken)
    _, order = world.placed()
    world.agent.run(order)
    broken(world).flushes = False
    orphan(world)
    with pytest.raises(OSError, match="the disk"):
        Watch().tick(world.deps, world.clock())
    assert "nobody-1" not in [handle[NAME] for handle in world.backends["local"].existing()]
    broken(world).flushes = True
    assert release.release_ended(world.deps) == 1


def with_limits(settings: Settings) -> Settings:
    return replace(settings, default_plan="free")


def start(settings: Settings) -> None:
    """And end: as a server does that has no machine of its own."""
    deps = open_deps(replace(settings, replica=replace(settings.replica, agent=False)))
    deps.db.close()
    deps.logs.close()


def test_what_was_stored_before_there_were_limits_counts(make_world: MakeWorld) -> None:
    world = make_world()
    job_id, order = world.placed(max_retries=1)
    world.agent.start(order)
    assert world.agent.upload(order, "model", MODEL).status == 200
    world.agent.exit(order)
    running, _ = world.placed()
    world.release()
    unlimited = world.deps.settings
    world.close()
    start(unlimited)
    start(with_limits(unlimited))

    world = make_world(change=with_limits)
    assert world.deps.db.read(usage.to_count) == [(job_id, 1)], "what runs is counted at its end"
    storage_usage.count(world.deps, world.clock())
    assert used(world) == len(MODEL)
    world.close()
    start(with_limits(unlimited))

    world = make_world(change=with_limits)
    assert world.deps.db.read(usage.to_count) == [], "it was counted"
    assert not world.job(running).final
    world.close()
    start(unlimited)
    start(with_limits(unlimited))
    world = make_world(change=with_limits)
    assert world.deps.db.read(usage.to_count) == [(job_id, 1)], "who knows what came meanwhile"
