"""The classification example with real PaddlePaddle: alone, sharded, and after a failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paddle.researcher import Finished, Researcher

PASS = r"(?m)^pass (\d+) loss (\S+) accuracy (\S+) "
PASSES = 4
TWO = ("--instance_count=2", "--job_type=cpu")


@pytest.fixture(scope="module")
def alone(researcher: Researcher, modern: Path) -> Finished:
    return researcher.submits("plsc", modern)


def passes(log: str) -> list[tuple[int, float, float]]:
    return [(int(a), float(b), float(c)) for a, b, c in re.findall(PASS, log)]


def test_it_learns_and_keeps_a_checkpoint_of_every_pass(alone: Finished) -> None:
    assert alone.code == 0, alone.told
    told = passes(alone.logs["trainer-0"])
    assert [number for number, _, _ in told] == list(range(PASSES))
    assert told[-1][1] < told[0][1] / 5
    assert told[-1][2] > 0.9
    for number in range(PASSES):
        for name in ("network.pdparams", "classes-0-of-1.pdparams", "optimizer.pdopt"):
            assert f"rank-0/{number}/{name}" in alone.files


def test_two_trainers_that_share_the_classes_learn_what_one_learns(
    alone: Finished, researcher: Researcher, modern: Path
) -> None:
    job = researcher.types(modern, "plsc", *TWO)
    assert job.code == 0, job.told
    assert "last layer in 2 parts" in job.logs["trainer-1"]
    checksums = job.every(r"(?m)^checksum (\S+)$")
    assert set(checksums) == {"trainer-0", "trainer-1"}
    assert len(set(checksums.values())) == 1
    want = passes(alone.logs["trainer-0"])
    for worker in ("trainer-0", "trainer-1"):
        for told, meant in zip(passes(job.logs[worker]), want, strict=True):
            assert told == pytest.approx(meant, rel=0.02, abs=0.01)
    for rank in (0, 1):
        assert f"rank-{rank}/{PASSES - 1}/classes-{rank}-of-2.pdparams" in job.files
    assert "rank-1/0/network.pdparams" not in job.files


def test_every_trainer_may_have_all_classes(researcher: Researcher, modern: Path) -> None:
    job = researcher.types(modern, "plsc", *TWO, "--start_cmd=sh run.sh --shard 0 --passes 1")
    assert job.code == 0, job.told
    assert "last layer in 1 part" in job.logs["trainer-0"]
    checksums = job.every(r"(?m)^checksum (\S+)$")
    assert len(checksums) == 2
    assert len(set(checksums.values())) == 1


def test_the_trainer_that_broke_is_named_and_not_the_one_that_missed_it(
    researcher: Researcher, modern: Path
) -> None:
    broken = (
        "if [ $PADDLE_TRAINER_ID = 1 ]; then sh run.sh --passes 1; exit 3; fi; "
        "sh run.sh --passes 500"
    )
    job = researcher.types(modern, "plsc", *TWO, f"--start_cmd={broken}")
    assert job.code == 1
    assert job.view["job_status"] == "failed"
    assert job.view["failure"]["worker"] == "trainer-1"
    assert job.view["exit_code"] == 3
    assert "rank-0/0/network.pdparams" in job.files, "what was saved before the failure is kept"


def test_another_attempt_goes_on_after_the_last_pass(researcher: Researcher, modern: Path) -> None:
    """101 is how a Paddle job asks to be started again."""
    once = (
        "if [ ! -e $OUTPUT_PATH/1 ]; then sh run.sh --passes 2; exit 101; fi; sh run.sh --passes 3"
    )
    job = researcher.types(modern, "plsc", *TWO, "--max_retries=1", f"--start_cmd={once}")
    assert job.code == 0, job.told
    assert job.view["attempts"] == 2
    for worker in ("trainer-0", "trainer-1"):
        assert "going on after pass 1" in job.logs[worker]
        assert [number for number, _, _ in passes(job.logs[worker])] == [2]
