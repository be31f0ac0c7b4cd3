"""From what is known of the replicas to the next event of the job, and to the cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.messages import render
from paddlecloud.model.diagnosis.outcome import (
    Outcome,
    explain,
    has_started,
    moment,
    outcome,
    settle,
    trouble,
    unsent,
    wants_stop,
)
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Failure,
    Job,
    Reason,
    Replica,
    ReplicaState,
    Role,
)
from paddlecloud.model.jobs.states import FINAL, TRANSITIONS, Event, JobState
from tests.unit.model.builders import NOW, a_job, a_replica, a_spec, an_attempt, ended

OK = ended(0)
STOPPED = ended(by_signal=15, cause=ExitCause.STOPPED)
WALL_TIME = ended(by_signal=15, cause=ExitCause.WALL_TIME)
START_FAILED = ended(cause=ExitCause.START_FAILED, ran=False, message="ENOENT")
PORT_TAKEN = ended(cause=ExitCause.PORT_TAKEN, ran=False)
ORDERED = a_replica(state=ReplicaState.ORDERED)
LOST = a_replica(state=ReplicaState.LOST)


def the_end(job: Job, attempt: Attempt | None) -> tuple[list[Event], Job]:
    """Applies what `settle` says until it says nothing more, as the server does."""
    events = []
    while (answer := settle(job, attempt)) is not None:
        event, failure = answer
        events.append(event)
        job = job.after(event, now=NOW, failure=failure)
        assert len(events) < 5, "it never comes to an end"
    return events, job


@pytest.mark.parametrize(
    ("replica", "want"),
    [
        (ORDERED, []),
        (a_replica(), [Event.STARTED]),
        (a_replica(ended=OK), [Event.STARTED, Event.SUCCEEDED]),
        (a_replica(ended=ended(1)), [Event.STARTED, Event.BROKE]),
        (a_replica(ended=WALL_TIME), [Event.STARTED, Event.WALL_TIME_OVER]),
        (a_replica(ended=START_FAILED), [Event.BROKE]),
        (a_replica(ended=ended(cause=ExitCause.STOPPED, ran=False)), [Event.BROKE]),
        (LOST, [Event.BROKE]),
        (a_replica(state=ReplicaState.LOST, pid=7), [Event.STARTED, Event.BROKE]),
        (a_replica(state=ReplicaState.EXITED), [Event.BROKE]),
    ],
)
def test_a_placed_job_of_one_replica(replica: Replica, want: list[Event]) -> None:
    events, job = the_end(a_job(state=JobState.SCHEDULE), an_attempt(replica))
    assert events == want
    if want and want[-1] in (Event.BROKE, Event.WALL_TIME_OVER):
        assert job.failure is not None


ALL_ENDED = ExitRecord(cause=ExitCause.UNWATCHED, all_ended=True)
SOME_MAY_RUN = ExitRecord(cause=ExitCause.UNWATCHED)


@pytest.mark.parametrize(
    ("replica", "code"),
    [
        (a_replica(ended=OK), "killed_running"),
        (a_replica(ended=ended(1)), "killed_running"),
        (a_replica(state=ReplicaState.LOST, ended=ALL_ENDED), "killed_running"),
        (a_replica(state=ReplicaState.LOST, ended=SOME_MAY_RUN), "killed_unwatched"),
        (LOST, "killed_lost"),
    ],
)
def test_a_job_that_is_being_killed_ends_killed_whatever_its_replica_did(
    replica: Replica, code: str
) -> None:
    events, job = the_end(a_job(state=JobState.KILLING, kill_asked=True), an_attempt(replica))
    assert events == [Event.STOPPED]
    assert job.state is JobState.KILLED
    assert job.failure is not None
    assert job.failure.reason.code == code
    said = render(code, job.failure.reason.params, "en")
    assert ("may still be running" in said) is (code != "killed_running")
    assert (job.failure.advice is not None) is (code != "killed_running")


KEPT = Reason(
    code="unsent_kept", params={"files": "f", "reason": "r", "host": "h", "place": "p", "days": 7}
)


@pytest.mark.parametrize("cause", [ExitCause.STOPPED, ExitCause.OUTPUTS_LOST])
def test_a_killed_job_names_what_was_not_stored(cause: ExitCause) -> None:
    replica = a_replica(ended=replace(ended(0, cause=cause), said=KEPT))
    _, job = the_end(a_job(state=JobState.KILLING, kill_asked=True), an_attempt(replica))
    assert job.failure is not None
    said = render(job.failure.reason.code, job.failure.reason.params, "en")
    assert said == (
        "killed on request while running; these outputs were not stored: "
        "f (r); they are kept for 7 days on h in p, unless its disk is full; if that machine is "
        "not yours, ask an admin for them"
    )
    assert unsent(job, [replica]) is None, "it is said already"


def test_a_job_that_failed_otherwise_names_them_beside_it() -> None:
    replica = a_replica(ended=replace(ended(3), said=KEPT))
    told = unsent(a_job(), [replica])
    assert told is not None
    assert "not store these outputs: f (r); they are kept for 7 days" in render(
        told.code, told.params, "en"
    )
    lost = a_replica(ended=replace(ended(0, cause=ExitCause.OUTPUTS_LOST), said=KEPT))
    assert unsent(a_job(), [lost]) is None, "its end says it"


@pytest.mark.parametrize(
    ("public_bos", "want"), [(True, "advice_not_executable"), (False, "advice_no_rights")]
)
def test_a_file_of_a_bucket_cannot_be_made_executable(public_bos: bool, want: str) -> None:
    job = a_job(state=JobState.RUNNING, spec=a_spec(public_bos=public_bos))
    replica = a_replica(ended=ended(126))
    tails = {replica.worker: b"sh: 1: ./run.sh: Permission denied\n"}
    answer = settle(job, an_attempt(replica), tails)
    assert answer is not None
    assert answer[1] is not None
    assert answer[1].advice == Reason(code=want, params={"command": "./run.sh"})


@pytest.mark.parametrize("public_bos", [True, False])
def test_no_store_is_blamed_for_an_output_that_could_not_be_read(public_bos: bool) -> None:
    why = {"path": "f", "reason": "r"}
    kept = caused("unsent_kept", "output_unreadable", why, files="f", host="h", place="p", days=7)
    job = a_job(spec=a_spec(public_bos=public_bos))
    told = unsent(job, [a_replica(ended=replace(ended(0), said=kept))])
    assert told is not None
    assert render(told.code, told.params, "en").startswith("these outputs were not sent: f (can")


NOT_BEGUN = a_replica(ended=ended(cause=ExitCause.STOPPED, ran=False))


@pytest.mark.parametrize(
    ("replicas", "ran_before", "want"),
    [
        ([NOT_BEGUN], False, "killed_waiting"),
        ([NOT_BEGUN], True, "killed_between"),
        ([NOT_BEGUN, a_replica(rank=1, ended=STOPPED)], False, "killed_running"),
        ([NOT_BEGUN, a_replica(rank=1, state=ReplicaState.LOST)], False, "killed_lost"),
    ],
    ids=["before its start", "before its next start", "one had begun", "one is unknown"],
)
def test_a_job_that_is_killed_before_its_command_began_did_not_run(
    replicas: list[Replica], ran_before: bool, want: str
) -> None:
    started_at = NOW if ran_before else None
    job = a_job(state=JobState.KILLING, kill_asked=True, started_at=started_at)
    events, job = the_end(job, an_attempt(*replicas))
    assert events == [Event.STOPPED]
    assert job.failure is not None
    assert job.failure.reason.code == want


def test_a_job_is_not_killed_before_all_of_it_is_gone() -> None:
    job = a_job(state=JobState.KILLING)
    assert settle(job, an_attempt(a_replica())) is None
    assert settle(job, an_attempt(ORDERED)) is None


def test_a_job_that_is_killed_while_it_waits_has_nothing_to_wait_for() -> None:
    events, job = the_end(a_job(state=JobState.KILLING, pool=None, attempt=0), None)
    assert events == [Event.STOPPED]
    assert job.failure is not None
    assert job.failure.reason.code == "killed_waiting"


@pytest.mark.parametrize(
    ("replica", "retries", "want"),
    [
        (LOST, 0, Event.BROKE),
        (LOST, 1, Event.ATTEMPT_LOST),
        (a_replica(ended=ended(1)), 1, Event.BROKE),
        (a_replica(ended=ended(101)), 1, Event.ATTEMPT_LOST),
        (a_replica(ended=ended(102)), 0, Event.BROKE),
        (a_replica(ended=ended(by_signal=9)), 1, Event.BROKE),
        (a_replica(ended=ended(127)), 1, Event.BROKE),
        (a_replica(ended=ended(126)), 1, Event.BROKE),
        (a_replica(ended=WALL_TIME), 1, Event.WALL_TIME_OVER),
        (a_replica(ended=OK), 1, Event.SUCCEEDED),
    ],
)
def test_retries_are_used_where_they_may_help(replica: Replica, retries: int, want: Event) -> None:
    job = a_job(spec=a_spec(max_retries=retries))
    answer = settle(job, an_attempt(replica))
    assert answer is not None
    assert answer[0] is want


def test_the_last_retry_is_the_last() -> None:
    job = a_job(spec=a_spec(max_retries=2), attempt=3, retried=2)
    answer = settle(job, an_attempt(LOST, number=3))
    assert answer is not None
    assert answer[0] is Event.BROKE


def test_an_attempt_that_its_pool_refused_is_no_retry() -> None:
    job = a_job(spec=a_spec(max_retries=1), attempt=3, retried=0)
    answer = settle(job, an_attempt(LOST, number=3))
    assert answer is not None
    assert answer[0] is Event.ATTEMPT_LOST


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_what_happened_has_the_time_that_its_replica_tells() -> None:
    job, running = a_job(), replace(a_job(), running_since=later(3))
    begun = an_attempt(a_replica(started_at=later(4)), a_replica(rank=1, started_at=later(3)))
    over = an_attempt(a_replica(ended=ended(0, after=5)), a_replica(rank=1, ended=ended(0)))
    half = an_attempt(a_replica(ended=ended(0, after=5)), a_replica(rank=1))
    assert moment(Event.STARTED, job, begun, later(60)) == later(3)
    assert moment(Event.STARTED, job, over, later(60)) == NOW
    assert moment(Event.SUCCEEDED, running, over, later(60)) == later(10)
    assert moment(Event.BROKE, running, half, later(60)) == later(60)
    assert moment(Event.STOPPED, job, None, later(60)) == later(60)


@pytest.mark.parametrize(("told", "want"), [(-3600, 0), (3600, 60), (30, 30)])
def test_a_clock_that_is_wrong_is_believed_as_far_as_it_can_be(told: int, want: int) -> None:
    attempt = an_attempt(a_replica(started_at=later(told)))
    assert moment(Event.STARTED, a_job(), attempt, later(60)) == later(want)
    over = an_attempt(a_replica(ended=ended(0, after=told)))
    assert moment(Event.SUCCEEDED, a_job(), over, later(60)) == later(want)
    running = a_job(running_since=later(40))
    assert moment(Event.BROKE, running, over, later(60)) == later(max(want, 40))


@pytest.mark.parametrize(
    ("record", "code"), [(ALL_ENDED, "fail_unwatched"), (SOME_MAY_RUN, "fail_unwatched_left")]
)
def test_a_killed_supervisor_is_not_told_as_a_silent_machine(record: ExitRecord, code: str) -> None:
    attempt = an_attempt(a_replica(state=ReplicaState.LOST, ended=record))
    failure = explain(a_job(), attempt, {})
    assert failure is not None
    assert (failure.reason.code, failure.exit_code) == (code, None)
    said = render(failure.reason.code, failure.reason.params, "en")
    assert "the supervisor of trainer-0" in said
    assert ("all its processes were stopped" in said) is record.all_ended
    assert ("may still be running" in said) is not record.all_ended
    assert failure.advice is not None
    assert "--max_retries (now 0)" in render(failure.advice.code, failure.advice.params, "en")
    assert outcome(attempt) is Outcome.LOST
    events, _ = the_end(a_job(spec=a_spec(max_retries=5)), attempt)
    assert events == [Event.ATTEMPT_LOST]


def test_a_worker_that_printed_nothing_has_no_last_lines_to_look_at() -> None:
    for printed, code in ((0, "advice_log_empty"), (3, "advice_log")):
        silent = replace(a_replica(ended=ended(7)), log_bytes=printed)
        failure = explain(a_job(), an_attempt(silent), {})
        assert failure is not None
        assert failure.advice is not None
        assert failure.advice.code == code


def test_a_lost_attempt_is_lost_once() -> None:
    attempt = an_attempt(LOST)
    events, job = the_end(a_job(spec=a_spec(max_retries=5)), attempt)
    assert events == [Event.ATTEMPT_LOST]
    assert (job.state, job.pool) == (JobState.SCHEDULE, None)
    placed_again = replace(job, pool="local", attempt=2)
    assert settle(placed_again, attempt) is None
    assert settle(placed_again, an_attempt(LOST, number=2, ended_at=NOW)) is None


def trainer(rank: int, **changes: object) -> Replica:
    return a_replica(rank=rank, **changes)  # type: ignore[arg-type]


def pserver(rank: int, **changes: object) -> Replica:
    return a_replica(role=Role.PSERVER, rank=rank, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replicas", "stop", "want"),
    [
        ([trainer(0), trainer(1)], False, None),
        ([trainer(0, ended=OK), trainer(1)], False, None),
        ([trainer(0, ended=ended(3)), trainer(1)], True, None),
        ([trainer(0, ended=OK), pserver(0)], True, None),
        ([trainer(0, ended=OK), pserver(0, ended=STOPPED)], False, Outcome.SUCCEEDED),
        ([trainer(0, ended=OK), pserver(0, ended=ended(by_signal=6))], False, Outcome.SUCCEEDED),
        ([trainer(0), pserver(0, ended=ended(1))], True, None),
        ([trainer(0, ended=STOPPED), pserver(0, ended=ended(1, after=50))], False, Outcome.BROKE),
        ([trainer(0, ended=OK), trainer(1, ended=ended(1))], False, Outcome.BROKE),
        ([trainer(0, ended=OK), trainer(1, state=ReplicaState.LOST)], False, Outcome.LOST),
        ([trainer(0, ended=STOPPED), trainer(1, ended=WALL_TIME)], False, Outcome.WALL_TIME),
        ([trainer(0, ended=STOPPED)], False, Outcome.STOPPED),
    ],
)
def test_a_gang_ends_as_a_whole(replicas: list[Replica], stop: bool, want: Outcome | None) -> None:
    attempt = an_attempt(*replicas)
    assert wants_stop(attempt) is stop
    assert outcome(attempt) is want


@pytest.mark.parametrize(
    ("replicas", "want"),
    [
        ([trainer(0), trainer(1, state=ReplicaState.ORDERED)], False),
        ([trainer(0), trainer(1)], True),
        ([trainer(0), pserver(0)], True),
        ([trainer(0, ended=OK), trainer(1, state=ReplicaState.ORDERED)], True),
        ([trainer(0), trainer(1, ended=START_FAILED)], False),
        ([trainer(0, ended=STOPPED), trainer(1, ended=START_FAILED)], False),
        ([trainer(0), trainer(1, ended=PORT_TAKEN)], False),
        ([trainer(0, ended=OK), pserver(0, ended=PORT_TAKEN)], True),
        (
            [
                trainer(0, ended=WALL_TIME),
                trainer(1, ended=replace(START_FAILED, finished_at=NOW + timedelta(seconds=20))),
            ],
            True,
        ),
    ],
)
def test_a_gang_has_started_when_all_of_it_has(replicas: list[Replica], want: bool) -> None:
    job = a_job(state=JobState.SCHEDULE, spec=a_spec(trainers=2))
    step = settle(job, an_attempt(*replicas))
    assert has_started(an_attempt(*replicas)) is want
    assert (step is not None and step[0] is Event.STARTED) is want


def test_the_cause_is_written_before_the_rest_is_stopped() -> None:
    job, tails = a_job(spec=a_spec(trainers=2)), {"trainer-1": b"boom\n"}
    attempt = an_attempt(trainer(0), trainer(1, ended=ended(3)))
    told = trouble(job, attempt, tails)
    assert told is not None
    assert (told.worker, told.exit_code, told.last_lines) == ("trainer-1", 3, ("boom",))
    known = replace(job, failure=told)
    assert trouble(known, attempt, {}) is None, "nothing new"
    over = an_attempt(trainer(0, ended=STOPPED), trainer(1, ended=ended(3)))
    assert settle(known, over, {"trainer-0": b"stopped\n"}) == (Event.BROKE, told)


def test_there_is_nothing_to_write_while_it_goes_well_or_is_killed() -> None:
    job = a_job(spec=a_spec(trainers=2))
    failing = an_attempt(trainer(0), trainer(1, ended=ended(3)))
    assert trouble(job, an_attempt(trainer(0), trainer(1)), {}) is None
    assert trouble(job, an_attempt(trainer(0), trainer(1, ended=OK)), {}) is None
    assert trouble(job, None, {}) is None
    assert trouble(replace(job, kill_asked=True), failing, {}) is None


def test_the_first_failure_in_time_is_the_cause_and_its_peers_only_follow() -> None:
    attempt = an_attempt(
        trainer(0, ended=ended(by_signal=6, after=10.3)),
        trainer(1, ended=ended(3, after=10.0)),
        trainer(2, ended=STOPPED),
    )
    failure = explain(a_job(), attempt, {"trainer-0": b"peer is gone\n", "trainer-1": b"boom\n"})
    assert failure is not None
    assert (failure.worker, failure.exit_code) == ("trainer-1", 3)
    assert failure.last_lines == ("boom",)


def test_a_failure_names_worker_code_and_last_lines() -> None:
    tail = b"".join(b"step %d\n" % n for n in range(50))
    attempt = an_attempt(a_replica(ended=ended(by_signal=11)))
    failure = explain(a_job(), attempt, {"trainer-0": tail})
    assert failure is not None
    assert (failure.worker, failure.exit_code) == ("trainer-0", 139)
    assert failure.last_lines == tuple(f"step {n}" for n in range(30, 50))
    assert failure.reason.code == "fail_segv"


def test_nothing_is_explained_while_it_goes_well() -> None:
    assert explain(a_job(), an_attempt(a_replica()), {}) is None
    assert explain(a_job(), an_attempt(a_replica(ended=OK)), {}) is None


def test_the_wall_time_is_named() -> None:
    job = a_job(spec=a_spec(wall_time=timedelta(minutes=30)))
    failure = explain(job, an_attempt(a_replica(ended=WALL_TIME)), {})
    assert failure is not None
    assert "00:30:00" in render(failure.reason.code, failure.reason.params, "en")
    assert failure.advice is not None


def test_a_lost_machine_is_named() -> None:
    failure = explain(a_job(), an_attempt(LOST), {"trainer-0": b"last words\n"})
    assert failure is not None
    assert "node-1" in render(failure.reason.code, failure.reason.params, "zh")
    assert failure.last_lines == ("last words",)


_records = st.builds(
    ended,
    st.sampled_from([None, 0, 1, 126, 127, 137]),
    by_signal=st.sampled_from([None, 9, 11]),
    cause=st.sampled_from(list(ExitCause)),
    after=st.integers(0, 100),
    ran=st.booleans(),
    oom=st.booleans(),
)
_replicas = st.builds(
    a_replica,
    role=st.sampled_from(list(Role)),
    rank=st.integers(0, 3),
    state=st.sampled_from(list(ReplicaState)),
    ended=st.none() | _records,
    pid=st.none() | st.just(7),
)
_jobs = st.builds(
    a_job,
    state=st.sampled_from(list(JobState)),
    spec=st.builds(a_spec, max_retries=st.integers(0, 2)),
    pool=st.sampled_from([None, "local"]),
    attempt=st.integers(0, 2),
    kill_asked=st.booleans(),
)


@given(_jobs, st.lists(_replicas, min_size=1, max_size=4), st.integers(1, 2))
def test_every_event_is_legal_and_a_final_one_waits_for_the_last_replica(
    job: Job, replicas: list[Replica], number: int
) -> None:
    attempt = an_attempt(*replicas, number=number)
    answer = settle(job, attempt)
    if answer is None:
        return
    event, failure = answer
    after = TRANSITIONS[job.state, event]
    if after in FINAL:
        current = job.pool is not None and job.attempt == number
        assert attempt.over or not current
    if event in (Event.BROKE, Event.WALL_TIME_OVER, Event.ATTEMPT_LOST, Event.STOPPED):
        assert failure is not None or not any(r.role is Role.TRAINER for r in replicas)
    if event is Event.SUCCEEDED:
        trainers = [r for r in replicas if r.role is Role.TRAINER]
        assert trainers
        assert all(r.exit is not None and r.exit.ok for r in trainers)


@given(_jobs, st.lists(_replicas, min_size=1, max_size=4), st.integers(1, 2))
def test_settling_comes_to_an_end_and_a_finished_attempt_leaves_nobody_waiting(
    job: Job, replicas: list[Replica], number: int
) -> None:
    attempt = an_attempt(*replicas, number=number)
    current = job.pool is not None and job.attempt == number
    busy = job.state in (JobState.SCHEDULE, JobState.RUNNING, JobState.KILLING)
    events, after = the_end(job, attempt)
    if current and attempt.over and busy:
        assert events
        assert after.final or events[-1] is Event.ATTEMPT_LOST


@given(_jobs, st.lists(_replicas, min_size=1, max_size=4), st.randoms())
def test_the_order_of_the_replicas_changes_nothing(
    job: Job, replicas: list[Replica], chance: object
) -> None:
    unique = {replica.worker: replica for replica in replicas}
    mixed = list(unique.values())
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    # For one that was killed speaks the first worker, in the order of the attempt.
    if job.state is not JobState.KILLING and not job.kill_asked:
        assert settle(job, an_attempt(*unique.values())) == settle(job, an_attempt(*mixed))


PREEMPTED = ended(by_signal=15, cause=ExitCause.PREEMPTED)
MADE_ROOM = Failure(
    reason=Reason(code="preempted", params={"for_job": "job-9", "by": "high", "own": "low"})
)


@pytest.mark.parametrize("retries", [0, 2])
def test_an_attempt_that_made_room_is_tried_again_and_no_retry_is_counted(retries: int) -> None:
    job = a_job(spec=a_spec(max_retries=retries), failure=MADE_ROOM, running_since=NOW)
    answer = settle(job, an_attempt(a_replica(ended=PREEMPTED)))
    assert answer is not None
    event, failure = answer
    assert event is Event.ATTEMPT_LOST
    assert failure is not None
    assert failure.reason == MADE_ROOM.reason
    after = job.after(event, now=NOW, reason=failure.reason, failure=failure)
    assert (after.state, after.retried, after.number) == (JobState.SCHEDULE, 0, job.number)
    assert outcome(an_attempt(a_replica(ended=PREEMPTED))) is Outcome.PREEMPTED


def test_who_made_room_before_it_began_never_ran() -> None:
    unstarted = an_attempt(a_replica(ended=ended(cause=ExitCause.PREEMPTED, ran=False)))
    events, _ = the_end(a_job(state=JobState.SCHEDULE), unstarted)
    assert events == [Event.ATTEMPT_LOST]


def test_a_rank_that_broke_before_its_peers_made_room_is_the_cause() -> None:
    broke, peer = trainer(0, ended=ended(3)), trainer(1, ended=PREEMPTED)
    assert settle(a_job(), an_attempt(broke, peer)) is not None
    assert outcome(an_attempt(broke, peer)) is Outcome.BROKE
