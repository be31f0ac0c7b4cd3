"""The queue of tasks against a model of it: whatever trainers do in whatever order, each task is
counted once per pass or given up, and nobody's late word counts."""

from __future__ import annotations

import itertools
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import data_tasks
from paddlecloud.model.jobs.data_tasks import TaskSet, TaskState, Verdict
from tests.unit.db.values import NOW, waiting

REPLICAS = ("r0", "r1", "r2")
LEASE = timedelta(seconds=60)
_names = itertools.count()
_folder = tempfile.TemporaryDirectory()
_db = open_sqlite(Path(_folder.name) / "tasks.db", now=NOW)
_job = _db.write(lambda tx: waiting(tx).id)


class Queue(RuleBasedStateMachine):
    """`in_hand` is what each holder believes; `counted` what the model has counted."""

    @initialize(count=st.integers(1, 5), passes=st.integers(1, 3), failure_max=st.integers(1, 3))
    def define(self, count: int, passes: int, failure_max: int) -> None:
        self.now = NOW
        self.count, self.passes = count, passes
        self.live = set(REPLICAS)
        self.in_hand: list[tuple[str, int, int, int]] = []
        self.counted: list[tuple[int, int]] = []
        self.gave_up = 0
        new = TaskSet(
            job_id=_job,
            name=f"s{next(_names)}",
            digest="d",
            passes=passes,
            failure_max=failure_max,
            current=0,
            created_at=NOW,
        )
        self.name = new.name
        _db.write(
            lambda tx: data_tasks.define(tx, new, [str(n) for n in range(count)]), durable=False
        )

    @rule(replica=st.sampled_from(REPLICAS), count=st.integers(1, 3))
    def lease(self, replica: str, count: int) -> None:
        def take(tx: Tx) -> None:
            known, _ = data_tasks.take_back(tx, self.known(tx), self.live, {"r2"}, self.now)
            for task in data_tasks.lease(tx, known, f"{replica}/x", count, self.now + LEASE):
                self.in_hand.append((task.holder, task.number, task.fence, known.current))

        if replica in self.live:
            _db.write(take, durable=False)

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, 1000), again=st.booleans())
    def finish(self, which: int, again: bool) -> None:
        holder, number, fence, turn = self.in_hand[which % len(self.in_hand)]

        def count(tx: Tx) -> Verdict:
            known = self.known(tx)
            held = {(t.number, t.fence) for t in data_tasks.held_by(tx, known, holder)}
            verdict, _ = data_tasks.finish(tx, known, holder, number, fence, turn, self.now)
            assert (verdict is Verdict.COUNTED) == ((number, fence) in held)
            return verdict

        for _ in range(1 + again):
            if _db.write(count, durable=False) is Verdict.COUNTED:
                assert (turn, number) not in self.counted
                self.counted.append((turn, number))

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0, 1000), counts=st.booleans())
    def fail(self, which: int, counts: bool) -> None:
        holder, number, fence, _turn = self.in_hand.pop(which % len(self.in_hand))

        def put_back(tx: Tx) -> TaskState | None:
            return data_tasks.put_back(tx, self.known(tx), holder, number, fence, counts=counts)[0]

        _db.write(put_back, durable=False)

    @rule(replica=st.sampled_from(REPLICAS))
    def die(self, replica: str) -> None:
        self.live.discard(replica)

    @rule(replica=st.sampled_from(REPLICAS))
    def come_back(self, replica: str) -> None:
        self.live.add(replica)

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def the_books_agree(self) -> None:
        if not hasattr(self, "name"):
            return
        tally = _db.read(lambda tx: data_tasks.tallies(tx, _job, self.name))[0]
        assert tally.finished == len(self.counted) == len(set(self.counted))
        assert tally.todo + tally.leased + tally.done + tally.given_up == self.count
        assert tally.given_up_ever >= 0
        assert tally.current <= self.passes
        before = [pair for pair in self.counted if pair[0] < tally.current]
        current = tally.given_up if tally.current < self.passes else 0
        assert len(before) + tally.given_up_ever - current == tally.current * self.count
        if tally.current < self.passes:
            assert tally.todo + tally.leased > 0, "a pass that is over has a next one"

    def teardown(self) -> None:
        """Whatever happened, one trainer alone gets to the end."""
        if not hasattr(self, "name"):
            return
        self.now += 2 * LEASE
        for _ in range(self.count * self.passes * 2 + 2):
            found: list[tuple[str, int, int, int]] = []
            self.in_hand = found
            self.live = {"r0"}
            self.lease("r0", 3)
            if not found:
                break
            for which in range(len(found)):
                self.finish(which, again=False)
        tally = _db.read(lambda tx: data_tasks.tallies(tx, _job, self.name))[0]
        assert tally.current == self.passes
        assert len(self.counted) + tally.given_up_ever == self.count * self.passes

    def known(self, tx: Tx) -> TaskSet:
        found = data_tasks.get_set(tx, _job, self.name)
        assert found is not None
        return found


class TestQueue(Queue.TestCase):  # type: ignore[misc, valid-type]  # made at run time
    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        _db.close()
        _folder.cleanup()


TestQueue.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
