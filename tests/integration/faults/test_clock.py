"""A clock that is set forward or back, or a laptop that slept: jobs, agents and nonces survive."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from paddlecloud.db.tables import agents, counters, leases
from paddlecloud.server.http.app import App
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.loops.runner import LEASE, Leased
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.testing import exchange
from tests.integration.server.world import World, eventually


def test_a_clock_set_forward_ends_no_job(world: World) -> None:
    """Only running time counts, and the supervisor beside the job counts it."""
    job_id, order = world.placed(wall_time=3600)
    world.agent.start(order)
    watch = Watch()
    watch.tick(world.deps, world.clock())
    world.clock.move(days=3)
    for _ in range(3):
        watch.tick(world.deps, world.clock.move(seconds=2))
    assert world.state(job_id) == "running"
    assert world.agent.poll() == []
    world.agent.exit(order, 0)
    assert world.state(job_id) == "success"


def test_a_supervisor_that_overslept_is_made_up_for_after_a_jump_too(world: World) -> None:
    job_id, order = world.placed(wall_time=3600)
    world.agent.start(order)
    watch = Watch()
    watch.tick(world.deps, world.clock())
    watch.tick(world.deps, world.clock.move(days=3))
    for _ in range(2):
        watch.steps.seconds -= 1850  # as if so much real time had passed
        watch.tick(world.deps, world.clock.move(seconds=1850))
    assert world.agent.order(job_id, "stop")["cause"] == "wall_time"


@pytest.mark.parametrize("days", [-400, -1, 1, 30])
def test_a_job_lives_through_a_jump_at_any_moment(world: World, days: int) -> None:
    """Submitted before it, run across it and ended after it; a second one wholly after it."""
    first, order = world.placed()
    world.clock.move(days=days)
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    world.agent.exit(order, 3, log_size=6)
    view = world.look(first)
    assert (view["job_status"], view["exit_code"]) == ("failed", 3)
    assert world.log(first) == b"hello\n"
    second, order = world.placed()
    world.agent.run(order, b"again\n")
    assert world.state(second) == "success"
    events = [row["event"] for row in world.user.get(f"/api/v1/jobs/{first}/history")["history"]]
    assert events[-1] == "broke"


def test_spent_nonces_are_kept_after_the_clock_was_set_back(world: World) -> None:
    world.user.get("/api/v1/whoami")
    world.clock.move(days=-2)
    before = world.count("nonces")
    deadline = time.monotonic() + 60
    while world.count("nonces") <= before + 1:
        world.user.get("/api/v1/whoami")
        assert time.monotonic() < deadline, "nonces stay in memory for two days"


@pytest.mark.parametrize("hours", [1, 24 * 400])
def test_a_spent_nonce_is_known_after_the_clock_was_set_ahead_and_back(
    world: World, hours: int
) -> None:
    user = world.user
    where = ("127.0.0.1", user.port, "GET", "/api/v1/whoami")
    headers = user.headers("GET", "/api/v1/whoami", "", b"")
    assert exchange(*where, headers).status == 200
    eventually(lambda: world.count("nonces") > 0)
    world.clock.move(hours=hours)
    seen = world.count("nonces")
    garbage_collection.collect(world.deps)
    while world.count("nonces") <= seen:  # until the server has looked at the nonces in memory
        user.get("/api/v1/whoami")
    world.clock.move(hours=-hours)
    assert exchange(*where, headers).code == "auth_replay"
    world.stage.app = App(world.deps)
    assert exchange(*where, headers).code == "auth_replay", "nor by the next server"


def test_an_agent_that_dies_after_the_clock_was_set_back_is_noticed(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.clock.move(days=-2)
    world.agent.poll()
    (known,) = world.deps.db.read(agents.list_agents)
    assert known.seen_at == world.clock()
    watch = Watch()
    world.clock.move(minutes=10)
    for _ in range(20):
        watch.steps.seconds -= 5.0
        watch.tick(world.deps, world.clock())
    assert world.state(job_id) == "failed"


def test_loops_go_on_after_the_clock_was_set_back(world: World) -> None:
    """A lease of the future must not shut its own holder out."""
    db, now = world.deps.db, world.clock()
    assert db.write(lambda tx: leases.take_lease(tx, "loop", "me", now, LEASE)) is not None
    earlier = world.clock.move(days=-2)
    fence = db.write(lambda tx: leases.take_lease(tx, "loop", "me", earlier, LEASE))
    assert fence is not None


def passes(world: World, watch: Watch, seconds: float, **jump: float) -> None:
    """So much time passes until the next look, and the clock is moved by `jump` besides."""
    world.clock.move(seconds=seconds)
    watch.steps.seconds -= seconds
    watch.tick(world.deps, world.clock.move(**jump) if jump else world.clock())


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_a_clock_set_and_set_right_again_changes_no_wall_time(world: World, hours: int) -> None:
    """Neither of a job that ran all the time nor of one that began between the two."""
    watch = Watch()
    passes(world, watch, 2)
    first, order = world.placed(wall_time=1000)
    world.agent.start(order)
    passes(world, watch, 2)
    passes(world, watch, 500, hours=hours)
    passes(world, watch, 400, hours=-hours)
    assert world.agent.poll() == []
    passes(world, watch, 120)
    assert world.agent.poll() == [], "its supervisor has its time too"
    passes(world, watch, 100)
    assert world.agent.order(first, "stop")["cause"] == "wall_time"
    world.agent.exit(order, 143, cause="wall_time")
    passes(world, watch, 2, hours=hours)
    second, order = world.placed(wall_time=1000)
    world.agent.start(order)
    passes(world, watch, 2)
    passes(world, watch, 1000, hours=-hours)
    assert "stop" not in [told["want"] for told in world.agent.poll()]
    passes(world, watch, 120)
    assert world.agent.order(second, "stop")["cause"] == "wall_time"


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_a_clock_set_and_set_right_again_changes_no_used_time(world: World, hours: int) -> None:
    def ran() -> timedelta:
        (row,) = world.deps.db.read(lambda tx: tx.all("select started_at from usage"))
        return world.clock() - datetime.fromtimestamp(row[0] / 1e6, world.clock().tzinfo)

    watch = Watch()
    _, order = world.placed()
    world.agent.start(order)
    for passed, jump in ((60, 0), (60, hours), (60, 0), (60, -hours), (60, 0)):
        passes(world, watch, passed, hours=jump)
    assert abs(ran().total_seconds() - 300) < 20, "but for what the test itself takes"


def test_an_agent_that_dies_as_the_clock_is_set_back_is_noticed(world: World) -> None:
    """What was written of it then lies in the future for two days."""
    job_id, order = world.placed()
    world.agent.start(order)
    watch = Watch()
    passes(world, watch, 2)
    passes(world, watch, 5, days=-2)
    for _ in range(10):
        passes(world, watch, 5)
    assert world.state(job_id) == "running", "it may just be slow"
    for _ in range(18):
        passes(world, watch, 5)
    assert world.state(job_id) == "failed"


def test_a_lease_of_a_dead_server_whose_clock_was_fast_is_taken_over(world: World) -> None:
    db, lease = world.deps.db, timedelta(milliseconds=300)
    future = world.clock() + timedelta(days=2)
    db.write(lambda tx: leases.take_lease(tx, "loop-x", "fast", future, lease))
    leased = Leased(world.deps, "loop-x", lease)
    assert not leased.held()
    eventually(leased.held)
    assert leased.write(lambda tx: counters.next_number(tx, "mine")) == 1


def test_a_lease_that_is_renewed_stays_its_holders_whatever_its_clock_says(world: World) -> None:
    db, lease = world.deps.db, timedelta(seconds=60)
    leased = Leased(world.deps, "loop-x", lease)
    future = world.clock() + timedelta(days=2)
    for second in range(3):
        now = future + timedelta(seconds=second)
        db.write(lambda tx, at=now: leases.take_lease(tx, "loop-x", "fast", at, lease))  # type: ignore[misc]
        leased._renew_at = 0.0
        if leased._others is not None:
            leased._others = (leased._others[0], time.monotonic() - 61)
        assert not leased.held()


def test_a_clock_set_forward_ends_no_wait(world: World) -> None:
    world.placed()
    waits = world.submit()
    world.schedule.tick_in_time(world.deps, world.clock())
    world.schedule.tick_in_time(world.deps, world.clock.move(days=3))
    assert world.state(waits) == "queue"
    world.schedule.steps.seconds -= 86_400  # as if so much real time had passed
    world.schedule.tick_in_time(world.deps, world.clock.move(days=1, minutes=1))
    assert world.state(waits) == "schedule timeout"


def test_a_clock_set_back_makes_no_pause_longer(world: World) -> None:
    job_id, order = world.placed(max_retries=1)
    world.schedule.tick_in_time(world.deps, world.clock())
    world.agent.exit(order, 101)
    world.schedule.tick_in_time(world.deps, world.clock.move(days=-30))
    assert world.state(job_id) == "queue"
    world.schedule.tick_in_time(world.deps, world.clock.move(seconds=2))
    assert world.job(job_id).attempt == 2
