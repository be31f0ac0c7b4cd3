"""Who comes next is found without a search, and is who a search would find."""

from __future__ import annotations

import random

import pytest

from paddlecloud.scheduler._fair_queue import (
    Demand,
    Entry,
    Level,
    Queue,
    QueueTurn,
    demand_key,
    foremost,
)
from paddlecloud.scheduler._pool_state import PoolState
from tests.unit.scheduler.builders import a_node, a_pool, a_waiting


def a_shape(*, cpu: float = 1) -> Demand:
    job = a_waiting(cpu=cpu)
    demand = Demand(demand_key(job), job)
    demand.resolve({"local": PoolState(a_pool(a_node()))})
    return demand


def a_turn(queue: Queue, place: int) -> QueueTurn:
    bound = queue.bound()
    assert bound is not None
    return (*bound, place, queue)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_of_a_level_are_those_of_a_full_sort_whatever_happened(seed: int) -> None:
    chance = random.Random(seed)
    level, demand = Level(), a_shape()
    usage = {owner: float(chance.randint(0, 2)) for owner in "abcdefghijklmno"}
    waiting: dict[int, Entry] = {}
    for step in range(200):
        act, owner = chance.random(), chance.choice(list(usage))
        if act < 0.5 or not waiting:
            number = chance.randrange(10_000) * 1000 + step
            entry = Entry(a_waiting(number, owner=owner), demand, 0, 0.0)
            entry.queue = level.add(entry, 0, reserve=False, used=usage[owner])
            waiting[number] = entry
        elif act < 0.75:
            level.remove(waiting.pop(chance.choice(list(waiting))))
        else:
            before, usage[owner] = usage[owner], float(chance.randint(0, 4))
            if usage[owner] < before:
                level.rise(owner, usage[owner])
        count = chance.choice((1, 3, 10))
        want = sorted(waiting, key=lambda number: (usage[waiting[number].job.owner], number))
        assert level.first(usage, count) == want[:count]


def test_the_foremost_is_found_although_shares_have_grown_since() -> None:
    usage = {"anna": 0.0, "bo": 1.0, "cy": 2.0}
    queues = [Queue(a_shape(), 0, reserve=True) for _ in usage]
    for number, (queue, owner) in enumerate(zip(queues, usage, strict=True)):
        queue.add(owner, number, usage[owner])
    usage["anna"] = 5.0
    turns = [a_turn(queue, place) for place, queue in enumerate(queues)]
    assert foremost(turns, usage) == (1.0, 1, "bo", 1, queues[1])
    assert sorted(turn[3] for turn in turns) == [0, 2], "the others may follow"


def test_a_line_that_remembers_a_job_of_another_line_is_passed_over() -> None:
    """Both hold the same turn, and in one of them it is no longer true."""
    left, reserved = Queue(a_shape(), 0, reserve=True), Queue(a_shape(), 0, reserve=True)
    for queue in (left, reserved):
        queue.add("anna", 7, 0.0)
    left.remove("anna", 7)
    assert foremost([a_turn(left, 0), a_turn(reserved, 1)], {}) == (0.0, 7, "anna", 1, reserved)


def test_for_who_is_too_large_for_every_pool_no_room_is_kept() -> None:
    queue = Queue(a_shape(cpu=99), 0, reserve=True)
    queue.add("anna", 1, 0.0)
    assert foremost([a_turn(queue, 0)], {}) is None
