"""Tasks over HTTP, as a worker of the job asks for them with its own key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddlecloud.data.taskqueue import reader as reading
from paddlecloud.server.services import data_tasks
from paddlecloud.testing import SignedCaller
from tests.integration.server.world import World


class Worker:
    """A process of one replica that speaks for itself."""

    def __init__(self, world: World, order: dict[str, Any], reader: str = "x") -> None:
        ak, sk = order["replica"], order["run"]["secret"]
        self.caller: SignedCaller = replace(world.user, ak=ak, sk=sk)
        self.place = f"/api/v1/jobs/{order['job']}/tasks/train"
        self.reader = reader

    def define(self, contents: list[str], passes: int = 1, failure_max: int = 3) -> Any:
        digest = reading.digest(passes, failure_max, contents)
        assert digest == data_tasks.digest(passes, failure_max, contents)
        said = {"digest": digest, "passes": passes, "failure_max": failure_max, "tasks": contents}
        return self.caller.post(self.place, said)

    def lease(self, count: int = 1, held: tuple[int, ...] = ()) -> Any:
        said = {"reader": self.reader, "count": count, "seconds": 60, "held": held}
        return self.caller.post(f"{self.place}/lease", said)

    def say(self, word: str, task: dict[str, Any], **more: object) -> Any:
        said = {"reader": self.reader, "number": task["number"], "fence": task["fence"]}
        return self.caller.post(f"{self.place}/{word}", said | more)

    def refusal(self, path: str = "", body: object = None) -> tuple[int, str]:
        reply = self.caller.call("POST", self.place + path, body=body or {"reader": "x"})
        return reply.status, reply.code


@pytest.fixture
def order(world: World) -> dict[str, Any]:
    _, found = world.placed()
    world.agent.start(found)
    return found


def test_a_pass_from_the_first_lease_to_the_last_finish(
    world: World, order: dict[str, Any]
) -> None:
    worker = Worker(world, order)
    assert worker.refusal("/lease") == (404, "tasks_unknown")
    state = worker.define(["a", "b"], passes=2)
    assert (state["total"], state["waiting"], state["current_pass"]) == (2, 2, 0)
    assert worker.define(["a", "b"], passes=2) == state
    for turn in (0, 1):
        for _ in range(2):
            answer = worker.lease()
            assert answer["current_pass"] == turn
            task = answer["tasks"][0]
            assert worker.say("finish", task, of_pass=turn)["verdict"] == "counted"
    assert worker.lease()["over"]
    view = world.look(order["job"])["tasks"]
    assert [(one["name"], one["finished_in_all"], one["given_up_in_all"]) for one in view] == [
        ("train", 4, 0)
    ]
    assert worker.caller.get(worker.place)["current_pass"] == 2


def test_who_means_other_tasks_is_told_so(world: World, order: dict[str, Any]) -> None:
    worker = Worker(world, order)
    asked = {"digest": "0" * 64, "tasks": ["a"]}
    assert worker.refusal("", asked) == (400, "tasks_digest")
    worker.define(["a"])
    assert worker.refusal("", {"digest": "0" * 64}) == (409, "tasks_differ")
    place = worker.place
    worker.place = place.replace("train", "a b")
    assert worker.refusal("", {"digest": "0" * 64}) == (400, "tasks_name")
    for number in range(data_tasks.MAX_SETS - 1):
        worker.place = place.replace("train", f"more-{number}")
        worker.define(["a"])
    worker.place = place.replace("train", "one-more")
    asked = {"digest": data_tasks.digest(1, 3, ["a"]), "tasks": ["a"]}
    assert worker.refusal("", asked) == (422, "tasks_too_many")


def test_a_lease_whose_answer_was_lost_comes_back_to_its_reader(
    world: World, order: dict[str, Any]
) -> None:
    worker, other = Worker(world, order), Worker(world, order, reader="y")
    worker.define(["a", "b", "c"])
    lost = worker.lease()["tasks"]
    assert worker.lease()["tasks"] == lost
    assert worker.lease(held=(0,))["tasks"][0]["number"] == 1
    assert other.lease(count=2)["tasks"][0]["number"] == 2


def test_time_and_renewal(world: World, order: dict[str, Any]) -> None:
    slow, other = Worker(world, order), Worker(world, order, reader="y")
    slow.define(["a"], failure_max=2)
    task = slow.lease()["tasks"][0]
    world.clock.move(seconds=50)
    renewed = {"reader": "x", "seconds": 60, "leases": [[task["number"], task["fence"]]]}
    assert slow.caller.post(f"{slow.place}/renew", renewed) == {"lost": []}
    world.clock.move(seconds=50)
    assert other.lease()["tasks"] == []
    world.clock.move(seconds=11)
    again = other.lease()["tasks"][0]
    assert again["tries"] == 2
    assert slow.caller.post(f"{slow.place}/renew", renewed) == {"lost": [0]}
    assert slow.say("finish", task, of_pass=0)["verdict"] == "late"
    assert slow.say("fail", task)["state"] == "late"
    assert other.say("fail", again)["state"] == "given_up"
    answer = other.lease()
    assert answer["over"]
    assert world.look(order["job"])["tasks"][0]["given_up_in_all"] == 1


def test_what_is_given_up_because_its_trainers_died_is_told_once(
    world: World, order: dict[str, Any]
) -> None:
    slow, other = Worker(world, order), Worker(world, order, reader="y")
    slow.define(["a"], passes=2, failure_max=1)
    slow.lease()
    world.clock.move(seconds=61)
    answer = other.lease()
    assert answer["given_up"] == [[0, 0]]
    assert (answer["current_pass"], len(answer["tasks"])) == (1, 1)
    assert slow.lease()["given_up"] == []


def test_the_key_ends_with_its_replica(world: World, order: dict[str, Any]) -> None:
    worker = Worker(world, order)
    worker.define(["a"])
    worker.lease()
    world.agent.exit(order, exit_code=1)
    # Whoever remembers the key for a moment still asks whether its replica is over.
    assert worker.refusal("/lease") == (409, "task_worker_over")
    world.clock.move(seconds=4)
    assert worker.refusal("/lease") == (401, "auth_unknown_key")


def test_the_key_opens_nothing_else(world: World, order: dict[str, Any]) -> None:
    worker = Worker(world, order)
    for method, path in (("GET", f"/api/v1/jobs/{order['job']}"), ("GET", "/api/v1/jobs")):
        reply = worker.caller.call(method, path)
        assert (reply.status, reply.code) == (401, "auth_role")
    reply = world.user.call("POST", f"{worker.place}/lease", body={"reader": "x"})
    assert (reply.status, reply.code) == (401, "auth_role")
