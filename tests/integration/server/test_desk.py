"""What a large server remembers between two rounds agrees with the database, or is forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from paddlecloud.db.engine.base import EVERYTHING, Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.job import NOTHING, Resources
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops import schedule_cache
from paddlecloud.server.loops.schedule_cache import Desk
from paddlecloud.server.services.placement import apply
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World

MACHINES = {"local": {"node": "node", "nodes": "3", "cpu": "2"}}


@pytest.fixture
def large(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three machines count as many."""
    monkeypatch.setattr(schedule_cache, "MANY_MACHINES", 2)
    return make_world(pools=MACHINES)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that everything was read."""
    found: list[object] = []
    read = apply.read_view

    def noted(deps: Deps, now: Any, window: int | None) -> Any:
        found.append(window)
        return read(deps, now, window)

    monkeypatch.setattr(apply, "read_view", noted)
    return found


def end(world: World, job_id: str) -> None:
    """Its replicas exit with 0, as their agents would say."""
    job = world.job(job_id)
    attempt = world.deps.db.read(lambda tx: attempts.get_attempt(tx, job_id, job.attempt))
    assert attempt is not None
    for replica in attempt.replicas:
        agent = world.agent_of(replica.node)
        agent.run(agent.order(job_id))


def places(world: World, ids: list[str]) -> list[str | None]:
    return [world.job(job_id).pool for job_id in ids]


def test_a_small_server_remembers_nothing(world: World) -> None:
    world.submit()
    world.plan()
    assert not world.schedule.desk.wanted(world.deps, world.clock())


def test_events_cost_no_second_look_at_everything(large: World, readings: list[object]) -> None:
    ids = [large.submit() for _ in range(8)]
    large.plan()
    assert places(large, ids) == ["local"] * 6 + [None] * 2
    assert {large.job(job_id).state for job_id in ids[6:]} == {"queue"}
    end(large, ids[0])
    large.plan()
    late = large.submit()
    large.user.post(f"/api/v1/jobs/{ids[7]}/kill")
    end(large, ids[1])
    large.plan()
    assert places(large, [ids[6], ids[7], late]) == ["local", None, "local"]
    assert readings == [None]


@pytest.mark.parametrize("change", ["time", "wake-ups", "machines", "back in time"])
def test_what_may_be_out_of_date_is_read_anew(
    large: World, readings: list[object], change: str
) -> None:
    large.plan()
    acts: dict[str, Callable[[], object]] = {
        "time": lambda: large.clock.move(minutes=2),
        "wake-ups": lambda: large.schedule.desk.hear(EVERYTHING, ""),
        "machines": lambda: large.backends["local"].settings.update(nodes="4"),
        "back in time": lambda: large.clock.move(hours=-1),
    }
    acts[change]()
    if change == "machines":
        large.clock.move(seconds=2)
    large.plan()
    assert readings == [None, None]


def test_room_that_somebody_took_unheard_is_not_given_twice(
    large: World, readings: list[object]
) -> None:
    ids = [large.submit() for _ in range(6)]
    large.plan()
    end(large, ids[0])
    node = "node-0"
    # Behind its back the room is taken again: as if a wake-up had been lost.
    large.deps.db.write(
        lambda tx: tx.run(
            "update replicas set state = 'running' where job_id = ? and node = ?", (ids[0], node)
        )
    )
    used = large.deps.db.read(attempts.used_on_nodes)
    assert used[node] == Resources(cpu=2.0, memory=0, gpu=0)
    late = large.submit()
    large.plan()
    assert large.job(late).pool is None
    assert large.deps.db.read(attempts.used_on_nodes) == used
    assert readings == [None, None]


def test_a_job_that_moved_on_unheard_is_left_alone(large: World) -> None:
    ids = [large.submit() for _ in range(7)]
    large.plan()
    waiting = large.job(ids[6])

    def bump(tx: Tx) -> None:
        jobs.save_job(tx, with_changes(waiting, retried=1), expected_version=waiting.version)

    large.deps.db.write(bump)
    end(large, ids[0])
    large.plan()
    large.plan()
    assert large.job(ids[6]).pool == "local"
    assert large.job(ids[6]).retried == 1


def test_an_error_makes_it_begin_anew(
    large: World, readings: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    large.plan()
    job_id = large.submit()
    with monkeypatch.context() as broken:
        broken.setattr(Desk, "_catch_up", _fail)
        with pytest.raises(RuntimeError):
            large.plan()
    large.plan()
    assert large.job(job_id).pool == "local"
    assert readings == [None, None]


def _fail(*_: object) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("seed", range(4))
def test_it_never_differs_from_what_is_stored(large: World, seed: int) -> None:
    """Any history: machines are never given twice, and nobody waits beside room that would do."""
    chance = random.Random(seed)
    for _ in range(30):
        act = chance.random()
        live = large.deps.db.read(attempts.live_attempts)
        if act < 0.5:
            large.submit(cpu=chance.choice((1.0, 2.0)))
        elif act < 0.8 and live:
            end(large, chance.choice(live).job_id)
        elif waiting := large.deps.db.read(lambda tx: jobs.waiting_jobs(tx, per_owner=1000)):
            large.user.post(f"/api/v1/jobs/{chance.choice(waiting).id}/kill")
        large.clock.move(seconds=1)
        large.plan()
        check(large)


def check(world: World) -> None:
    used = world.deps.db.read(attempts.used_on_nodes)
    assert all(each.cpu <= 2.0 for each in used.values())
    room = max(2.0 - used.get(f"node-{number}", NOTHING).cpu for number in range(3))
    waiting = world.deps.db.read(lambda tx: jobs.waiting_jobs(tx, per_owner=1000))
    assert all(job.spec.groups[0].resources.cpu > room for job in waiting), (room, waiting)
    assert not any(job.reason is None or job.reason.code == jobs.NOT_PLANNED_YET for job in waiting)
