"""What the replicas of an elastic job mean, and who leaves for whom."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from paddlecloud.model.diagnosis import outcome
from paddlecloud.model.jobs import elastic
from paddlecloud.model.jobs.job import (
    Attempt,
    Elastic,
    ExitCause,
    ExitRecord,
    Failure,
    Job,
    Reason,
    Replica,
    ReplicaGroup,
    ReplicaState,
    Resources,
    Role,
)
from paddlecloud.model.jobs.spec_codec import spec_from_wire, spec_to_wire, with_job_type
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.model.policy.pool import Node

NOW = datetime(2020, 5, 17, tzinfo=UTC)
OK = ExitRecord(cause=ExitCause.EXIT, exit_code=0)
BAD = ExitRecord(cause=ExitCause.EXIT, exit_code=1)
SENT = ExitRecord(cause=ExitCause.STOPPED, signal=15)
TIMED = ExitRecord(cause=ExitCause.WALL_TIME, signal=15)
LOST = "lost"
RUNS = None
WIRE = {"start_cmd": "x", "snapshot": "sha256:" + "0" * 64, "job_type": "cpu"}
ONE = Resources(cpu=1.0)


def ended(second: int) -> ExitRecord:
    return replace(BAD, finished_at=NOW + timedelta(seconds=second))


def a_job(answered: str = "", told: str = elastic.REPLACED, **more: int) -> Job:
    spec = spec_from_wire({**WIRE, "min_instance": 1, "max_instance": 4, **more})
    params: dict[str, str | int | float | None] = {
        "answered": answered,
        "times": 2,
        "last": NOW.timestamp(),
    }
    shown = Failure(reason=Reason(code=told, params=params), worker="trainer-1")
    return Job(
        id="job-1",
        number=1,
        owner="ann",
        spec=spec,
        state=JobState.RUNNING,
        version=1,
        created_at=NOW,
        waiting_since=NOW,
        running_since=NOW,
        attempt=1,
        pool="local",
        failure=shown if answered or told != elastic.REPLACED else None,
    )


def an_attempt(*ends: ExitRecord | str | None, node: str = "n1") -> Attempt:
    return Attempt(
        job_id="job-1",
        number=1,
        fence=1,
        pool="local",
        created_at=NOW,
        replicas=tuple(_replica(rank, end, node) for rank, end in enumerate(ends)),
    )


def _replica(rank: int, end: ExitRecord | str | None, node: str) -> Replica:
    plain = Replica(
        id=f"r{rank}",
        role=Role.TRAINER,
        rank=rank,
        node=node,
        resources=ONE,
        state=ReplicaState.RUNNING,
        pid=1,
    )
    if end == LOST:
        return replace(plain, state=ReplicaState.LOST)
    if isinstance(end, ExitRecord):
        return replace(plain, state=ReplicaState.EXITED, exit=end)
    return plain


@pytest.mark.parametrize(
    ("ends", "answered", "want"),
    [
        ((RUNS, RUNS), "", None),
        ((BAD, RUNS), "", None),
        ((BAD, LOST), "", None),
        ((BAD, OK, OK), "0", Event.SUCCEEDED),
        ((BAD, OK), "", None),
        ((SENT, OK), "", Event.SUCCEEDED),
        ((SENT, LOST, OK, BAD, OK), "0-3", Event.SUCCEEDED),
        ((SENT, LOST, OK, BAD, OK), "3", None),
        ((OK, RUNS), "", None),
        ((BAD, TIMED, TIMED), "0", Event.WALL_TIME_OVER),
        ((TIMED, RUNS), "", None),
    ],
)
def test_what_comes_next(
    ends: tuple[ExitRecord | str | None, ...], answered: str, want: Event | None
) -> None:
    job, attempt = a_job(answered), an_attempt(*ends)
    step = outcome.settle(job, elastic.judged(job, attempt))
    assert (step[0] if step else None) == want


def test_one_that_ends_for_another_reason_names_that_and_not_what_was_replaced_before() -> None:
    job, attempt = a_job(told="fail_exit"), an_attempt(BAD, BAD, SENT)
    assert elastic.is_ending(job, attempt)
    step = outcome.settle(job, elastic.judged(job, attempt))
    assert step is not None
    assert step[0] is Event.BROKE
    assert step[1] is not None and step[1].worker == "trainer-1"


def test_a_job_of_the_other_kind_is_judged_as_it_is() -> None:
    job, attempt = a_job(), an_attempt(BAD, RUNS)
    plain = replace(job, spec=replace(job.spec, elastic=None))
    assert elastic.judged(plain, attempt) is attempt
    assert elastic.judged(replace(job, state=JobState.KILLING), attempt) is attempt
    assert elastic.judged(job, None) is None


def test_counting_in_a_row() -> None:
    job = a_job("0-1")
    failed = an_attempt(BAD, LOST, RUNS, BAD)
    assert [r.rank for r in elastic.unanswered(job, failed)] == [3]
    first, second = elastic.unanswered(job, an_attempt(BAD, BAD, ended(5), ended(3)))
    assert (first.rank, second.rank) == (3, 2)
    assert [elastic.is_own_fault(r) for r in failed.replicas] == [True, False, False, True]
    assert elastic.settled_ranks(failed, [failed.replicas[3]]) == "0-1"
    nothing = elastic.Streak(job, None)
    assert nothing.add(failed.replicas[1], NOW)  # a lost one counts for nothing
    assert [nothing.add(first, NOW), nothing.add(second, NOW)] == [True, False]


def test_several_that_are_heard_of_at_once_count_by_the_time_of_their_end() -> None:
    """One task was finished after the second of four: the next two begin a new row."""
    told = a_job("0")
    streak = elastic.Streak(told, NOW + timedelta(seconds=2.5))
    members = an_attempt(*(ended(second) for second in (1, 2, 3, 4, 5, 6))).replicas
    assert [(streak.add(r, NOW), streak.times) for r in members] == [
        (True, 1),
        (True, 1),
        (True, 1),
        (True, 2),
        (True, 3),
        (False, 4),
    ]


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1, 7, 9, 8], "0-2,7-9"), ([0, 2], "0,2")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert elastic.to_ranges(numbers) == text
    assert elastic.from_ranges(text) == set(numbers)


def test_how_far_it_may_grow_and_shrink() -> None:
    job = a_job(instance_count=2)
    attempt = an_attempt(RUNS, RUNS, RUNS)
    assert elastic.may_grow_by(job, attempt, set()) == 1
    assert elastic.may_grow_by(job, attempt, {"r1"}) == 2
    assert elastic.may_grow_by(replace(job, state=JobState.SCHEDULE), attempt, set()) == 0
    assert elastic.may_grow_by(job, an_attempt(RUNS, OK), set()) == 0
    assert elastic.may_grow_by(job, an_attempt(RUNS, BAD), set()) == 0
    assert [r.rank for r in elastic.may_leave(job, attempt, set())] == [2, 1]
    assert [r.rank for r in elastic.may_leave(job, attempt, {"r2"})] == [1]
    assert elastic.may_leave(job, an_attempt(RUNS), set()) == []


def test_as_few_leave_as_make_room() -> None:
    group = ReplicaGroup(role=Role.TRAINER, count=1, resources=Resources(cpu=2.0))
    nodes = tuple(Node(id=name, total=Resources(cpu=4.0, memory=8)) for name in ("n1", "n2"))
    wish = elastic.Wish(groups=(group,), machines=nodes)
    here = [*an_attempt(RUNS, RUNS, RUNS).replicas]
    there = [replace(here[0], id="x", node="n2")]
    none = {"n1": Resources(cpu=0.0), "n2": Resources(cpu=0.0)}
    assert elastic.who_leaves(wish, none, here) == here[:2]
    assert elastic.who_leaves(wish, none, [*there, *here]) == here[:2]
    assert elastic.who_leaves(wish, none, here[:1]) == []
    assert elastic.who_leaves(wish, {**none, "n2": Resources(cpu=2.0, memory=8)}, here) == []
    elsewhere = elastic.Wish(groups=(group,), machines=nodes[1:])
    assert elastic.who_leaves(elsewhere, none, here) == []


def test_the_spec_of_an_elastic_job() -> None:
    spec = spec_from_wire({**WIRE, "min_instance": 2, "max_instance": 5})
    assert spec.elastic == Elastic(least=2, most=5)
    assert (spec.instance_count, spec.distribute_mode, spec.is_gang) == (5, None, True)
    assert spec_from_wire(spec_to_wire(spec)) == spec
    assert [group.count for group in elastic.least_groups(spec)] == [2]
    served = spec_from_wire({**WIRE, "min_instance": 1, "max_instance": 1, "pservers": 2})
    assert [(group.role, group.count) for group in elastic.least_groups(served)] == [
        (Role.PSERVER, 2),
        (Role.TRAINER, 1),
    ]
    assert with_job_type(served, served.job_type or pytest.fail()) == served
