"""The message about a job that failed on a full disk, by the supervisor or by its log."""

from __future__ import annotations

import pytest

from paddlecloud.messages import render
from paddlecloud.model.diagnosis.exit_status import diagnose_exit
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Resources

LINE = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("message", "tail", "want"),
    [
        ("/disk/job: 0 bytes free", b"step 1\n", "/disk/job: 0 bytes free"),
        ("", f"step 1\n{LINE}\n".encode(), LINE),
    ],
    ids=["the supervisor saw it", "the log says it"],
)
def test_a_full_disk_is_named(message: str, tail: bytes, want: str) -> None:
    record = ExitRecord(cause=ExitCause.EXIT, exit_code=1, message=message)
    reason, advice = diagnose_exit("job-1", "trainer-0", record, Resources(), tail)
    said = render(reason.code, reason.params, "en")
    assert said == f"trainer-0 exited with code 1 because a disk was full: {want}"
    assert want in render(reason.code, reason.params, "zh")
    assert advice is not None
    assert "job-1" in render(advice.code, advice.params, "en")


def test_other_failures_are_not_blamed_on_the_disk() -> None:
    record = ExitRecord(cause=ExitCause.EXIT, exit_code=1)
    reason, _ = diagnose_exit("job-1", "trainer-0", record, Resources(), b"ValueError: wrong\n")
    assert reason.code == "fail_exit_error"
