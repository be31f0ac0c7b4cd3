"""Wrong calls of the real command: one sentence, the right exit code, nothing sent, nothing stored.

The sentence is checked in both languages and as JSON. A real server runs meanwhile, with one
finished job, so that whatever slips through would be seen in its database or its store.
"""

from __future__ import annotations

import json
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from paddlecloud.messages.tables import TEXTS
from tests.integration.cli.person import Done, Person
from tests.integration.cli.unfit import lay_out
from tests.integration.cli.wrong_calls import EVERY, FAILED, UNKNOWN_JOB, USAGE, Wrong

CHINESE = re.compile(r"[\u4e00-\u9fff]")
#: What a program says when it forgets that a person reads it.
INTERNALS = re.compile(r"Traceback|None|<\w+ object|\{'|\['|Error\(|made a mistake|\\n")
AS_PROCESS = EVERY[::8]
Fill = Callable[[str], str]


@pytest.fixture(scope="module")
def fill(shared: Person) -> Fill:
    """Puts the real directories and ids into the words of the table."""
    marks = lay_out(shared.here)
    marks["<done>"] = shared.submits("echo hi")
    shared.waits_for(marks["<done>"])

    def put(text: str) -> str:
        for mark, value in marks.items():
            text = text.replace(mark, value)
        return text

    return put


def test_the_table_covers_what_it_should() -> None:
    assert len(EVERY) >= 60
    assert len({wrong.call for wrong in EVERY}) == len(EVERY)
    assert len(AS_PROCESS) >= 15
    assert {wrong.code for wrong in AS_PROCESS} == {USAGE, FAILED}


@pytest.mark.parametrize("wrong", EVERY, ids=lambda wrong: wrong.title)
def test_a_wrong_call_gets_one_sentence(wrong: Wrong, shared: Person, fill: Fill) -> None:
    words = [fill(word) for word in wrong.call]
    before = shared.stored()
    english = shared.types(*words)
    chinese = shared.types(*words, PADDLECLOUD_LANG="zh")
    assert shared.stored() == before
    for done in (english, chinese):
        check_sentence(done, wrong, fill)
    assert wrong.advice in english.err
    assert not CHINESE.search(english.err)
    assert CHINESE.search(chinese.err)


@pytest.mark.parametrize("wrong", EVERY, ids=lambda wrong: wrong.title)
def test_a_program_gets_the_same_as_json(wrong: Wrong, shared: Person, fill: Fill) -> None:
    done = shared.types("--json", *(fill(word) for word in wrong.call))
    assert (done.code, done.out) == (wrong.code, "")
    error = json.loads(done.err)["error"]
    assert error["code"] in TEXTS
    assert wrong.advice in error["message"]


@pytest.mark.parametrize("wrong", AS_PROCESS, ids=lambda wrong: wrong.title)
def test_a_real_process_says_the_same(wrong: Wrong, shared: Person, fill: Fill) -> None:
    words = [fill(word) for word in wrong.call]
    before = shared.stored()
    done = shared.runs(*words)
    assert shared.stored() == before
    check_sentence(done, wrong, fill)
    assert done == shared.types(*words)


def check_sentence(done: Done, wrong: Wrong, fill: Fill) -> None:
    assert (done.code, done.out) == (wrong.code, ""), done.err
    assert done.err.startswith("paddlecloud: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert not INTERNALS.search(done.err)
    missing = [name for name in map(fill, wrong.names) if name not in done.err]
    assert not missing, done.err


def test_the_command_alone_is_answered_with_help(shared: Person) -> None:
    done = shared.runs()
    assert (done.code, done.out) == (USAGE, "")
    assert "submit_job" in done.err
    assert shared.runs("--help").out == done.err


def test_bytes_that_are_no_text_are_refused(shared: Person, fill: Fill) -> None:
    before = shared.stored()
    done = shared.runs("submit_job", fill("--files=<job>"), "--start_cmd=ls", b"--job_name=caf\xe9")
    assert (done.code, done.out) == (USAGE, "")
    assert done.err == (
        "paddlecloud: job_name is not valid UTF-8 text; check the terminal's character encoding\n"
    )
    assert shared.runs("query_job", b"job-\xff").code == USAGE
    assert shared.stored() == before


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_may_not_be_read_is_named(shared: Person, tmp_path: Path, lang: str) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_text("hush")
    secret.chmod(0)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    before = shared.stored()
    words = ("submit_job", f"--files={tmp_path}", "--start_cmd=ls")
    try:
        done = shared.runs_as_anybody(*words, PADDLECLOUD_LANG=lang)
        secret.chmod(stat.S_IRUSR)
        again = shared.runs_as_anybody(*words, PADDLECLOUD_LANG=lang)
    finally:
        locked.chmod(stat.S_IRWXU)
    for found, names, lines in ((done, ("secret.bin", "locked"), 3), (again, ("locked",), 1)):
        assert (found.code, found.out) == (USAGE, "")
        assert all(name in found.err for name in names)
        assert found.err.count("\n") == lines
        assert bool(CHINESE.search(found.err)) == (lang == "zh")
    assert shared.stored() == before


def test_a_configuration_that_may_not_be_read_is_named(shared: Person, tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("[main]\n")
    conf.chmod(0)
    done = shared.runs_as_anybody("list_jobs", f"--config={conf}")
    assert (done.code, done.out) == (USAGE, "")
    assert done.err == (
        f"paddlecloud: cannot read the configuration file {conf}: Permission denied\n"
    )


def test_a_secret_is_never_repeated(shared: Person, tmp_path: Path) -> None:
    """A line that lost its `=` is quoted, but the key in it is not."""
    conf = tmp_path / "client.conf"
    conf.write_text("[main]\nsk 0123456789abcdef0123456789abcdef\n")
    conf.chmod(0o600)
    done = shared.types("list_jobs", f"--config={conf}")
    assert (done.code, done.out) == (USAGE, "")
    assert f"{conf}:2" in done.err
    assert "0123456789abcdef" not in done.err
    conf.write_text("[main]\nak = me\nsk = 0123456789abcdef0123456789abcdef\n")
    shown = shared.types("config", "show", "--origin", f"--config={conf}")
    assert "0123456789abcdef" not in shown.out + shown.err


def test_a_secret_that_others_may_read_is_a_warning(shared: Person, tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("[bos]\nsk = hush\n[mian]\nak = me\n")
    conf.chmod(0o644)
    done = shared.types("list_jobs", "--json", f"--config={conf}")
    assert done.code == 0
    first, second = done.err.splitlines()
    assert "did you mean main?" in first
    assert "chmod 600" in second
    assert len(done.json) >= 1


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_server_that_is_not_there_is_one_sentence(
    shared: Person, tmp_path: Path, lang: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        conf = tmp_path / "client.conf"
        conf.write_text(f"[main]\nak = a\nsk = b\n[openapi]\nhost = 127.0.0.1\nport = {port}\n")
        conf.chmod(0o600)
        words = ("query_job", UNKNOWN_JOB, f"--config={conf}")
        done = shared.types(*words, PADDLECLOUD_LANG=lang)
        assert done == shared.runs(*words, PADDLECLOUD_LANG=lang)
    assert (done.code, done.out) == (FAILED, "")
    assert f"127.0.0.1:{port}" in done.err
    assert "host" in done.err
    assert done.err.count("\n") == 1
    assert bool(CHINESE.search(done.err)) == (lang == "zh")


def test_a_download_of_nothing_fails(shared: Person, fill: Fill) -> None:
    words = ("get_files", fill("<done>"), "--prefix=output/typing-error")
    assert shared.types(*words).code == 0
    done = shared.types(*words, "--download=1", "--download_dir=nothing")
    assert (done.code, done.out) == (FAILED, "")
    assert "output/typing-error" in done.err
    assert not (shared.here / "nothing").exists()
