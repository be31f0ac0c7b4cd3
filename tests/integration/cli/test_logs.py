"""`paddlecloud logs` on real jobs: all workers, the one that failed, by time and by pattern."""

from __future__ import annotations

import pytest

from tests.integration.cli.person import Person

#: The second fails when the first has said all: nobody stops it before.
GANG = (
    'echo "rank $PADDLE_TRAINER_ID begins"; printf "10%%\\r20%%\\r\\n"; '
    'echo "loss 0.$PADDLE_TRAINER_ID"; [ "$PADDLE_TRAINER_ID" = 1 ] || exec touch "$SAID"; '
    'until [ -e "$SAID" ]; do sleep 0.02; done; exit 7'
)


@pytest.fixture(scope="module")
def gang(shared: Person) -> str:
    """A job of two trainers, of which the second has failed."""
    source = shared.here / "gang"
    source.mkdir()
    done = shared.types(
        *("submit_job", f"--files={source}", f"--start_cmd={GANG}", "--job_type=cpu"),
        *("--instance_count=2", "--distribute_job_type=NCCL2", f"--env=SAID={shared.here}/said"),
    )
    assert done.code == 0, done.err
    job_id = done.out.removeprefix("job_id: ").strip()
    assert shared.waits_for(job_id)["job_status"] == "failed"
    return job_id


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_all_workers_with_their_names(shared: Person, gang: str, follow: tuple[str, ...]) -> None:
    done = shared.types("logs", gang, "--merge", *follow)
    assert done.code == 0, done.err
    second = [line for line in done.out.split("\n") if line.startswith("[trainer-1]")]
    assert second == [
        "[trainer-1] rank 1 begins",
        "[trainer-1] 10%\r[trainer-1] 20%\r",
        "[trainer-1] loss 0.1",
    ]
    assert "[trainer-0] rank 0 begins" in done.out


def test_the_worker_that_failed(shared: Person, gang: str) -> None:
    done = shared.types("logs", gang, "--failed")
    assert done.out == "rank 1 begins\n10%\r20%\r\nloss 0.1\n"
    assert shared.types("logs", gang, "--failed", "-n1").out == "loss 0.1\n"


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_lines_that_match(shared: Person, gang: str, follow: tuple[str, ...]) -> None:
    assert shared.types("logs", gang, "-w", "trainer-1", "--grep", "loss", *follow).out == (
        "loss 0.1\n"
    )
    done = shared.types("logs", gang, "--merge", "--grep", r"rank 1|loss 0\.1", *follow)
    assert done.out == "[trainer-1] rank 1 begins\n[trainer-1] loss 0.1\n"


def test_from_a_time_on(shared: Person, gang: str) -> None:
    everything = shared.types("logs", gang, "-w", "trainer-1").out
    assert shared.types("logs", gang, "-w", "trainer-1", "--since", "1h").out == everything
    assert shared.types("logs", gang, "--since", "2000-01-01", "--failed").out == everything
    assert shared.types("logs", gang, "--since", "2999-01-01").out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grep", "("), "regular expression"),
        (("--since", "soon"), "neither a duration"),
        (("-w", "trainer-9"), "trainer-9"),
    ],
)
def test_what_is_wrong_is_said(
    shared: Person, gang: str, words: tuple[str, ...], said: str
) -> None:
    done = shared.types("logs", gang, *words)
    assert done.code == 2
    assert said in done.err


def test_where_nothing_failed_there_is_nothing_to_show(shared: Person) -> None:
    source = shared.here / "gang"
    words = ("submit_job", f"--files={source}", "--start_cmd=echo hi", "--job_type=cpu")
    job_id = shared.types(*words).out.removeprefix("job_id: ").strip()
    assert shared.waits_for(job_id)["job_status"] == "success"
    done = shared.types("logs", job_id, "--failed")
    assert (done.code, done.out) == (1, "")
    assert "no worker" in done.err
