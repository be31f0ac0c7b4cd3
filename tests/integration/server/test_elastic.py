"""Jobs whose trainers come and go, on a server whose agents are played by the test."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.db.tables import attempts
from paddlecloud.model.jobs.job import Attempt
from paddlecloud.server.loops.reconcile import Watch
from tests.integration.server.test_data_tasks import Worker
from tests.integration.server.world import Stage, World, eventually


@pytest.fixture
def world(stage: Stage, tmp_path: Path) -> Iterator[World]:
    found = World(stage, tmp_path, pools={"local": {"node": "node", "cpu": "4"}})
    yield found
    found.close()


class Gang:
    """An elastic job and the orders of its trainers, as its agent hears of them."""

    def __init__(self, world: World, **changes: Any) -> None:
        self.world = world
        self.orders: dict[str, dict[str, Any]] = {}
        self.stops: set[str] = set()
        self.heard: dict[str, dict[str, Any]] = {}
        """The last order of each job, others too."""
        self.id = world.submit(job_type="cpu", **changes)
        world.plan()
        self.hear()

    def hear(self) -> None:
        for order in self.world.agent.poll():
            self.heard[order["job"]] = order
            worker = order["replica"].rpartition(".")[2]
            if order["job"] == self.id and order["want"] == "run":
                self.orders[worker] = order
            elif order["job"] == self.id and order["want"] == "stop":
                self.stops.add(worker)

    def begin(self) -> Gang:
        """All that were ordered and have not begun do."""
        for worker in self.orders.keys() - self.begun():
            self.world.agent.start(self.orders[worker])
        self.world.plan()
        self.hear()
        return self

    def end(self, worker: str, **how: Any) -> None:
        self.world.agent.exit(self.orders[worker], **how)
        self.world.plan()
        self.hear()

    def attempt(self) -> Attempt:
        found = self.world.deps.db.read(lambda tx: attempts.get_attempt(tx, self.id, 1))
        assert found is not None
        return found

    def live(self) -> list[str]:
        return [r.worker for r in self.attempt().replicas if not r.over]

    def begun(self) -> set[str]:
        return {r.worker for r in self.attempt().replicas if r.pid is not None}

    @property
    def state(self) -> str:
        return self.world.state(self.id)


def trainers(*ranks: int) -> list[str]:
    return [f"trainer-{rank}" for rank in ranks]


def test_it_starts_with_as_many_as_fit_and_grows_when_it_runs(world: World) -> None:
    gang = Gang(world, min_instance=1, instance_count=2, max_instance=3)
    assert gang.live() == trainers(0, 1)
    gang.begin()
    assert gang.state == "running"
    assert gang.live() == trainers(0, 1, 2)
    envs = [order["run"]["env"] for order in gang.orders.values()]
    assert len({(env["POD_IP"], env["PADDLE_PORT"]) for env in envs}) == 3
    assert not any("DISTRIBUTE_JOB_TYPE" in env for env in envs)
    assert gang.orders["trainer-2"]["run"]["ports"] != []


def test_a_follower_of_its_log_gets_the_lines_of_those_that_join_too(world: World) -> None:
    gang = Gang(world, min_instance=1, instance_count=1, max_instance=2)
    world.agent.log(gang.orders["trainer-0"], 0, b"a1\n")
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(world.log, gang.id, merge="auto", follow=1)
        eventually(lambda: ("log", f"{gang.id}/1/trainer-0") in world.deps.hub._waiters)
        gang.begin()
        assert gang.live() == trainers(0, 1)
        eventually(lambda: ("log", f"{gang.id}/1/trainer-1") in world.deps.hub._waiters)
        world.agent.log(gang.orders["trainer-1"], 0, b"b1\n")
        gang.begin()
        for worker in trainers(0, 1):
            gang.end(worker, log_size=3)
        assert following.result(20) == b"[trainer-0] a1\n[trainer-1] b1\n"


def test_who_fails_is_replaced_under_a_new_name_and_all_ending_well_is_success(
    world: World,
) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    gang.end("trainer-0", exit_code=1)
    assert gang.live() == trainers(1, 2)
    view = world.look(gang.id)
    assert view["job_status"] == "running"
    assert "trainer-0" in view["error_msg"] and "trainer-2" in view["error_msg"]
    gang.begin()
    gang.end("trainer-1")
    assert gang.state == "running"
    assert gang.live() == trainers(2)
    gang.end("trainer-2")
    view = world.look(gang.id)
    assert (view["job_status"], view["error_msg"], view["attempts"]) == ("success", "", 1)


def test_after_three_in_a_row_without_a_finished_task_the_job_fails_with_the_cause(
    world: World,
) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    for rank in (1, 2, 3):
        gang.end(f"trainer-{rank}", exit_code=7)
        assert gang.live() == trainers(0, rank + 1)
        gang.begin()
    gang.end("trainer-4", exit_code=9)
    assert gang.live() == trainers(0)
    assert gang.stops == {"trainer-0"}
    gang.end("trainer-0", exit_code=None, signal=15, cause="stopped")
    view = world.look(gang.id)
    assert view["job_status"] == "failed"
    assert (view["failure"]["worker"], view["exit_code"]) == ("trainer-4", 9)


def test_a_finished_task_begins_the_count_anew(world: World) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    steady = Worker(world, gang.orders["trainer-0"])
    steady.define([str(number) for number in range(10)])
    for rank in range(1, 7):
        world.clock.move(seconds=1)
        task = steady.lease()["tasks"][0]
        assert steady.say("finish", task, of_pass=0)["verdict"] == "counted"
        gang.end(f"trainer-{rank}", exit_code=1)
        assert gang.live() == trainers(0, rank + 1)
        gang.begin()
    assert gang.state == "running"


def test_the_task_of_a_dead_trainer_goes_to_another_at_once(world: World) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    first, second = (Worker(world, gang.orders[name]) for name in trainers(0, 1))
    first.define(["a"])
    held = first.lease()["tasks"][0]
    assert second.lease()["tasks"] == []
    gang.end("trainer-0", exit_code=None, signal=9)
    again = second.lease()["tasks"][0]
    assert (again["number"], again["tries"]) == (0, 2)
    assert again["fence"] > held["fence"]


def test_it_shrinks_for_who_waits_and_grows_again(world: World) -> None:
    gang = Gang(world, min_instance=1, max_instance=4).begin()
    assert gang.live() == trainers(0, 1, 2, 3)
    worker = Worker(world, gang.orders["trainer-3"])
    worker.define(["a"], failure_max=1)
    worker.lease()
    other = world.submit(cpu=2)
    world.plan()
    gang.hear()
    assert gang.stops == {"trainer-2", "trainer-3"}
    world.plan()
    gang.hear()
    assert gang.stops == {"trainer-2", "trainer-3"}  # those will do
    for name in trainers(3, 2):
        gang.end(name, exit_code=None, signal=15, cause="stopped")
    assert gang.live() == trainers(0, 1)
    # What the platform took back was no failed try.
    assert Worker(world, gang.orders["trainer-0"]).lease()["tasks"][0]["tries"] == 1
    world.agent.run(gang.heard[other])
    assert world.state(other) == "success"
    world.plan()
    gang.hear()
    assert gang.live() == trainers(0, 1, 4, 5)
    assert gang.state == "running"


def test_it_never_shrinks_below_its_least_nor_for_nothing(world: World) -> None:
    gang = Gang(world, min_instance=3, max_instance=4).begin()
    world.submit(cpu=3)
    world.plan()
    gang.hear()
    assert gang.stops == set()
    small = world.submit(cpu=1)
    world.plan()
    gang.hear()
    assert gang.stops == {"trainer-3"}
    gang.end("trainer-3", exit_code=None, signal=15, cause="stopped")
    assert world.job(small).pool == "local"
    assert gang.live() == trainers(0, 1, 2)


def test_a_lost_trainer_is_replaced_and_counts_for_nothing(world: World) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    for rank in range(6):
        order = gang.orders[f"trainer-{rank}"]
        world.agent.report({"replica": order["replica"], "fence": order["fence"], "lost": True})
        world.plan()
        gang.hear()
        gang.begin()
    assert gang.state == "running"
    assert len(gang.live()) == 2


def test_kill_and_wall_time_end_all_of_it(world: World) -> None:
    gang = Gang(world, min_instance=1, max_instance=2, wall_time=100).begin()
    world.clock.move(seconds=40)
    gang.end("trainer-0", exit_code=1)
    assert gang.orders["trainer-2"]["run"]["max_seconds"] == 60
    gang.begin()
    gang.end("trainer-1", exit_code=None, signal=15, cause="wall_time")
    assert gang.stops >= {"trainer-2"}
    gang.end("trainer-2", exit_code=None, signal=15, cause="wall_time")
    assert gang.state == "timeout"
    other = Gang(world, min_instance=1, max_instance=2).begin()
    world.user.post(f"/api/v1/jobs/{other.id}/kill")
    other.hear()
    assert other.stops == set(trainers(0, 1))
    for name in trainers(0, 1):
        other.end(name, exit_code=None, signal=15, cause="stopped")
    assert other.state == "killed"


def test_what_no_message_told_is_found_by_the_loops(world: World) -> None:
    gang = Gang(world, min_instance=2, max_instance=2).begin()
    gang.world.agent.exit(gang.orders["trainer-0"], exit_code=1)
    Watch().tick(world.deps, world.clock())
    assert gang.state == "running"
    world.plan()
    assert gang.live() == trainers(1, 2)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"min_instance": 2}, "elastic_alone"),
        ({"min_instance": 3, "max_instance": 2}, "elastic_order"),
        ({"min_instance": 2, "max_instance": 4, "instance_count": 1}, "elastic_order"),
        (
            {"min_instance": 1, "max_instance": 2, "distribute_job_type": "NCCL2"},
            "elastic_nccl2",
        ),
        ({"min_instance": 5, "max_instance": 2000}, "param_range"),
        ({"min_instance": 5, "max_instance": 6, "memory": 2**42}, "resources_never"),
    ],
)
def test_what_cannot_be_is_refused(world: World, asked: dict[str, Any], code: str) -> None:
    body = {"spec": world.spec(job_type="cpu", **asked), "idempotency_key": "0123456789"}
    assert world.user.call("POST", "/api/v1/jobs", body=body).code == code


def test_parameter_servers_stay_and_end_with_the_trainers(world: World) -> None:
    gang = Gang(world, min_instance=1, max_instance=2, pservers=1).begin()
    assert gang.live() == [*trainers(0, 1), "pserver-0"]
    gang.end("trainer-1", exit_code=3)
    gang.begin()
    assert gang.live() == [*trainers(0, 2), "pserver-0"]
    lists = {o["run"]["env"]["PADDLE_PSERVERS_IP_PORT_LIST"] for o in gang.orders.values()}
    assert len(lists) == 1
    gang.end("trainer-0")
    assert gang.stops == set()
    gang.end("trainer-2")
    assert gang.stops == {"pserver-0"}
    gang.end("pserver-0", exit_code=None, signal=15, cause="stopped")
    assert gang.state == "success"


def test_a_parameter_server_that_fails_ends_the_job(world: World) -> None:
    gang = Gang(world, min_instance=1, max_instance=1, pservers=1).begin()
    gang.end("trainer-0", exit_code=3)
    gang.begin()
    gang.end("pserver-0", exit_code=5)
    assert gang.stops == {"trainer-1"}
    gang.end("trainer-1", exit_code=None, signal=15, cause="stopped")
    view = world.look(gang.id)
    assert (view["job_status"], view["failure"]["worker"]) == ("failed", "pserver-0")
    assert (view["exit_code"], view["attempts"]) == (5, 1)


def test_who_joins_is_started_as_the_first_were(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = Gang(world, min_instance=1, instance_count=1, max_instance=2)
    started: list[Attempt] = []
    monkeypatch.setattr(
        world.backends["local"], "start", lambda attempt, _: started.append(attempt)
    )
    gang.begin()
    assert [len(attempt.replicas) for attempt in started] == [2]
    gang.end("trainer-0", exit_code=1)
    assert [len(attempt.replicas) for attempt in started] == [2, 3]
    assert gang.attempt().handle == started[-1].handle == world.backends["local"].handle(started[0])


def test_a_pool_that_will_not_have_more_keeps_those_that_run(world: World) -> None:
    gang = Gang(world, min_instance=1, instance_count=1, max_instance=2)
    world.backends["local"].script.start = "refuse"
    gang.begin()
    assert (gang.state, gang.stops) == ("running", {"trainer-1"})
    world.agent.exit(gang.heard[gang.id], None, cause="stopped")
    world.plan()
    assert (gang.state, gang.live()) == ("running", trainers(0)), "it is not asked again at once"
    world.backends["local"].script.start = "ok"
    world.clock.move(minutes=6)
    world.plan()
    assert gang.live() == trainers(0, 2)
    gang.hear()
    gang.begin()
    gang.end("trainer-0")
    gang.end("trainer-2")
    assert gang.state == "success"


def test_a_pool_that_will_not_have_more_before_it_runs_does_not_keep_it_from_running(
    world: World,
) -> None:
    world.backends["local"].script.cpu = 1
    gang = Gang(world, min_instance=1, instance_count=2, max_instance=2)
    assert gang.live() == trainers(0)
    world.backends["local"].script.cpu = 4
    world.backends["local"].script.start = "refuse"
    world.plan()
    gang.hear()
    assert (gang.state, gang.stops) == ("schedule", {"trainer-1"})
    world.agent.exit(gang.heard[gang.id], None, cause="stopped")
    Watch().tick(world.deps, world.clock())
    assert (gang.state, gang.live()) == ("schedule", trainers(0))
    world.agent.start(gang.orders["trainer-0"])
    assert gang.state == "running"
    gang.end("trainer-0")
    assert gang.state == "success"
