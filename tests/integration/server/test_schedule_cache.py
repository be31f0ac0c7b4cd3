"""The planner that the schedule loop keeps agrees with the database, or is rebuilt."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paddlecloud.db.engine.base import EVERYTHING, Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.jobs.job import NOTHING, Resources, with_changes
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.schedule import PlannerCache
from paddlecloud.server.services.placement import planner_input
from paddlecloud.server.settings import Settings
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World

MACHINES = {"local": {"node": "node", "nodes": "3", "cpu": "2"}}


@pytest.fixture
def large(make_world: MakeWorld) -> World:
    return make_world(pools=MACHINES)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each time that everything was read."""
    found: list[object] = []
    read = planner_input.read_view

    def noted(deps: Deps, now: Any) -> Any:
        found.append(None)
        return read(deps, now)

    monkeypatch.setattr(planner_input, "read_view", noted)
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
        "wake-ups": lambda: large.schedule.planner.notified(EVERYTHING, ""),
        "machines": lambda: setattr(large.backends["local"].script, "nodes", 4),
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
        broken.setattr(PlannerCache, "_catch_up", _fail)
        with pytest.raises(RuntimeError):
            large.plan()
    large.plan()
    assert large.job(job_id).pool == "local"
    assert readings == [None, None]


def _fail(*_: object) -> None:
    raise RuntimeError("broken")


@pytest.fixture
def narrow(make_world: MakeWorld) -> World:
    """The planner knows four waiting jobs of each owner."""

    def change(settings: Settings) -> Settings:
        return replace(settings, scheduling=replace(settings.scheduling, window=4))

    return make_world(pools=MACHINES, change=change)


def known(world: World) -> int:
    planner = world.schedule.planner._planner
    assert planner is not None
    return planner.count("someone")


def test_of_a_long_queue_the_planner_knows_the_first_jobs(
    narrow: World, readings: list[object]
) -> None:
    ids = [narrow.submit() for _ in range(26)]
    narrow.plan()
    assert places(narrow, ids) == ["local"] * 6 + [None] * 20
    assert {narrow.job(job_id).state for job_id in ids[6:]} == {"queue"}, "all were told"
    assert known(narrow) == 4
    for first in range(0, 20, 5):
        for job_id in ids[first : first + 5]:
            end(narrow, job_id)
        narrow.plan()
        assert places(narrow, ids[first + 6 : first + 11]) == ["local"] * 5, "in their order"
        assert places(narrow, ids[first + 11 :]) == [None] * len(ids[first + 11 :])
    assert readings == [None]


def test_room_for_many_is_given_to_more_than_the_planner_knows(narrow: World) -> None:
    ids = [narrow.submit(cpu=0.1) for _ in range(50)]
    narrow.plan()
    assert places(narrow, ids) == ["local"] * 50
    assert narrow.schedule.planner._versions.keys().isdisjoint(ids)


def test_an_urgent_job_is_known_however_many_wait(narrow: World) -> None:
    ids = [narrow.submit() for _ in range(20)]
    narrow.plan()
    urgent = narrow.submit(priority="high")
    narrow.plan()
    end(narrow, ids[0])
    narrow.plan()
    assert places(narrow, [urgent, ids[6]]) == ["local", None]


def test_a_job_that_the_planner_does_not_know_gives_up_in_time(narrow: World) -> None:
    ids = [narrow.submit() for _ in range(12)]
    narrow.plan()
    late = narrow.submit()
    narrow.clock.move(hours=24, seconds=1)
    on_time = narrow.submit()
    narrow.plan()
    assert {narrow.job(job_id).state for job_id in [*ids[6:], late]} == {"schedule timeout"}
    assert narrow.state(on_time) == "queue"


def test_a_burst_is_told_at_once_that_it_waits(
    narrow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_input, "MAX_NEWCOMERS", 5)
    ids = [narrow.submit(cpu=2) for _ in range(33)]
    narrow.plan()
    assert Counter(narrow.state(job_id) for job_id in ids) == {"schedule": 3, "queue": 30}
    assert known(narrow) == 4


@pytest.mark.parametrize("window", [1, 2, 256])
@pytest.mark.parametrize("seed", range(4))
def test_it_never_differs_from_what_is_stored(
    make_world: MakeWorld, seed: int, window: int
) -> None:
    """Any history: machines are never given twice, and nobody waits beside room that would do."""

    def change(settings: Settings) -> Settings:
        return replace(settings, scheduling=replace(settings.scheduling, window=window))

    large = make_world(pools=MACHINES, change=change)
    chance = random.Random(seed)
    for _ in range(30):
        act = chance.random()
        live = large.deps.db.read(attempts.live_attempts)
        if act < 0.5:
            large.submit(cpu=chance.choice((1.0, 2.0)) if window == 256 else 1.0)
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
