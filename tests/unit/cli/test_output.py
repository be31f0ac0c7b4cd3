"""Lines, tables and sizes, on a terminal and in a pipe."""

from __future__ import annotations

import errno
import io
import sys
from contextlib import suppress

import pytest

from paddlecloud.cli import output
from paddlecloud.cli.output import (
    Output,
    Progress,
    StatusLine,
    key_lines,
    one_line,
    size,
    visible,
    with_short_ids,
)
from paddlecloud.cli.table import Column


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, Terminal]:
    """stdout and stderr as terminals; a fixture would come before pytest sets its own."""
    streams = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    return streams


@pytest.mark.parametrize(
    ("count", "want"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2, "1.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
        (3 * 1024**6, "3072.0 PiB"),
    ],
)
def test_sizes_in_words(count: int, want: str) -> None:
    assert size(count) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, ""),
        (0, "0"),
        ("a\nb\r\nc", "a b c"),
        (["1", "2"], "1,2"),
        ([], ""),
        ("", ""),
        (True, "1"),
        (False, "0"),
        ({"cpu": 2, "gpu": None}, "cpu=2,gpu="),
        ({}, ""),
    ],
)
def test_a_value_is_one_line(value: object, want: str) -> None:
    assert one_line(value) == want


def test_keys_are_sorted_and_an_empty_one_ends_at_its_colon() -> None:
    view = {"b": "x y", "a": "", "c": 0, "other": 1}
    assert key_lines(view, ("c", "a", "b", "missing")) == ["a:", "b: x y", "c: 0", "missing:"]


def test_a_table_is_aligned_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    out = Output("en", {"NO_COLOR": "1"})
    out.table(("name", "state"), [["训练任务", "running"], ["b", "success"]])
    assert terminal[0].getvalue() == "name      state\n训练任务  running\nb         success\n"


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    assert Output("en", {}).state("success") == "\x1b[32msuccess\x1b[0m"
    assert Output("en", {}).state("queue") == "queue"
    assert Output("en", {"NO_COLOR": "1"}).state("success") == "success"
    assert Output("en", {"TERM": "dumb"}).state("success") == "success"
    Output("en", {}).table(("a", Column("b", "state")), [["x", "failed"]])
    assert "\x1b[31mfailed\x1b[0m" in terminal[0].getvalue()


def test_a_pipe_gets_tabs_and_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("en", {})
    out.table(("name", "state"), [["训练", "running"], ["b", ""]])
    out.value({"名": [1, None]})
    out.error("bad")
    with out.progress("uploading", 10) as bar:
        bar.add(10)
    captured = capsys.readouterr()
    assert captured.out == '训练\trunning\nb\t\n{"名": [1, null]}\n'
    assert captured.err == "bad\n"


def test_messages_fit_a_terminal_and_stay_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = "job-" + "0123456789abcdef" * 2
    Output("en", {"COLUMNS": "60"}).say("watch_left", job_id=job_id)
    whole = capsys.readouterr().err
    assert whole.count("\n") == 1 and whole.count(job_id) == 3
    shown, told = on_terminal(monkeypatch)
    out = Output("en", {"COLUMNS": "60", "NO_COLOR": "1"})
    out.say("watch_left", job_id=job_id)
    assert told.getvalue().splitlines() == [
        "interrupted, but job-01234567 continues; follow it:",
        "paddlecloud logs -f job-01234567; end it:",
        "paddlecloud kill_job job-01234567",
    ]
    out.sentence("a sentence on stdout " * 4)
    assert shown.getvalue().splitlines() == [
        "a sentence on stdout a sentence on stdout a sentence on",
        "stdout a sentence on stdout",
    ]
    told.truncate(0)
    out.message("a line of a log " * 9, wrapped=False)
    assert told.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{id}", "{short}"),
        ("{id}: failed, see {id}", "{short}: failed, see {short}"),
        ("{id}：失败", "{short}：失败"),
        ("--job_id={id}.", "--job_id={short}."),
        ("in output/{id}", "in output/{id}"),
        ("{id}/log", "{id}/log"),
        ("x{id}, {id}0, my-{id}", "x{id}, {id}0, my-{id}"),
        ("job-1 and job-", "job-1 and job-"),
        ("no id", "no id"),
    ],
)
def test_ids_are_shortened_but_not_in_paths(text: str, want: str) -> None:
    values = {"id": "job-" + "0123456789abcdef" * 2, "short": "job-01234567"}
    assert with_short_ids(text.format(**values)) == want.format(**values)


@pytest.mark.parametrize(
    ("lang", "state", "want"),
    [
        ("zh", "failed", "失败（failed）"),
        ("zh", "schedule timeout", "超时未调度（schedule timeout）"),
        ("en", "failed", "failed"),
        ("zh", "unheard", "unheard"),
    ],
)
def test_states_are_translated_on_a_terminal_only(
    lang: str, state: str, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Output(lang, {"NO_COLOR": "1"})
    assert (out.state(state), out.error_state(state)) == (state, state)
    on_terminal(monkeypatch)
    out = Output(lang, {"NO_COLOR": "1"})
    assert (out.state(state), out.error_state(state)) == (want, want)


def test_a_status_line_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _, told = on_terminal(monkeypatch)
    StatusLine(lambda: 60).draw("读取中" * 20)
    assert told.getvalue() == "\r" + ("读取中" * 20)[:29]


def test_a_bar_redraws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    bar = Output("en", {}).progress("uploading", 1000)
    for _ in range(1000):
        bar.add(1)
    bar.done()
    bar.done()
    with Output("en", {}).progress("uploading", 0) as nothing:
        nothing.add(0)
    text = terminal[1].getvalue()
    assert text.count("\r") == 101
    assert text.endswith(f"[{'#' * output._BAR}] 100% 1000 B\n")


def test_an_error_is_told_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    out = Output("en", {"NO_COLOR": "1"})
    with suppress(ValueError), out.progress("uploading", 2) as bar:
        bar.add(1)
        raise ValueError
    out.error("it broke")
    assert terminal[1].getvalue().endswith("50% 2 B\nit broke\n")


def test_what_is_told_meanwhile_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    out = Output("en", {"NO_COLOR": "1"})
    with out.progress("uploading", 100) as bar:
        bar.add(40)
        out.message("the upload was interrupted")
        bar.add(20)
    _, first, blanks, told, again, last = terminal[1].getvalue().split("\r")
    assert first.endswith("40% 100 B") and again == first
    assert blanks.isspace() and len(blanks) == len(first)
    assert told == "the upload was interrupted\n"
    assert last.endswith("60% 100 B\n")


def test_a_shorter_line_leaves_nothing_of_a_longer_one(capsys: pytest.CaptureFixture[str]) -> None:
    line = StatusLine(lambda: 80)
    line.draw("上传中")
    line.draw("ab")
    line.draw("")
    line.leave()
    assert capsys.readouterr().err == "\r上传中\rab    \r  \r"


def test_a_line_for_which_there_is_no_terminal_any_more_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(sys, "stderr", Gone())
    line = StatusLine(lambda: 80)
    line.draw("uploading")
    line.leave()


def test_a_bar_tells_its_speed_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 0.1, 10.0, 20.0, 40.0])
    bar = Progress(StatusLine(lambda: 80), "uploading", 400 * 2**20, lambda: next(now))
    for _ in range(4):
        bar.add(100 * 2**20)
    drawn = capsys.readouterr().err.split("\r")[1:]
    assert drawn[0].endswith("25% 400.0 MiB")
    assert drawn[1].endswith("50% 400.0 MiB, 20.0 MiB/s, 00:10")
    assert drawn[2].endswith("75% 400.0 MiB, 15.0 MiB/s, 00:07")
    assert drawn[3].rstrip().endswith("100% 400.0 MiB, 10.0 MiB/s")


def test_a_bar_moves_within_a_percent(capsys: pytest.CaptureFixture[str]) -> None:
    """One of a terabyte takes minutes; but nobody reads a hundred lines a second."""
    now = iter([0.0, 1.0, 1.2, 1.4, 1.6, 2.0, 2.2])
    bar = Progress(StatusLine(lambda: 80), "uploading", 2**40, lambda: next(now))
    for _ in range(6):
        bar.add(2**20)
    drawn = capsys.readouterr().err.split("\r")[1:]
    speeds = [line.split(", ")[1] for line in drawn]
    assert speeds == ["1.0 MiB/s", "2.5 MiB/s", "2.7 MiB/s"]


def test_what_was_there_before_says_nothing_of_the_speed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = iter([0.0, 100.0, 100.0, 110.0])
    bar = Progress(StatusLine(lambda: 80), "uploading", 400 * 2**20, lambda: next(now))
    bar.skip(200 * 2**20)
    bar.add(100 * 2**20)
    drawn = capsys.readouterr().err.split("\r")[1:]
    assert drawn[0].endswith("50% 400.0 MiB")
    assert drawn[1].endswith("75% 400.0 MiB, 10.0 MiB/s, 00:10")


def test_a_bar_may_go_back_to_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was copied and is not the right one is fetched anew."""
    now = iter([0.0, 10.0, 20.0, 30.0])
    bar = Progress(StatusLine(lambda: 80), "downloading", 100, lambda: next(now))
    bar.add(50)
    bar.add(-50)
    bar.add(100)
    drawn = capsys.readouterr().err.split("\r")[1:]
    assert drawn[1].rstrip().endswith("0% 100 B")
    assert drawn[2].rstrip().endswith("100% 100 B, 3 B/s")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("训练 é \u00a0", "训练 é \u00a0"),
        ("a\\b", "a\\b"),
        ("a\x1b[31m", "a\\033[31m"),
        ("a\r\n\tb\x7f\x9b", "a\\r\\n\\tb\\177\\233"),
        ("a\u202eb\u2028", "a\\u202eb\\u2028"),
        ("\u200d", "\u200d"),
    ],
)
def test_letters_that_a_terminal_obeys_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_row_stays_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output("en", {}).table(("name", "size"), [["a\nb", "1"], ["c\td", "2"]])
    assert capsys.readouterr().out == "a\\nb\t1\nc\\td\t2\n"
