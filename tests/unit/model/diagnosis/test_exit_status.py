"""One exit record and its log, in words."""

from __future__ import annotations

import pytest

from paddlecloud.messages import render
from paddlecloud.messages.tables import TEXTS
from paddlecloud.model.diagnosis.exit_status import diagnose_exit
from paddlecloud.model.jobs.job import ExitCause, ExitRecord, Reason, Resources
from tests.unit.model.builders import JOB_ID, ended

GIB = 2**30


def spoken(record: ExitRecord, tail: bytes = b"", memory: int = 0) -> tuple[Reason, Reason]:
    words = diagnose_exit(JOB_ID, "trainer-0", record, Resources(memory=memory), tail)
    assert words.advice is not None
    for reason in words:
        assert reason is not None
        for lang in ("en", "zh"):
            sentence = render(reason.code, reason.params, lang)
            assert reason.code in TEXTS
            assert not sentence.endswith("})"), "a value of the sentence is missing"
    return words.reason, words.advice


WORK = "/srv/home/agent/replicas/job-1.1.trainer-0/work"
CASES = [
    (
        "a program that was not submitted",
        ended(2),
        f"python3: can't open file '{WORK}/sub/nofile.py': [Errno 2] No such file\n".encode(),
        "fail_missing",
        "advice_missing",
        "could not find sub/nofile.py",
    ),
    ("a plain exit", ended(3), b"", "fail_exit", "advice_log", "exited with code 3"),
    (
        "a traceback",
        ended(1),
        b'epoch 1\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: bad\n',
        "fail_exit_error",
        "advice_log",
        "trainer-0 exited with code 1: ValueError: bad",
    ),
    (
        "an error about a submitted file",
        ended(1),
        f"cat: {WORK}/data/a.txt: No such file or directory\n".encode(),
        "fail_exit_error",
        "advice_log",
        "exited with code 1: cat: data/a.txt: No such file or directory",
    ),
    (
        "an abort that says why",
        ended(by_signal=6),
        b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  bad_alloc\n",
        "fail_abort_error",
        "advice_crash",
        "aborted (SIGABRT, exit code 134): what(): bad_alloc",
    ),
    (
        "a traceback that a kill from outside left",
        ended(by_signal=15),
        b"Traceback (most recent call last):\n  x\nKeyboardInterrupt\n",
        "fail_sigterm",
        "advice_log",
        "terminated by something outside PaddleCloud",
    ),
    ("a segfault", ended(by_signal=11), b"", "fail_segv", "advice_crash", "segmentation fault"),
    ("a segfault below a shell", ended(139), b"", "fail_segv", "advice_crash", "exit code 139"),
    ("an abort", ended(by_signal=6), b"", "fail_abort", "advice_crash", "SIGABRT"),
    ("a division", ended(by_signal=8), b"", "fail_fpe", "advice_crash", "SIGFPE"),
    ("a wrong processor", ended(by_signal=4), b"", "fail_ill", "advice_illegal", "SIGILL"),
    ("a full /dev/shm", ended(by_signal=7), b"", "fail_bus", "advice_bus", "SIGBUS"),
    ("a foreign kill", ended(by_signal=9), b"", "fail_sigkill", "advice_host_memory", "SIGKILL"),
    ("a kill below a shell", ended(137), b"", "fail_sigkill", "advice_host_memory", "137"),
    ("a foreign end", ended(by_signal=15), b"", "fail_sigterm", "advice_log", "SIGTERM"),
    ("an interrupt", ended(by_signal=2), b"", "fail_sigint", "advice_log", "SIGINT"),
    ("a rare signal", ended(by_signal=10), b"", "fail_signal", "advice_log", "signal 10"),
    ("a code that is no signal", ended(250), b"", "fail_exit", "advice_log", "250"),
    ("a usage error", ended(2), b"usage: x\n", "fail_exit", "advice_log", "exited with code 2"),
    (
        "a platform stop", ended(cause=ExitCause.STOPPED), b"", "fail_stopped", "advice_log",
        "stopped",
    ),
    (
        "a missing module",
        ended(1),
        b"Traceback ...\nModuleNotFoundError: No module named 'paddle.fluid'\n",
        "fail_exit_error",
        "advice_module",
        "exited with code 1: ModuleNotFoundError: No module named 'paddle.fluid'",
    ),
    (
        "no PaddlePaddle at all",
        ended(1),
        b"Traceback ...\nModuleNotFoundError: No module named 'paddle'\n",
        "fail_no_paddle",
        "advice_no_paddle",
        "PaddlePaddle is not installed",
    ),
    (
        "a port in use",
        ended(1),
        b"OSError: [Errno 98] Address already in use\n",
        "fail_port_in_use",
        "advice_port_in_use",
        "Errno 98",
    ),
    (
        "an abort over a port",
        ended(by_signal=6),
        b"terminate called: bind: Address already in use\n",
        "fail_port_in_use",
        "advice_port_in_use",
        "exited with code 134",
    ),
    (
        "a port in the log of a crash",
        ended(by_signal=11),
        b"warning: Address already in use\n",
        "fail_segv",
        "advice_crash",
        "139",
    ),
    (
        "no parameter server, as its machine saw",
        ended(1, hint="no_pserver"),
        b"RuntimeError: something else\n",
        "fail_no_pserver",
        "advice_no_pserver",
        "no parameter server",
    ),
    (
        "no parameter server, by its own words",
        ended(1),
        b"AttributeError: module 'paddle.base.core' has no attribute 'DistFleetWrapper'\n",
        "fail_no_pserver",
        "advice_no_pserver",
        "PSERVER mode",
    ),
    (
        "another mistake of a PSERVER job",
        ended(1, hint="no_pserver"),
        b"ModuleNotFoundError: No module named 'pgl'\n",
        "fail_exit_error",
        "advice_module",
        "exited with code 1: ModuleNotFoundError: No module named 'pgl'",
    ),
    (
        "a missing command of a PSERVER job",
        ended(127, hint="no_pserver"),
        b"sh: 1: pyhton: not found\n",
        "fail_missing",
        "advice_missing",
        "pyhton",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "tail", "reason", "advice", "said"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_each_end_has_its_sentence_and_advice(
    record: ExitRecord, tail: bytes, reason: str, advice: str, said: str
) -> None:
    got, hint = spoken(record, tail)
    assert (got.code, hint.code) == (reason, advice)
    assert said in render(got.code, got.params, "en")


@pytest.mark.parametrize(
    ("code", "line", "windows"),
    [
        (127, b"run.sh: 1: nosuch\r: not found", True),
        (2, b"run.sh: 1: \r: not found\nls: cannot access 'foo'$'\\r': No such file", True),
        (127, b"run.sh: line 1: $'nosuch\\r': command not found", True),
        (2, b"python: can't open file '/w/train.py\\r': [Errno 2] No such file", True),
        (2, b"sh: 0: cannot open run.sh\r: No such file", True),
        (1, b"epoch 1\repoch 2\rdone: not found", False),
        (2, b"python: can't open file '/w/train.py': [Errno 2] No such file", False),
    ],
)
def test_windows_line_ends_are_told(code: int, line: bytes, windows: bool) -> None:
    _, hint = spoken(ended(code), line)
    assert (hint.code == "advice_line_ends") is windows
    assert "sed -i 's/\\r$//'" in render("advice_line_ends", {}, "zh")


@pytest.mark.parametrize(
    ("code", "line", "command"),
    [
        (127, "sh: 1: pyhton: not found", "pyhton"),
        (127, "/bin/sh: 1: pyhton: not found", "pyhton"),
        (127, "run.sh: 3: pyhton: not found", "pyhton"),
        (127, "/bin/sh: line 1: pyhton: command not found", "pyhton"),
        (127, "bash: pyhton: command not found", "pyhton"),
        (127, "/bin/sh: 1: pyhton: Permission denied", "pyhton"),
        (127, "zsh:1: command not found: pyhton", "pyhton"),
        (127, "/bin/sh: pyhton: not found", "pyhton"),
        (127, "bash: run.sh: No such file or directory", "run.sh"),
        (127, "/usr/bin/env: ‘python9’: No such file or directory", "python9"),
        (127, "sh: 1: ./go.sh: not found", "./go.sh"),
        (127, "sh: 0: Can't open run.sh", "run.sh"),
        (2, "sh: 0: cannot open run.sh: No such file", "run.sh"),
        (2, "python: can't open file '/x/train.py': [Errno 2] No such file", "/x/train.py"),
        (127, "nothing that helps", "?"),
    ],
)
def test_a_missing_command_is_named(code: int, line: str, command: str) -> None:
    reason, advice = spoken(ended(code), f"before\n{line}\n".encode())
    assert (reason.code, advice.code) == ("fail_missing", "advice_missing")
    assert reason.params["command"] == advice.params["command"] == command


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("sh: 1: ./run.sh: Permission denied", "./run.sh"),
        ("/bin/sh: line 1: ./run.sh: Permission denied", "./run.sh"),
        ("bash: ./run.sh: Permission denied", "./run.sh"),
    ],
)
def test_a_file_that_may_not_be_executed_is_named(line: str, command: str) -> None:
    reason, advice = spoken(ended(126), line.encode())
    assert (reason.code, advice.code) == ("fail_not_executable", "advice_not_executable")
    assert reason.params["command"] == command


def test_a_memory_death_is_told_with_its_limit() -> None:
    reason, advice = spoken(ended(by_signal=9, oom=True, max_rss=3 * GIB), memory=2 * GIB)
    assert reason.code == "fail_memory"
    assert "2 GiB" in render(reason.code, reason.params, "en")
    assert "--memory" in render(advice.code, advice.params, "en")


def test_a_memory_death_at_the_limit_of_jobs_without_memory_says_how_to_get_more() -> None:
    reason, advice = spoken(ended(137, oom=True, max_rss=3 * GIB, memory_limit=4 * GIB))
    assert reason.code == "fail_memory_default"
    assert "4 GiB" in render(reason.code, reason.params, "en")
    assert "--memory" in render(reason.code, reason.params, "en")
    assert "--memory" in render(advice.code, advice.params, "en")


def test_a_memory_death_without_a_limit_is_the_machines() -> None:
    reason, _ = spoken(ended(137, oom=True, max_rss=3 * GIB))
    assert reason.code == "fail_host_memory"
    assert "3 GiB" in render(reason.code, reason.params, "en")


def test_the_log_of_another_worker_than_the_first_is_asked_for_by_its_name() -> None:
    for record in (ended(3), ended(by_signal=15), ended(cause=ExitCause.STOPPED)):
        advice = diagnose_exit(JOB_ID, "trainer-1", record, Resources(), b"").advice
        assert advice is not None
        assert f"{JOB_ID} -w trainer-1" in render(advice.code, advice.params, "en")
        assert "-w" not in render(spoken(record)[1].code, spoken(record)[1].params, "en")


def test_nobody_is_sent_to_the_log_of_one_that_never_printed_anything() -> None:
    for record in (ended(7), ended(by_signal=15), ended(cause=ExitCause.STOPPED)):
        words = diagnose_exit(JOB_ID, "trainer-0", record, Resources(), b"", logged=False)
        assert words.advice is not None
        assert words.advice.code == "advice_log_empty"
        assert words.reason == spoken(record)[0]
    crash = diagnose_exit(JOB_ID, "trainer-0", ended(by_signal=11), Resources(), b"", logged=False)
    assert crash.advice is not None
    assert crash.advice.code == "advice_crash"


def test_packages_that_cannot_be_installed_are_no_matter_of_the_disk() -> None:
    record = ended(cause=ExitCause.START_FAILED, ran=False, message="no", hint="no_environment")
    assert spoken(record)[1].code == "advice_requirements"


def test_a_failed_start_repeats_the_systems_words() -> None:
    record = ended(cause=ExitCause.START_FAILED, ran=False, message="No space left on device")
    reason, advice = spoken(record)
    assert (reason.code, advice.code) == ("fail_start", "advice_start")
    assert "No space left on device" in render(reason.code, reason.params, "en")


def test_why_it_could_not_start_is_said_in_the_language_of_its_reader() -> None:
    said = Reason(code="agent_blob_size", params={"path": "a|b", "size": 3, "expected": 4})
    record = ended(cause=ExitCause.START_FAILED, ran=False, message="old words", said=said)
    reason, advice = diagnose_exit(JOB_ID, "trainer-0", record, Resources(), b"")
    assert (reason.code, advice) == ("fail_start", None), "the sentence says what to do"
    assert render(reason.code, reason.params, "en") == (
        "trainer-0 could not be started: the stored blob of a|b has 3 bytes, expected 4; submit "
        "the files again"
    )
    assert render(reason.code, reason.params, "zh") == (
        "trainer-0 无法启动：a|b 的已存内容为 3 字节，应为 4 字节，请重新提交文件"
    )


def test_a_sentence_that_is_not_known_here_leaves_the_words_that_came_with_it() -> None:
    said = Reason(code="of_a_newer_agent")
    record = ended(cause=ExitCause.START_FAILED, ran=False, message="its words", said=said)
    reason, _ = spoken(record)
    assert reason.params == {"worker": "trainer-0", "message": "its words"}


def test_a_start_that_the_machine_refused_has_the_advice_about_machines() -> None:
    said = Reason(code="agent_workspace_failed", params={"path": "f", "reason": "Read-only"})
    record = ended(cause=ExitCause.START_FAILED, ran=False, said=said)
    assert spoken(record)[1].code == "advice_start"
