"""The line of a log that states the error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddlecloud.model.diagnosis._error_line import MAX_LETTERS, error_line
from paddlecloud.model.logs.tail import last_lines

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\n'
CHAINED = f"{TRACEBACK}KeyError: 'a'\n\nDuring handling of the above exception, another exception"
CHAINED += f" occurred:\n\n{TRACEBACK}ValueError: b\n"
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in <module>
  |     raise ExceptionGroup("several", [ValueError("a"), TypeError("b")])
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 2, in f
    | ValueError: a
    +---------------- 2 ----------------
    | TypeError: b
    +------------------------------------
"""
SUMMARY = "OSError: \n\n-----\nC++ Traceback:\n-----\n0 f()\n\nError Message Summary:\n-----\n"


def found(log: str) -> str | None:
    return error_line(last_lines(log.encode(), 400))


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (f"epoch 1\n{TRACEBACK}ValueError: wrong shape\n", "ValueError: wrong shape"),
        (f"{TRACEBACK}ValueError: first\nsecond\nthird\n", "ValueError: first"),
        (f"{TRACEBACK}AssertionError\n", "AssertionError"),
        (f"{TRACEBACK}a.b.Own: text\n", "a.b.Own: text"),
        (CHAINED, "ValueError: b"),
        (GROUP, "ExceptionGroup: several (2 sub-exceptions)"),
        (f"{TRACEBACK}KeyError: 1\n{TRACEBACK}OSError: 2\n", "OSError: 2"),
        (
            f"{TRACEBACK}KeyError: 1\nException ignored in: <x>\n{TRACEBACK}OSError: 2\n",
            "KeyError: 1",
        ),
        (f"{TRACEBACK}KeyError: 1\nmake: *** [Makefile:1: train] Error 1\n", "KeyError: 1"),
        (f"{TRACEBACK}{SUMMARY}InvalidArgumentError: x\n", "OSError: InvalidArgumentError: x"),
        (f"{TRACEBACK}ValueError: \n  what is wrong\n", "ValueError: what is wrong"),
        (
            "".join(f"[rank0]: {x}\n" for x in f"{TRACEBACK}ValueError: 3".splitlines()),
            "ValueError: 3",
        ),
        (f"\x1b[1;31m{TRACEBACK}ValueError\x1b[0m: red\n", "ValueError: red"),
        (
            f"{TRACEBACK}ValueError: {'x' * 500}\n",
            "ValueError: " + "x" * (MAX_LETTERS - 15) + "...",
        ),
        (
            "usage: a\na.py: error: unrecognized arguments: --n\n",
            "a.py: error: unrecognized arguments: --n",
        ),
        ("cat: data: No such file or directory\nbye\n", "cat: data: No such file or directory"),
        ("panic: boom\n\ngoroutine 1 [running]:\nexit status 2\n", "panic: boom"),
        (
            "thread 'main' panicked at a.rs:2:5:\nboom\nnote: x\n",
            "thread 'main' panicked at a.rs:2:5: boom",
        ),
        ('Exception in thread "main" E: a\n\tat x\nCaused by: F: b\n\tat y\n', "Caused by: F: b"),
        (
            "F1118 10:00:00.000 12 a.cc:12] Check failed: a\n",
            "F1118 10:00:00.000 12 a.cc:12] Check failed: a",
        ),
        ("错误：找不到数据\n", "错误：找不到数据"),
    ],
)
def test_the_line_that_states_the_error_is_found(log: str, line: str) -> None:
    assert found(log) == line


@pytest.mark.parametrize(
    "log",
    [
        "",
        "epoch 1 loss 0.1\ndone\n",
        "epoch 9 train error: 0.05 acc 0.9\n",
        "error rate = 0.3\nError: 0.1\nval_error: nan\n错误率 0.05\n失败 0 次\n",
        "WARNING: could not load the cache\nUserWarning: failed to compile\n",
        "3 passed, 0 failed\nno errors\n",
        "request failed, retrying in 3 s\n",
        "cat: data: No such file or directory\n" + "epoch\n" * 20,
        f"{TRACEBACK}ZeroDivisionError: caught\n" + "epoch\n" * 60,
        TRACEBACK,
    ],
)
def test_a_doubtful_line_is_no_cause(log: str) -> None:
    assert found(log) is None


def test_what_this_python_prints_is_understood() -> None:
    code = "try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('one\\ntwo') from e"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert error_line(last_lines(done.stderr, 400)) == "ValueError: one"
