"""`paddlecloud logs` on real jobs: all workers, the one that failed, by time and by pattern."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.integration.cli.person import Person, until

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
    done = shared.types("logs", gang, *follow)
    assert done.code == 0, done.err
    assert shared.types("logs", gang, "--merge", *follow).out == done.out
    second = [line for line in done.out.split("\n") if line.startswith("[trainer-1]")]
    assert second == [
        "[trainer-1] rank 1 begins",
        "[trainer-1] 10%\r[trainer-1] 20%\r",
        "[trainer-1] loss 0.1",
    ]
    assert "[trainer-0] rank 0 begins" in done.out


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_one_worker_is_printed_as_it_wrote(
    shared: Person, gang: str, follow: tuple[str, ...]
) -> None:
    want = "rank 1 begins\n10%\r20%\r\nloss 0.1\n"
    assert shared.types("logs", gang, "-w", "trainer-1", *follow).out == want
    last = shared.types("logs", gang, "-n1", *follow).out.splitlines()
    assert sorted(last) == ["[trainer-0] loss 0.0", "[trainer-1] loss 0.1"], "of each"
    as_json = shared.types("logs", gang, "-w", "trainer-1", "--json").json
    assert (as_json["worker"], as_json["log"]) == ("trainer-1", want)
    assert shared.types("logs", gang, "--json").json["worker"] is None


@pytest.mark.parametrize("follow", [(), ("-f",)])
def test_lines_with_their_times(shared: Person, gang: str, follow: tuple[str, ...]) -> None:
    now = datetime.fromtimestamp(time.time())  # noqa: DTZ006 - as a person reads a clock
    lines = shared.types("logs", gang, "--timestamps", "--grep", "loss", *follow).out.splitlines()
    found = [re.fullmatch(r"\[(trainer-\d)\] ([-\d]+ [:\d]+\.\d{3}) (loss .*)", x) for x in lines]
    assert all(found), lines
    assert sorted(f"{m[1]} {m[3]}" for m in found if m) == [
        "trainer-0 loss 0.0", "trainer-1 loss 0.1",
    ]  # fmt: skip
    times = [datetime.fromisoformat(m[2]) for m in found if m]
    assert times == sorted(times)
    assert all(abs(now - at) < timedelta(minutes=10) for at in times), "in the zone of the reader"


#: Each prints when it is its turn, four times: a quarter of a second later than the other one.
TURNS = (
    "import os, time\n"
    "rank = int(os.environ['PADDLE_TRAINER_ID'])\n"
    "for turn in range(8):\n"
    "    mine = f\"{os.environ['SHARED']}/{turn}\"\n"
    "    if turn % 2 == rank:\n"
    "        time.sleep(0.25); print('turn', turn, flush=True); open(mine, 'w').close()\n"
    "    while not os.path.exists(mine): time.sleep(0.002)\n"
)


@pytest.mark.slow
def test_the_log_of_an_ended_gang_is_in_the_order_of_time(shared: Person) -> None:
    source, meeting = shared.here / "turns", shared.here / "meeting"
    source.mkdir()
    meeting.mkdir()
    (source / "turns.py").write_text(TURNS)
    done = shared.types(
        *("submit_job", f"--files={source}", "--start_cmd=python3 turns.py", "--job_type=cpu"),
        *("--instance_count=2", "--distribute_job_type=NCCL2", f"--env=SHARED={meeting}"),
        "--watch_mode=1",
    )
    want = "".join(f"[trainer-{turn % 2}] turn {turn}\n" for turn in range(8))
    assert done.code == 0, done.err
    job_id, log = done.out.split("\n", 1)
    assert log == want, "as it was watched"
    job_id = job_id.removeprefix("job_id: ")
    assert shared.types("logs", job_id).out == want
    shared.types("server", "stop")
    assert shared.types("logs", job_id).out == want, "its times outlive the server"


@pytest.mark.slow
def test_lines_keep_their_times_while_the_server_is_away(shared: Person) -> None:
    source, meeting = shared.here / "away", shared.here / "rendezvous"
    source.mkdir()
    meeting.mkdir()
    (source / "turns.py").write_text(TURNS.replace("0.25", "0.05"))
    waits = 'until [ -e "$SHARED/go" ]; do sleep 0.02; done; exec python3 turns.py'
    done = shared.types(
        *("submit_job", f"--files={source}", f"--start_cmd={waits}", "--job_type=cpu"),
        *("--instance_count=2", "--distribute_job_type=NCCL2", f"--env=SHARED={meeting}"),
    )
    job_id = done.out.removeprefix("job_id: ").strip()
    shared.waits_for(job_id, "running")
    assert shared.types("server", "stop").err == "stopped; running jobs continue\n"
    (meeting / "go").touch()
    until(lambda: (meeting / "7").exists())
    assert shared.waits_for(job_id)["job_status"] == "success"
    lines = shared.types("logs", job_id, "--timestamps").out.splitlines()
    assert [line.rpartition("turn ")[2] for line in lines] == [str(turn) for turn in range(8)]
    times = [datetime.fromisoformat(" ".join(line.split()[1:3])) for line in lines]
    apart = [later - before for before, later in pairwise(times)]
    assert all(gap >= timedelta(seconds=0.04) for gap in apart), apart


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
