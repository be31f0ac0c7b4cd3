"""Who has to go for whom, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from paddlecloud.messages import render
from paddlecloud.model.jobs.job import Resources
from paddlecloud.model.policy.pool import Pool
from paddlecloud.scheduler.view import (
    Allowance,
    Decision,
    Hold,
    NodeView,
    PoolView,
    Preempt,
    RunningJob,
    View,
    WaitingJob,
)
from tests.unit.scheduler.builders import NOW, a_node, a_view, a_waiting, placed, plan, reasons

LOW, NORMAL, HIGH, URGENT = -100, 0, 100, 200


def a_running(
    name: str, node: str = "n1", *, cpu: float = 4, ran: float = 600, **changes: object
) -> RunningJob:
    values: dict[str, object] = {
        "id": name,
        "owner": "bo",
        "priority": LOW,
        "pool": "shared",
        "slots": ((node, Resources(cpu=cpu)),),
        "since": NOW - timedelta(seconds=ran),
    }
    return RunningJob(**(values | changes))  # type: ignore[arg-type]


def an_urgent(
    number: int = 1, *, cpu: float = 4, waited: float = 60, **changes: object
) -> WaitingJob:
    given = {"priority": URGENT, "pools": ("shared",)} | changes
    return a_waiting(number, cpu=cpu, waited=waited, **given)  # type: ignore[arg-type]


def a_full_view(
    *waiting: WaitingJob,
    running: tuple[RunningJob, ...],
    nodes: tuple[str, ...] = ("n1",),
    preemption: bool = True,
    private: bool = True,
    **changes: object,
) -> View:
    """Machines of 8 CPUs on which these jobs run."""
    views: list[NodeView] = []
    for node in nodes:
        held = sum(ask.cpu for run in running for where, ask in run.slots if where == node)
        views.append(a_node(node, used=Resources(cpu=held)))
    pool = Pool(name="shared", backend="local", private=private, preemption=preemption)
    pools = (PoolView(pool=pool, nodes=tuple(views)),)
    return a_view(*waiting, pools=pools, running=running, **changes)


def stopped(decisions: list[Decision]) -> list[str]:
    return [decision.job_id for decision in decisions if isinstance(decision, Preempt)]


def test_a_higher_class_takes_the_place_of_a_lower_one_and_says_so() -> None:
    runs = (a_running("a"), a_running("b"))
    decisions = plan(a_full_view(an_urgent(), running=runs))
    (preempt,) = (d for d in decisions if isinstance(d, Preempt))
    assert preempt.for_job == "job-1"
    assert reasons(decisions) == {"job-1": "queue_preempting"}
    for lang in ("en", "zh"):
        sentence = render(preempt.reason.code, preempt.reason.params, lang)
        assert "urgent" in sentence and "low" in sentence and "job-1" in sentence


def test_of_equals_the_youngest_goes() -> None:
    runs = (a_running("old", ran=9000), a_running("young", ran=300))
    assert stopped(plan(a_full_view(an_urgent(), running=runs))) == ["young"]


def test_the_lowest_class_goes_before_the_youngest() -> None:
    runs = (a_running("low", ran=9000), a_running("normal", ran=300, priority=NORMAL))
    assert stopped(plan(a_full_view(an_urgent(), running=runs))) == ["low"]


def test_the_machine_where_the_fewest_have_to_go_is_chosen() -> None:
    many = tuple(a_running(f"m{n}", "n1", cpu=2) for n in range(4))
    view = a_full_view(an_urgent(cpu=4), running=(*many, a_running("one", "n2", cpu=8)),
                       nodes=("n1", "n2"))  # fmt: skip
    assert stopped(plan(view)) == ["one"]


def test_no_more_go_than_are_needed() -> None:
    runs = (a_running("small", cpu=1, ran=300), a_running("big", cpu=7, ran=9000))
    assert stopped(plan(a_full_view(an_urgent(cpu=6), running=runs))) == ["big"]


def test_room_for_a_whole_gang_is_made_or_nobody_goes() -> None:
    runs = (a_running("a", "n1", cpu=8), a_running("b", "n2", cpu=8))
    view = a_full_view(an_urgent(cpu=8, count=2), running=runs, nodes=("n1", "n2"))
    assert sorted(stopped(plan(view))) == ["a", "b"]
    firm = (runs[0], replace(runs[1], priority=URGENT))
    assert stopped(plan(replace(view, running=firm))) == []


def test_nobody_goes_for_an_equal_or_for_one_who_has_just_come() -> None:
    runs = (a_running("a", priority=URGENT, cpu=8),)
    assert stopped(plan(a_full_view(an_urgent(), running=runs))) == []
    lower = (a_running("a", cpu=8),)
    assert stopped(plan(a_full_view(an_urgent(waited=29), running=lower))) == []
    assert stopped(plan(a_full_view(an_urgent(waited=30), running=lower))) == ["a"]


def test_numbers_within_one_class_do_not_preempt_each_other() -> None:
    runs = (a_running("a", priority=5, cpu=8),)
    assert stopped(plan(a_full_view(an_urgent(priority=99), running=runs))) == []


def test_a_class_lent_by_waiting_does_not_preempt() -> None:
    runs = (a_running("a", cpu=8),)
    view = a_full_view(an_urgent(priority=LOW, waited=20 * 3600), running=runs)
    assert stopped(plan(view)) == []


def test_who_began_just_now_stays() -> None:
    runs = (a_running("a", cpu=8, ran=119),)
    assert stopped(plan(a_full_view(an_urgent(), running=runs))) == []


def test_where_the_pool_does_not_allow_it_nobody_goes() -> None:
    runs = (a_running("a", cpu=8),)
    assert stopped(plan(a_full_view(an_urgent(), running=runs, preemption=False))) == []


def test_nobody_goes_for_a_job_that_its_owners_quota_forbids() -> None:
    view = a_full_view(
        an_urgent(),
        running=(a_running("a", cpu=8),),
        private=False,
        allowances={"anna": Allowance(jobs=0, limits={"jobs": 2})},
    )
    decisions = plan(view)
    assert stopped(decisions) == []
    assert reasons(decisions) == {"job-1": "queue_quota_running"}


def test_while_they_are_on_their_way_out_no_others_are_chosen() -> None:
    runs = (a_running("a"), a_running("b"))
    first = plan(a_full_view(an_urgent(), running=runs))
    (victim,) = stopped(first)
    later = tuple(replace(run, stopping=run.id == victim) for run in runs)
    assert stopped(plan(a_full_view(an_urgent(), running=later))) == []
    two = plan(a_full_view(an_urgent(1), an_urgent(2), running=later))
    assert len(stopped(two)) == 1, "the second needs a place of its own"


def test_what_they_leave_is_kept_for_it_although_another_is_before_it_in_order() -> None:
    """A newcomer of the same class with less in use would take it otherwise."""
    (occupy,) = (
        d
        for d in plan(a_full_view(an_urgent(cpu=8), running=(a_running("a", cpu=8),)))
        if isinstance(d, Hold)
    )
    promised = an_urgent(1, cpu=8, held_reason=occupy.reason)
    newcomer = an_urgent(2, cpu=8, owner="cy", waited=0)
    free = a_full_view(promised, newcomer, running=(), usage={"anna": 50.0})
    assert placed(plan(free)) == ["job-1"]


def test_small_ones_do_not_slip_into_what_is_being_freed() -> None:
    runs = (a_running("a", cpu=6, stopping=True),)
    decisions = plan(
        a_full_view(an_urgent(1, cpu=8), a_waiting(2, cpu=1, pools=("shared",)), running=runs)
    )
    assert placed(decisions) == []
    assert stopped(decisions) == []
