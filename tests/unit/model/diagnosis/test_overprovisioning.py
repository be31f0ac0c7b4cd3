"""Claims far above the use, and those that are not worth a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddlecloud.model.diagnosis.overprovisioning import MIB, advice, peak_memory
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Replica
from paddlecloud.testing import a_job, a_replica, a_spec

GIB = 1024 * MIB


def ended(peak: int | None = None, *, ran: float = 60.0, cpu: float | None = None) -> Replica:
    record = ExitRecord(
        cause=ExitCause.EXIT, exit_code=0, ran=ran, cpu_seconds=cpu, peak_memory=peak
    )
    return a_replica("job-1", exit=record)


@pytest.mark.parametrize(
    ("asked", "replica", "want"),
    [
        ({"memory": 4 * GIB}, ended(100 * MIB), ["asked_much_memory"]),
        ({"memory": 4 * GIB}, ended(2 * GIB), []),
        ({"memory": 512 * MIB}, ended(10 * MIB), []),
        ({"memory": 4 * GIB}, ended(None), []),
        ({"memory": 4 * GIB}, a_replica("job-1"), []),
        ({"cpu": 8.0, "cpu_limited": True}, ended(ran=1000, cpu=1000), ["asked_much_cpu"]),
        ({"cpu": 8.0, "cpu_limited": True}, ended(ran=1000, cpu=7000), []),
        ({"cpu": 8.0, "cpu_limited": True}, ended(ran=500, cpu=10), []),
        ({"cpu": 8.0, "cpu_limited": True}, ended(ran=1000, cpu=None), []),
        ({"cpu": 1.0}, ended(ran=1000, cpu=1), []),
    ],
)
def test_what_is_worth_a_word(asked: dict[str, float], replica: Replica, want: list[str]) -> None:
    job = a_job(spec=a_spec(**asked))  # type: ignore[arg-type]
    assert [reason.code for reason in advice(job, (replica,), {})] == want


def test_the_hungriest_worker_speaks_for_all() -> None:
    job = a_job(spec=a_spec(memory=4 * GIB))
    small, large = ended(100 * MIB), replace(ended(3 * GIB), id="job-1.1.trainer-1", rank=1)
    assert advice(job, (small, large), {}) == []


def test_a_peak_that_was_seen_live_counts_too() -> None:
    job, replica = a_job(spec=a_spec(memory=4 * GIB)), ended(100 * MIB)
    assert advice(job, (replica,), {replica.id: 3 * GIB}) == []
    assert peak_memory(replica, 3 * GIB) == 3 * GIB
    assert peak_memory(a_replica("job-1")) == 0
    (told,) = advice(job, (replica,), {})
    assert told.params == {"job_id": job.id, "asked": 4096, "used": 101}
