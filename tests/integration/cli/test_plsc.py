"""`paddlecloud plsc` without PaddlePaddle: what it submits, and what it says is missing.

With PaddlePaddle the same command is tried by tests/paddle.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import paddlecloud
from tests.integration.cli.person import Person

TOP = Path(__file__).resolve().parents[3]
#: The Python of the tests has no PaddlePaddle, whatever else is on this machine.
WITHOUT_PADDLE = f"{Path(sys.executable).parent}:{os.defpath}"


def test_it_says_what_it_submits_and_that_paddle_is_missing(shared: Person) -> None:
    done = shared.types("plsc", "--watch_mode=1", "--job_type=cpu", PATH=WITHOUT_PADDLE)
    assert done.code == 1
    assert "submitting the PLSC example: sh run.sh in a copy of" in done.err
    first, *log = done.out.splitlines()
    assert "PaddlePaddle is not installed in the Python of this job" in log[0]
    assert log[1].endswith("python3 -m pip install paddlepaddle")
    view = shared.sees(first.removeprefix("job_id: "))
    assert (view["job_name"], view["start_cmd"], view["exit_code"]) == ("plsc", "sh run.sh", 1)
    assert view["error_msg"] == (
        "trainer-0 exited with code 1: PaddlePaddle is not installed in its Python"
    )
    assert view["failure"]["advice"].endswith("python3 -m pip install paddlepaddle")


def test_what_is_given_wins(shared: Person) -> None:
    (shared.here / "mine").mkdir()
    given = ("--files=mine", "--start_cmd=echo mine", "--job_name=my_plsc", "--watch_mode=1")
    done = shared.types("plsc", *given)
    assert done.code == 0, done.err
    first, *log = done.out.splitlines()
    assert log == ["mine"]
    assert shared.sees(first.removeprefix("job_id: "))["job_name"] == "my_plsc"


def test_the_example_of_the_package_is_the_one_that_people_read() -> None:
    packaged = Path(paddlecloud.__path__[0]) / "examples" / "plsc" / "job"
    shown = TOP / "examples" / "plsc" / "job"
    assert {path.name for path in packaged.glob("*.*")} == {
        "make_data.py", "margin_softmax.py", "run.sh", "train.py", "zip_reader.py",
    }  # fmt: skip
    assert shown.resolve() == packaged.resolve()
