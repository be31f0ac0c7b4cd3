"""The rule of order, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from paddlecloud.messages import render
from paddlecloud.messages.tables import TEXTS
from paddlecloud.model.jobs.job import JobType, Reason, ReplicaGroup, Resources, Role
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.planner import EXACT_REASONS
from paddlecloud.scheduler.usage_weight import weight
from paddlecloud.scheduler.view import GiveUp, Hold, Place, Rules, Slot, View, WaitingJob
from tests.unit.scheduler.builders import (
    GIB,
    a_node,
    a_pool,
    a_view,
    a_waiting,
    placed,
    plan,
    reasons,
)

FULL = Resources(cpu=8)


def held_again(view: View) -> View:
    """The same view after its holds were stored."""
    stored = {d.job_id: d.reason for d in plan(view) if isinstance(d, Hold)}
    waiting = tuple(
        replace(job, held_reason=stored.get(job.id), **{"state": JobState.QUEUE})  # type: ignore[arg-type]
        for job in view.waiting
    )
    return replace(view, waiting=waiting)


def test_nothing_waits_nothing_is_decided() -> None:
    assert plan(a_view()) == []


def test_a_job_that_fits_is_placed() -> None:
    seat = Slot(Role.TRAINER, 0, "n1", "127.0.0.1", Resources(cpu=1))
    assert plan(a_view(a_waiting())) == [Place(job_id="job-1", pool="local", slots=(seat,))]


def test_higher_priority_goes_first_then_age() -> None:
    jobs = [a_waiting(1), a_waiting(2, priority=5), a_waiting(3, priority=5), a_waiting(4)]
    view = a_view(*jobs, pools=(a_pool(a_node(cpu=3)),))
    assert placed(plan(view)) == ["job-2", "job-3", "job-1"]


def test_the_user_with_less_in_use_goes_first_and_promises_count() -> None:
    jobs = [a_waiting(n, owner="anna") for n in (1, 2, 3)]
    jobs += [a_waiting(n, owner="bo") for n in (4, 5, 6)]
    view = a_view(*jobs, usage={"anna": 1.0}, pools=(a_pool(a_node(cpu=4)),))
    assert placed(plan(view)) == ["job-4", "job-1", "job-5", "job-2"]


def test_priority_counts_more_than_the_fair_share() -> None:
    jobs = [a_waiting(1, owner="bo"), a_waiting(2, owner="anna", priority=1)]
    view = a_view(*jobs, usage={"anna": 100.0}, pools=(a_pool(a_node(cpu=1)),))
    assert placed(plan(view)) == ["job-2"]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    nodes = (a_node("n1", cpu=2), a_node("n2", cpu=2))
    fits = plan(a_view(a_waiting(count=4), pools=(a_pool(*nodes),)))
    assert isinstance(fits[0], Place)
    assert [(seat.rank, seat.node) for seat in fits[0].slots] == [
        (0, "n1"),
        (1, "n1"),
        (2, "n2"),
        (3, "n2"),
    ]
    assert reasons(plan(a_view(a_waiting(count=5), pools=(a_pool(*nodes),)))) == {
        "job-1": "queue_too_large"
    }


def test_a_gang_of_two_roles_places_its_largest_replicas_first() -> None:
    groups = (
        ReplicaGroup(role=Role.PSERVER, count=2, resources=Resources(cpu=1)),
        ReplicaGroup(role=Role.TRAINER, count=2, resources=Resources(cpu=3)),
    )
    pool = a_pool(a_node("n1", cpu=4), a_node("n2", cpu=4))
    (decision,) = plan(a_view(a_waiting(groups=groups), pools=(pool,)))
    assert isinstance(decision, Place)
    slots = sorted((seat.role, seat.rank, seat.node) for seat in decision.slots)
    assert slots == [
        (Role.PSERVER, 0, "n1"),
        (Role.PSERVER, 1, "n2"),
        (Role.TRAINER, 0, "n1"),
        (Role.TRAINER, 1, "n2"),
    ]


def test_the_first_pool_of_the_list_that_can_take_it_is_taken() -> None:
    busy = a_pool(a_node("b1", used=FULL), name="cce")
    free = a_pool(a_node("f1"), name="bcc")
    job = a_waiting(pools=("cce", "bcc"))
    (decision,) = plan(a_view(job, pools=(free, busy)))
    assert isinstance(decision, Place)
    assert decision.pool == "bcc"
    (decision,) = plan(a_view(replace(job, pools=("bcc", "cce")), pools=(busy, free)))
    assert isinstance(decision, Place)
    assert decision.pool == "bcc"


def test_a_pool_that_does_not_take_the_job_type_is_passed_over() -> None:
    cards = a_pool(a_node("g1", gpu=2), name="cce", job_types={JobType.GPU})
    job = a_waiting(pools=("cce", "local"), job_type=JobType.CPU)
    (decision,) = plan(a_view(job, pools=(cards, a_pool(a_node()))))
    assert isinstance(decision, Place)
    assert decision.pool == "local"


def test_a_job_without_cards_leaves_them_to_others() -> None:
    pool = a_pool(a_node("g1", gpu=2), a_node("c1"))
    (decision,) = plan(a_view(a_waiting(), pools=(pool,)))
    assert isinstance(decision, Place)
    assert decision.slots[0].node == "c1"


@pytest.mark.parametrize(
    ("job", "node"),
    [
        (a_waiting(cpu=3), a_node(used=Resources(cpu=6))),
        (a_waiting(memory=3 * GIB), a_node(used=Resources(cpu=1, memory=30 * GIB))),
        (a_waiting(gpu=2), a_node(gpu=2, used=Resources(cpu=1, gpu=1))),
    ],
)
def test_each_kind_of_resource_can_be_the_one_that_lacks(job: WaitingJob, node: object) -> None:
    view = a_view(job, pools=(a_pool(node),))  # type: ignore[arg-type]
    assert reasons(plan(view)) == {"job-1": "queue_no_room"}


def test_a_job_that_asks_no_memory_does_not_mind_that_none_is_left() -> None:
    overdrawn = a_node(used=Resources(cpu=1, memory=33 * GIB))
    assert placed(plan(a_view(a_waiting(), pools=(a_pool(overdrawn),)))) == ["job-1"]


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (a_view(a_waiting(), pools=()), "queue_no_pool"),
        (a_view(a_waiting(), pools=(a_pool(),)), "queue_no_agent"),
        (a_view(a_waiting(cpu=9)), "queue_too_large"),
        (a_view(a_waiting(), pools=(a_pool(a_node(used=FULL)),)), "queue_no_room"),
        (a_view(a_waiting(waited=90_000)), "queue_timeout"),
        (
            a_view(a_waiting(cpu=8, waited=400), pools=(a_pool(a_node(used=Resources())),)),
            "queue_next",
        ),
    ],
)
def test_every_reason_is_a_sentence_with_numbers(view: View, code: str) -> None:
    (decision,) = plan(view)
    assert not isinstance(decision, Place)
    assert decision.reason.code == code
    assert code in TEXTS
    for lang in ("en", "zh"):
        assert not render(code, decision.reason.params, lang).endswith("})")


def test_the_reason_says_what_is_asked_and_what_is_free() -> None:
    pool = a_pool(a_node("n1", used=Resources(cpu=5)), a_node("n2", used=Resources(cpu=7.5)))
    (decision,) = plan(a_view(a_waiting(cpu=4, memory=GIB), pools=(pool,)))
    assert isinstance(decision, Hold)
    assert decision.reason.params == {
        "asks": "4 CPU, 1 GiB",
        "count": 1,
        "cpu": 4,
        "memory": GIB,
        "gpu": 0,
        "pool": "local",
        "nodes": 2,
        "free": "3 CPU, 32 GiB",
        "free_cpu": 3.0,
        "free_memory": 32 * GIB,
        "free_gpu": 0,
    }


def test_a_job_gives_up_exactly_after_the_timeout_even_if_there_is_room() -> None:
    rules = Rules(schedule_timeout=timedelta(seconds=100))
    view = a_view(a_waiting(1, waited=100), a_waiting(2, waited=100.001), rules=rules)
    decisions = plan(view)
    assert placed(decisions) == ["job-1"]
    assert reasons(decisions) == {"job-2": "queue_timeout"}
    assert isinstance(decisions[0], GiveUp)
    assert decisions[0].reason.params == {"limit": "00:01:40"}


def test_what_is_held_and_known_is_not_decided_again() -> None:
    pool = a_pool(a_node(used=FULL))
    view = a_view(*(a_waiting(n, cpu=1 + n % 3) for n in range(50)), pools=(pool,))
    assert len(plan(view)) == 50
    assert plan(held_again(view)) == []


def test_a_job_that_was_never_held_is_held_although_its_reason_is_known() -> None:
    view = held_again(a_view(a_waiting(cpu=9)))
    back = replace(view.waiting[0], **{"state": JobState.SCHEDULE})  # type: ignore[arg-type]
    assert len(plan(replace(view, waiting=(back,)))) == 1


def test_only_the_head_of_the_queue_hears_of_every_change_of_what_is_free() -> None:
    many = [a_waiting(n, cpu=8) for n in range(EXACT_REASONS + 20)]
    view = held_again(a_view(*many, pools=(a_pool(a_node(used=Resources(cpu=2))),)))
    changed = replace(view, pools=(a_pool(a_node(used=Resources(cpu=3))),))
    assert len(plan(changed)) == EXACT_REASONS


def test_another_cause_is_news_for_everyone() -> None:
    view = held_again(a_view(*(a_waiting(n, cpu=8) for n in range(40)), pools=(a_pool(),)))
    assert view.waiting[39].held_reason == Reason(code="queue_no_agent", params={"pool": "local"})
    assert len(plan(replace(view, pools=(a_pool(a_node(used=FULL)),)))) == 40


def test_smaller_jobs_pass_one_that_does_not_fit_yet() -> None:
    pool = a_pool(a_node(used=Resources(cpu=4)))
    decisions = plan(a_view(a_waiting(1, cpu=8), a_waiting(2), pools=(pool,)))
    assert placed(decisions) == ["job-2"]
    assert reasons(decisions) == {"job-1": "queue_no_room"}


def test_once_it_waited_long_the_room_it_needs_is_kept() -> None:
    pool = a_pool(a_node(used=Resources(cpu=4)))
    decisions = plan(a_view(a_waiting(1, cpu=8, waited=300), a_waiting(2), pools=(pool,)))
    assert placed(decisions) == []
    assert reasons(decisions) == {"job-1": "queue_next", "job-2": "queue_reserved"}


def test_what_is_left_beside_the_kept_room_may_be_used() -> None:
    pool = a_pool(a_node(used=Resources(cpu=4)))
    jobs = [a_waiting(1, cpu=6, waited=300), *(a_waiting(n, cpu=1) for n in range(2, 9))]
    free_later = replace(pool.nodes[0], free=Resources(cpu=5, memory=GIB))
    decisions = plan(a_view(*jobs, pools=(replace(pool, nodes=(free_later,)),)))
    assert placed(decisions) == []
    other = a_pool(*pool.nodes, a_node("n2", cpu=2))
    assert placed(plan(a_view(*jobs, pools=(other,)))) == ["job-2", "job-3"]


def test_room_is_kept_on_the_same_machines_whatever_is_free() -> None:
    one, two = a_node("n1", used=Resources(cpu=7)), a_node("n2", used=Resources(cpu=1))
    jobs = [a_waiting(1, cpu=8, waited=300), a_waiting(2, cpu=1)]
    (second,) = (d for d in plan(a_view(*jobs, pools=(a_pool(one, two),))) if isinstance(d, Place))
    assert second.slots[0].node == "n2"


def test_each_pool_keeps_room_for_one_job_only_the_first_in_order() -> None:
    pool = a_pool(a_node(used=Resources(cpu=4)), a_node("n2", used=Resources(cpu=4)))
    jobs = [a_waiting(n, cpu=8, waited=1000 - n) for n in (1, 2, 3)]
    assert reasons(plan(a_view(*jobs, pools=(pool,)))) == {
        "job-1": "queue_next",
        "job-2": "queue_no_room",
        "job-3": "queue_no_room",
    }


def test_room_is_not_kept_where_it_could_never_fit() -> None:
    small, large = (
        a_pool(a_node(cpu=4), name="small"),
        a_pool(a_node(used=FULL), name="large"),
    )
    jobs = [
        a_waiting(1, cpu=8, waited=999, pools=("small", "large")),
        a_waiting(2, cpu=4, pools=("small", "large")),
    ]
    decisions = plan(a_view(*jobs, pools=(small, large)))
    assert placed(decisions) == ["job-2"]
    (held,) = (d for d in decisions if isinstance(d, Hold))
    assert (held.reason.code, held.reason.params["pool"]) == ("queue_next", "large")


def test_weight_makes_one_number_of_resources() -> None:
    assert weight(Resources(cpu=2)) == 2
    assert weight(Resources(cpu=1, memory=8 * GIB)) == 2
    assert weight(Resources(cpu=1, gpu=2)) == 17
